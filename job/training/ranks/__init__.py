"""Training on a graph that several processes share: each has the in-edges of its own vertices, and fetches rows."""
