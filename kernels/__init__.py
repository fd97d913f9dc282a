"""Compiled kernels: how they are declared, compiled, kept and called, and the processor that they are made for."""
