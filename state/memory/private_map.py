"""Files that are mapped privately, and memory that takes their place.

Of a file's pages those that nobody has written to are the page cache's, and the others memory of this process. Address
space is taken far beyond the files, so that a table grows where it is and nothing is copied; room that nobody has asked
for costs nothing and can't be touched. It begins a huge page, so that memory in huge pages can be moved into it.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import weakref
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from freshet.state.memory.page_map import OF_FILE, PRESENT, SWAPPED, page_entries

_FIXED, _NO_RESERVE = 0x10, 0x4000  # of mmap(2) on Linux; not in Python's module before 3.13
_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_MAY_MOVE, _TO_FIXED = 1, 2  # of mremap(2)
_NO_ACCESS = 0
_FAILED = ctypes.c_void_p(-1).value
HUGE_PAGE = 2 << 20


class FileSpan(NamedTuple):
    """Address of the mapped first bytes of a file; `inode` shows whether the name still refers to that file."""

    path: Path
    inode: tuple[int, int]
    at: int
    nbytes: int

    @property
    def end(self) -> int:
        """End of the page with the last byte; its bytes after the end of the file are zeros."""
        return self.at + -(-self.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


def inode_of(file: BinaryIO) -> tuple[int, int]:
    """Return an identity that no other file has while this one is open or has a name."""
    stat = os.fstat(file.fileno())
    return stat.st_dev, stat.st_ino


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
        self.spans: list[FileSpan] = []
        taken = _map(None, self.room + HUGE_PAGE, _NO_ACCESS, _ANONYMOUS | _NO_RESERVE, -1)
        address = -(-taken // HUGE_PAGE) * HUGE_PAGE
        _unmap(taken, address - taken)
        _unmap(address + self.room, taken + HUGE_PAGE - address)
        self._memory = (ctypes.c_ubyte * self.room).from_address(address)
        self._end = weakref.finalize(self._memory, _unmap, address, self.room)
        self._end.atexit = False  # threads may still be at work then

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return ctypes.addressof(self._memory)

    def put(self, file: BinaryIO, nbytes: int, at: int) -> None:
        """Map the first bytes of an open file to a place that begins a page.

        Raises: OSError where the file system can't.
        """
        kind = mmap.MAP_PRIVATE | _NO_RESERVE | _FIXED
        _map(self.address + at, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, kind, file.fileno())
        self.spans.append(FileSpan(Path(file.name), inode_of(file), at, nbytes))

    def advise_huge(self) -> None:
        """Ask for huge pages for memory touched from now on, if the kernel has them."""
        if hasattr(mmap, "MADV_HUGEPAGE"):
            _library().madvise(self.address, self.room, mmap.MADV_HUGEPAGE)

    def changed(self, begin: int, end: int) -> np.ndarray:
        """Return the numbers of the pages of this range that are memory of the process, and no longer the file's.

        Raises: OSError if the kernel does not provide this.
        """
        entries = page_entries(self.address + begin, end - begin)
        return np.flatnonzero((entries & (PRESENT | SWAPPED) != 0) & (entries & OF_FILE == 0))

    def take_over(self, copy: PrivateMap, begin: int, end: int) -> None:
        """Have the memory of a copy of this range in its place, with the changes that were made since.

        Nobody may write to the range meanwhile; who reads it sees the same values all the time. The copy begins in its
        map where the range begins in a huge page, and is nobody's any more.

        Raises: OSError where nothing was moved, and all is as it was.
        """
        pages, lead = (-1, mmap.PAGESIZE), begin % HUGE_PAGE
        own = self._bytes(begin, end).reshape(pages)
        copied = copy._bytes(lead, copy.room)
        changed = self.changed(begin, end)
        copied.reshape(pages)[changed] = own[changed]
        size, there, here = end - begin, copy.address + lead, self.address + begin
        if _library().mremap(there, size, size, _MAY_MOVE | _TO_FIXED, here) == here:
            copy._end.detach()
            _unmap(copy.address, lead)
            return
        # As when there are too many mappings: the kernel looks before it unmaps anything, but does not promise to.
        _map(here, size, mmap.PROT_READ | mmap.PROT_WRITE, _ANONYMOUS | _NO_RESERVE | _FIXED, -1)
        own[:] = copied.reshape(pages)

    def _bytes(self, begin: int, end: int) -> np.ndarray:
        return np.frombuffer(memoryview(self._memory), np.uint8, end - begin, begin)

    def has_room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Return whether an array of this shape has room."""
        return math.prod(shape) * dtype.itemsize <= self.room

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """The beginning of it all, where there is room for that.

        Arrays that were got before are the same memory, and good as long as anybody holds them.
        Raises: OSError where the process may not have so much memory.
        """
        size = math.prod(shape)
        if _library().mprotect(self.address, size * dtype.itemsize, mmap.PROT_READ | mmap.PROT_WRITE):
            raise _error()
        return np.frombuffer(memoryview(self._memory), dtype, size).reshape(shape)


def _map(address: int | None, nbytes: int, access: int, kind: int, file: int) -> int:
    got = _library().mmap(address, nbytes, access, kind, file, 0)
    if got in (None, _FAILED):
        raise _error()
    return int(got)


def _unmap(address: int, nbytes: int) -> None:
    if nbytes:
        _library().munmap(address, nbytes)


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
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.mremap.restype = ctypes.c_void_p
    library.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    return library
