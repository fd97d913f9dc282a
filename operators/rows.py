"""Row kernels: gather and store rows of tables at random places, without waiting for one before asking for the next."""

from __future__ import annotations

import numpy as np

from state.kernel import kernel
from state.prefetch import prefetch_row
from state.table import View, touch

_AHEAD = 8


def gather(data: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """The rows `data[slots]`.

    Shapes: data (rows, width) of 4-byte values; slots (n,) int32; result (n, width).
    """
    out = np.empty((len(slots), data.shape[1]), data.dtype)
    _gather(data, slots, out)
    return out


@kernel
def _gather(data: np.ndarray, slots: np.ndarray, out: np.ndarray) -> None:
    n, width = len(slots), data.shape[1]
    for i in range(min(_AHEAD, n)):
        prefetch_row(data, slots[i])
    for i in range(n):
        if i + _AHEAD < n:
            prefetch_row(data, slots[i + _AHEAD])
        row = slots[i]
        for j in range(width):
            out[i, j] = data[row, j]


@kernel
def gather_two(
    first: np.ndarray, second: np.ndarray, slots: np.ndarray, first_out: np.ndarray, second_out: np.ndarray
) -> None:
    """The rows `first[slots]` and `second[slots]`, at once."""
    n = len(slots)
    for i in range(min(_AHEAD, n)):
        prefetch_row(first, slots[i])
        prefetch_row(second, slots[i])
    for i in range(n):
        if i + _AHEAD < n:
            prefetch_row(first, slots[i + _AHEAD])
            prefetch_row(second, slots[i + _AHEAD])
        row = slots[i]
        for j in range(first.shape[1]):
            first_out[i, j] = first[row, j]
        for j in range(second.shape[1]):
            second_out[i, j] = second[row, j]


@kernel
def put(table: View, slots: np.ndarray, rows: np.ndarray, first: int) -> None:
    """Write the columns from `first` on of `rows` to the table's rows `slots`."""
    data, n = table.data, len(slots)
    for i in range(min(_AHEAD, n)):
        prefetch_row(data, slots[i])
    for i in range(n):
        if i + _AHEAD < n:
            prefetch_row(data, slots[i + _AHEAD])
        row = slots[i]
        touch(table, row)
        for j in range(data.shape[1]):
            data[row, j] = rows[i, first + j]


@kernel
def store(table: View, bits: np.ndarray, slots: np.ndarray, rows: np.ndarray, changed: np.ndarray) -> None:
    """Write those rows that differ from the stored ones in any bit, and say which in `changed` (some may be set).

    Shapes: bits is the table's data as int32; slots (n,) int32, distinct; rows (n, width) int32; changed (n,) bool.
    """
    n, width = len(slots), bits.shape[1]
    for i in range(min(_AHEAD, n)):
        prefetch_row(bits, slots[i])
    for i in range(n):
        if i + _AHEAD < n:
            prefetch_row(bits, slots[i + _AHEAD])
        row = slots[i]
        difference = np.int32(0)
        for j in range(width):
            difference |= bits[row, j] ^ rows[i, j]
        if difference != 0:
            touch(table, row)
            for j in range(width):
                bits[row, j] = rows[i, j]
            changed[i] = True
