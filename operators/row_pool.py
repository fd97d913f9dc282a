"""Memory for rows that are made epoch by epoch and written many epochs at a time: without gaps, nothing is copied."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

BLOCK_BYTES = 64 << 20


class RowPool:
    """Rows one behind the other.

    Invariant: no row is given twice; a block lives as long as somebody holds rows of it.
    """

    def __init__(self, width: int, block_bytes: int = BLOCK_BYTES) -> None:
        self._width, self._block_rows = width, max(1, block_bytes // (4 * max(width, 1)))
        self._block = np.empty((0, width), np.float32)
        self._used = 0

    def free(self, rows: int) -> np.ndarray:
        """Rows to write to: (rows, width) float32. Those that `keep` does not take are given again."""
        if len(self._block) - self._used < rows:
            self._block, self._used = np.empty((max(rows, self._block_rows), self._width), np.float32), 0
        return self._block[self._used : self._used + rows]

    def keep(self, rows: int) -> np.ndarray:
        """The first of the rows given last, for good."""
        first, self._used = self._used, self._used + rows
        return self._block[first : self._used]


def joined(arrays: Iterable[np.ndarray]) -> list[np.ndarray]:
    """The arrays in their order, neighbours in one block of memory as one array.

    Shapes: (n, width) of one dtype, C-contiguous
    """
    found: list[tuple[np.ndarray, int, int]] = []  # array that owns the memory, first row, row after the last
    for array in arrays:
        owner, first = _place(array)
        if found and found[-1][0] is owner and found[-1][2] == first:
            owner, first, _ = found.pop()
        found.append((owner, first, _place(array)[1] + len(array)))
    return [owner[first:end] for owner, first, end in found]


def _place(array: np.ndarray) -> tuple[np.ndarray, int]:
    """The block of rows of this width that the array is a piece of, and the row that it begins at."""
    block = array.base
    if not isinstance(block, np.ndarray) or block.dtype != array.dtype or block.shape[1:] != array.shape[1:]:
        return array, 0
    if not (block.flags.c_contiguous and array.flags.c_contiguous and array.size):
        return array, 0
    return block, (array.ctypes.data - block.ctypes.data) // array.strides[0]
