"""Memory of tables that are not mapped from files: in huge pages, and their parts side by side."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np

_HUGE_BYTES, _HUGE_SHARE = 4 << 20, 1 << 20


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


def release(rows: np.ndarray) -> None:
    """Have the process hold no memory of rows that nobody reads any more, where they have pages of their own."""
    base = rows
    while isinstance(base.base, np.ndarray):
        base = base.base
    if not isinstance(base.base, memoryview) or not isinstance(base.base.obj, mmap.mmap):
        return
    whole = base.base.obj
    begin = rows.ctypes.data - np.frombuffer(whole, np.uint8).ctypes.data
    first, end = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE, (begin + rows.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < end:
        whole.madvise(mmap.MADV_DONTNEED, first, end - first)


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
    """Return the notes of each page, rearranged for more pages in each part."""
    wider = np.zeros((parts, pages), by_page.dtype)
    old = by_page.reshape(parts, -1)
    wider[:, : old.shape[1]] = old
    return wider.reshape(-1)
