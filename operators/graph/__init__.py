"""What a task keeps of the graph, whatever a model makes of it: rows by part, replicas, edges and their messages."""
