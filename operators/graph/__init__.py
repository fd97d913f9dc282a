"""The graph in a task, independent of the model: rows by part, replicas, edges and their messages."""
