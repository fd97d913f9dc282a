"""Placement of new edges in parts, and of the masters of vertices."""
