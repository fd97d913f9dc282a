"""Keeping freed memory in malloc: a job reuses it, since fresh pages cost more than copying into old ones.

A process with a memory budget gives it back, and takes none that it never uses.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import MutableMapping

_LITTLE = {
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "POLARS_MAX_THREADS": "1",
    "_RJEM_MALLOC_CONF": "narenas:1,background_thread:false",
}
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8


def keep_freed_memory() -> bool:
    """Tell malloc to serve large blocks from its heap and to give nothing back; False where there is no such malloc.

    The Flink runtime does the same through the environment of its Java process (job/machine/java.py).
    """
    # one arena: a block that one thread frees serves the next one that another thread asks for
    return _set({_M_ARENA_MAX: 1, _M_MMAP_THRESHOLD: 1 << 30, _M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 64 << 20})


def give_freed_memory_back() -> bool:
    """Make malloc map large blocks one by one, so that they leave the process; False if there is no such malloc.

    By default it raises their minimum size with each freed block, up to 32 MiB, and keeps smaller ones.
    """
    return _set({_M_ARENA_MAX: 1, _M_MMAP_THRESHOLD: 256 << 10, _M_TRIM_THRESHOLD: 1 << 20, _M_TOP_PAD: 0})


def reserve_little(environ: MutableMapping[str, str] | None = None) -> None:
    """Have libraries map no memory ahead that `ulimit -d` would count; call it before anything loads numpy or Arrow.

    OpenBLAS maps 32 MiB for each of its threads, of which one is used anyway (kernels/blas.py); Arrow's own allocator
    keeps what it freed, as does that of Polars, which has room for each of its threads. What the environment says
    holds.
    """
    environ = os.environ if environ is None else environ
    for name, value in _LITTLE.items():
        environ.setdefault(name, value)


def _set(settings: dict[int, int]) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    return all(mallopt(name, value) for name, value in settings.items())
