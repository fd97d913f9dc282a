"""Which part a new edge lives in, and which one a vertex has its master in."""
