"""Layer algebra: models, their incremental plans, synopses, the full-graph oracle, export from PyTorch Geometric."""

if __name__ != "freshet.gnn":
    msg = f"{__name__}: import it as freshet.gnn; by two names each of its classes would exist twice"
    raise ImportError(msg)
