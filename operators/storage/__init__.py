"""The Storage of one layer in one part: features, edges, replicas, synopses, and its iteration head and tail."""
