"""Reading of a conv of the user's own: it is run on random graphs, and each operation on rows and edges is noted."""
