"""numpy's BLAS held to one thread.

OpenBLAS cuts a product by the number of its threads, and the cut changes bits: a restore on a machine with other cores
would not be a replay. The job has a thread per subtask anyway.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def use_one_thread() -> bool:
    """Set numpy's OpenBLAS to one thread for this process; False where numpy's wheel brings another BLAS."""
    package = Path(np.__file__).parent
    found = False
    for folder in (package.parent / "numpy.libs", package / ".dylibs", package / ".libs"):
        for library in sorted(folder.glob("*openblas*")):
            handle = ctypes.CDLL(str(library))  # the one that numpy has loaded already
            name = next((name for name in _SETTERS if hasattr(handle, name)), None)
            if name is not None:
                getattr(handle, name)(ctypes.c_int(1))
                found = True
    return found
