"""Where the rows of tables lie: in huge pages, or in files that are mapped privately.

Of a file's pages those that nobody has written to are the page cache's, and the others memory of this process. Address
space is taken far beyond the files, so that a table grows where it is and nothing is copied; room that nobody has asked
for costs nothing and can't be touched.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import weakref
from functools import cache
from typing import Any

import numpy as np

_HUGE_BYTES, _HUGE_SHARE = 4 << 20, 1 << 20
_FIXED, _NO_RESERVE = 0x10, 0x4000  # of mmap(2) on Linux; not in Python's module before 3.13
_NO_ACCESS = 0
_FAILED = ctypes.c_void_p(-1).value


def allocate(shape: tuple[int, ...], dtype: np.dtype[Any], parts: int) -> np.ndarray:
    """Zeros, mapped lazily, in huge pages where they are large: random rows in small ones wait for address look-ups.

    Where a part's share is small, a huge page would hold what several parts have not used yet.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < _HUGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE if nbytes // parts >= _HUGE_SHARE else mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype).reshape(shape)


def lay_out(old: np.ndarray, new: np.ndarray, parts: int, page_rows: int, *, everything: bool) -> None:
    """Copy what the parts hold to their places in a longer array; pages of zeros stay unmapped there.

    `everything`: also those, since the array does not hold zeros.
    """
    values, bits = page_rows * math.prod(old.shape[1:]), f"u{old.dtype.itemsize}"
    old, new = (data.view(bits).reshape(parts, len(data) // parts // page_rows, values) for data in (old, new))
    held = np.bitwise_or.reduce(old, axis=2) != 0
    for part, page in np.argwhere(held | everything).tolist():
        new[part, page] = old[part, page]


def spread(by_page: np.ndarray, parts: int, pages: int) -> np.ndarray:
    """What was noted of each page, for more pages in each part."""
    wider = np.zeros((parts, pages), by_page.dtype)
    old = by_page.reshape(parts, -1)
    wider[:, : old.shape[1]] = old
    return wider.reshape(-1)


class PrivateMap:
    """Address space with files mapped into it, copy on write, and zeros everywhere else.

    A file must neither shrink nor change while it is mapped.
    Units: bytes.
    """

    def __init__(self, room: int) -> None:
        """Take address space.

        Raises: OSError where there is none to be had, or no such call.
        """
        self.room = -(-room // mmap.PAGESIZE) * mmap.PAGESIZE
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        address = _map(None, self.room, _NO_ACCESS, kind, -1)
        self._memory = (ctypes.c_ubyte * self.room).from_address(address)
        # not at the end of the process, when threads may still be at work
        weakref.finalize(self._memory, _library().munmap, ctypes.c_void_p(address), self.room).atexit = False

    def put(self, file: int, nbytes: int, at: int) -> None:
        """Map the first bytes of an open file to a place that begins a page.

        Raises: OSError where the file system can't.
        """
        address = ctypes.addressof(self._memory) + at
        _map(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _NO_RESERVE | _FIXED, file)

    def has_room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Whether an array of this shape has room."""
        return math.prod(shape) * dtype.itemsize <= self.room

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """The beginning of it all, where there is room for that.

        Arrays that were got before are the same memory, and good as long as anybody holds them.
        Raises: OSError where the process may not have so much memory.
        """
        size = math.prod(shape)
        address = ctypes.c_void_p(ctypes.addressof(self._memory))
        if _library().mprotect(address, size * dtype.itemsize, mmap.PROT_READ | mmap.PROT_WRITE):
            raise _error()
        return np.frombuffer(memoryview(self._memory), dtype, size).reshape(shape)


def _map(address: int | None, nbytes: int, access: int, kind: int, file: int) -> int:
    got = _library().mmap(address, nbytes, access, kind, file, 0)
    if got in (None, _FAILED):
        raise _error()
    return int(got)


def _error() -> OSError:
    return OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@cache
def _library() -> ctypes.CDLL:
    """The C library's calls: Python's own `mmap` takes no address."""
    if os.uname().sysname != "Linux":
        msg = "files are mapped privately on Linux alone"
        raise OSError(msg)
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    ints = [ctypes.c_int] * 3
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *ints, ctypes.c_long]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library
