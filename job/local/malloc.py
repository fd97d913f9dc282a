"""Keeps freed memory in the process: fresh pages cost more than copying into old ones."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8


def keep_freed_memory() -> bool:
    """Tell malloc to serve large blocks from its heap and to give nothing back; False where there is no such malloc.

    The Flink runtime does the same through the environment of its Java process (job/machine/java.py).
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    # one arena: a block that one thread frees serves the next one that another thread asks for
    settings = {_M_ARENA_MAX: 1, _M_MMAP_THRESHOLD: 1 << 30, _M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 64 << 20}
    return all(mallopt(name, value) for name, value in settings.items())
