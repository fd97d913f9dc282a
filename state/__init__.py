"""Keyed graph state: tables with dirty pages, adjacency lists, the sweeps that make them durable, and the backends."""

if __name__ != "freshet.state":
    msg = f"{__name__}: import it as freshet.state; by two names each of its classes would exist twice"
    raise ImportError(msg)
