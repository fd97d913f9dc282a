"""Training on the graph of a job: labels, batches, passes over them, and the judgment of the result."""

import freshet.gnn.pyg  # noqa: F401  # first: it imports PyTorch Geometric without a warning that is for its authors
