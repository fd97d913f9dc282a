"""Pages of this process as the kernel has them: /proc/self/pagemap."""

from __future__ import annotations

import mmap
import os

import numpy as np

PRESENT, SWAPPED, OF_FILE = (np.uint64(1 << bit) for bit in (63, 62, 61))
_ENTRY = np.dtype("<u8")  # of a page


def page_entries(address: int, nbytes: int) -> np.ndarray:
    """Return the entries of the pages of a range that begins a page, (pages,) uint64.

    Raises: OSError if the kernel does not provide this.
    """
    entries = np.empty(-(-nbytes // mmap.PAGESIZE), _ENTRY)
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
    try:
        place = address // mmap.PAGESIZE * _ENTRY.itemsize
        got = os.preadv(pagemap, [entries.view(np.uint8).data], place)
    finally:
        os.close(pagemap)
    if got != entries.nbytes:
        msg = f"/proc/self/pagemap: got {got} bytes, expected {entries.nbytes}"
        raise OSError(msg)
    return entries
