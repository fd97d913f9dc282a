"""The jobs and their commands: dataflow graphs, the two runtimes, configuration, command line."""

if __name__ != "freshet.job":
    msg = f"{__name__}: import it as freshet.job; by two names each of its classes would exist twice"
    raise ImportError(msg)
