"""Serves the embeddings of a running or finished job: one table a machine, and what answers from it."""
