"""Service folders: which job's embeddings are served, and how another job takes over."""
