"""Training on the graph of a job: labels of its vertices, and batches of a graph that is too large for one."""
