"""Limits numpy's BLAS to one thread, and returns its name.

OpenBLAS splits a product among its threads, and the split changes the last bits: on a machine with another number of
cores a replay would not give the same bits. The job has one thread per subtask anyway.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_PREFIXES, _SUFFIXES = ("scipy_openblas", "openblas"), ("64_", "")


def use_one_thread() -> bool:
    """Set numpy's OpenBLAS to one thread for this process; False where numpy's wheel brings another BLAS."""
    found = False
    for setter in _functions("set_num_threads"):
        setter(ctypes.c_int(1))
        found = True
    return found


def take_work_memory() -> None:
    """Multiply something, so that OpenBLAS has its work memory: 32 MB that stay untouched until they are needed.

    It keeps them for all later products of a thread at a time. Where a limit (`ulimit -d`) denies them, it asks for
    ever, so it does while there is room.
    """
    one = np.ones((2, 2), np.float32)
    one @ one


def blas_name() -> str:
    """`OpenBLAS VERSION KERNELS`; where numpy has another BLAS, its name and version."""
    for core, config in zip(_functions("get_corename"), _functions("get_config"), strict=True):
        core.restype = config.restype = ctypes.c_char_p
        name, version = config().decode().split()[:2]
        return f"{name} {version} {core().decode()}"
    show_config: Any = np.show_config  # its types know no mode
    blas = show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{blas['name']} {blas['version']}"


def _functions(name: str) -> Iterator[Any]:
    """The function of that name of each OpenBLAS that numpy has brought."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs", package / ".libs"):
        for library in sorted(folder.glob("*openblas*")):
            handle = ctypes.CDLL(str(library))  # the one that numpy has loaded already
            names = (f"{prefix}_{name}{suffix}" for prefix in _PREFIXES for suffix in _SUFFIXES)
            found = next((one for one in names if hasattr(handle, one)), None)
            if found is not None:
                yield getattr(handle, found)
