"""The version of the distributions freshet-gnn and freshet-client."""

__version__ = "0.1.0"
