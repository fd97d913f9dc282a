"""Compiled kernels: how they are declared, compiled, kept and called, and the processor that they are made for."""

if __name__ != "freshet.kernels":
    msg = f"{__name__}: import it as freshet.kernels; by two names each of its classes would exist twice"
    raise ImportError(msg)
