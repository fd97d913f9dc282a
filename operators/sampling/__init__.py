"""Uniform samples of the in-edges of vertices, hop by hop."""
