"""Layers whose messages are not built in: programs that were read, and classes that users write."""
