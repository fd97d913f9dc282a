"""Arrays in files that are mapped and shared: the page cache holds them, and they are no private memory.

The file's room on the disk is taken before it is mapped, so that a full disk is an error where it grows and not a
signal where it is written to.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from freshet.files.owner_only import FILE


class MappedFile:
    """A file that grows, as an array that can be written to.

    Raises: OSError where the disk is full.
    """

    def __init__(self, path: Path, *, named: bool = True) -> None:
        """Make a new file, or empty one that is there.

        `named=False`: the file loses its name at once, so that nothing is left of it when the process ends.
        """
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, FILE)
        if not named:
            path.unlink()
            weakref.finalize(self, os.close, self._file)
        self._memory: mmap.mmap | None = None
        self.nbytes = 0

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """The file as an array of this shape, which is no smaller than the one before; new rows are zeros.

        Earlier arrays stay valid as long as they are referenced, and share the same memory.
        """
        nbytes = math.prod(shape) * dtype.itemsize
        if not nbytes:
            return np.empty(shape, dtype)
        os.posix_fallocate(self._file, 0, nbytes)
        self._memory, self.nbytes = mmap.mmap(self._file, nbytes, mmap.MAP_SHARED), nbytes
        return np.frombuffer(self._memory, dtype).reshape(shape)

    def let_go(self) -> None:
        """Have the process hold none of the pages; they stay what they are, in the page cache or on the disk."""
        if self._memory is not None:
            self._memory.madvise(mmap.MADV_DONTNEED)

    def finish(self, nbytes: int) -> None:
        """Cut the file to its length and close it; nobody may look at its arrays any more."""
        self._memory = None
        os.ftruncate(self._file, nbytes)
        os.close(self._file)


def mapped(path: Path, dtype: np.dtype[Any] | str, width: int | None = None, *, writable: bool = False) -> np.ndarray:
    """A file's array, (n,) or (n, width).

    `writable`: for kernels that are compiled for such arrays. What is written goes to the file, which is shared, since
    private pages would count as memory before anybody writes to them.
    """
    shape = (-1,) if width is None else (-1, width)
    with path.open("r+b" if writable else "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            empty = np.empty((0, *shape[1:]), dtype)
            empty.flags.writeable = writable
            return empty
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    return np.frombuffer(memory, dtype).reshape(shape)
