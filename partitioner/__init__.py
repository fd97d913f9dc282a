"""The streaming graph partitioner: validated events in, an epoch's net change by part out."""

if __name__ != "freshet.partitioner":
    msg = f"{__name__}: import it as freshet.partitioner; by two names each of its classes would exist twice"
    raise ImportError(msg)
