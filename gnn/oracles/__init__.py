"""Slow, obvious passes over a whole graph, and how the errors of fast ones are judged."""
