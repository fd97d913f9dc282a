"""Small files that Freshet writes and later believes."""
