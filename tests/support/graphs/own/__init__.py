"""Written layers for relations, and modules in whose places they stand."""
