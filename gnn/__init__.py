"""Layer algebra: models, their incremental plans, synopses, the full-graph oracle, export from PyTorch Geometric."""
