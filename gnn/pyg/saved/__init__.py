"""Trained modules as people keep them: a factory in code, and a file of weights that it is to get."""
