"""Declarations of convs, by kind; gnn/declarations.py has the simple ones, and names them all."""
