"""The operators of the dataflow: engine-free cores, and the thin Flink shells around them (flink/)."""

if __name__ != "freshet.operators":
    msg = f"{__name__}: import it as freshet.operators; by two names each of its classes would exist twice"
    raise ImportError(msg)
