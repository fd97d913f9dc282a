"""Row kernels: gather and store rows of tables at random places, without waiting for one before asking for the next."""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch, prefetch_row
from freshet.state.table import View, touch

_AHEAD = 8
_LINE = 16  # values in a cache line
_FAR = 16  # for single values, each in a cache line of its own


def gather(data: np.ndarray, slots: np.ndarray, width: int | None = None, first: int = 0) -> np.ndarray:
    """The rows `data[slots]`, or `width` of their columns from `first` on.

    Shapes: data (rows, width) of 4-byte values; slots (n,) int32; result (n, width).
    """
    out = np.empty((len(slots), data.shape[1] if width is None else width), data.dtype)
    _gather(data, slots, first, out)
    return out


@kernel
def _gather(data: np.ndarray, slots: np.ndarray, first: int, out: np.ndarray) -> None:
    n, width = len(slots), out.shape[1]
    for i in range(-_AHEAD, n):
        if i + _AHEAD < n:
            begin = np.int64(slots[i + _AHEAD]) * data.shape[1] + first
            for j in range(0, width, _LINE):
                prefetch(data, begin + j)
        if i >= 0:
            row = slots[i]
            for j in range(width):
                out[i, j] = data[row, first + j]


@kernel
def pick(column: np.ndarray, slots: np.ndarray, out: np.ndarray) -> None:
    """The values `column[slots]`, to `out`."""
    n = len(slots)
    for i in range(n):
        if i + _FAR < n:
            prefetch(column, np.int64(slots[i + _FAR]))
        out[i] = column[slots[i]]


@kernel
def choose(slots: np.ndarray, stamp: np.ndarray, serial: int, flags: np.ndarray, owned: int, out: np.ndarray) -> int:
    """Choose the slots, each once and in order, whose flags are `owned`; returns how many.

    Shapes: slots (n,) int32; stamp (rows,) int64, where `serial` is new; flags (rows,) uint8; out (n,) int32.
    """
    count, n = 0, len(slots)
    for i in range(n):
        if i + _FAR < n:
            prefetch(stamp, np.int64(slots[i + _FAR]))
            prefetch(flags, np.int64(slots[i + _FAR]))
        slot = slots[i]
        if stamp[slot] != serial and flags[slot] == owned:
            stamp[slot] = serial
            out[count] = slot
            count += 1
    return count


@kernel
def find_among(slots: np.ndarray, others: np.ndarray, among: np.ndarray, found: np.ndarray) -> None:
    """Find the slots that are among the others.

    Shapes: slots (n,) and others (m,) int32; among (rows,) bool, all False, now and afterwards; found (n,) bool.
    """
    for i in range(len(others)):
        among[others[i]] = True
    for i in range(len(slots)):
        found[i] = among[slots[i]]
    for i in range(len(others)):
        among[others[i]] = False


@kernel
def deal(slots: np.ndarray, key: np.ndarray, group: np.ndarray, at: np.ndarray) -> None:
    """The group of each slot, which is its key modulo the number of groups, and where each group's rows begin.

    Shapes: slots (n,) int32; key (rows,) int64; group (n,) int16; at (groups,) int64, zeros.
    """
    n, count = len(slots), len(at)
    mask = count - 1 if count & (count - 1) == 0 else 0  # a division takes as long as all else
    for i in range(n):
        if i + _FAR < n:
            prefetch(key, np.int64(slots[i + _FAR]))
        group[i] = key[slots[i]] & mask if mask else key[slots[i]] % count
        at[group[i]] += 1
    end = n
    for k in range(count - 1, -1, -1):
        end -= at[k]
        at[k] = end


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


@inner
def replace_row(table: View, bits: np.ndarray, row: int, rows: np.ndarray, i: int) -> bool:
    """Write row `i` of `rows` to `row` of the table where any bit differs; whether one did."""
    difference = np.int32(0)
    for j in range(bits.shape[1]):
        difference |= bits[row, j] ^ rows[i, j]
    if difference == 0:
        return False
    touch(table, row)
    for j in range(bits.shape[1]):
        bits[row, j] = rows[i, j]
    return True


@kernel
def store(table: View, bits: np.ndarray, slots: np.ndarray, rows: np.ndarray, changed: np.ndarray) -> None:
    """Write those rows that differ from the stored ones in any bit, and say which in `changed` (some may be set).

    Shapes: bits is the table's data as int32; slots (n,) int32, distinct; rows (n, width) int32; changed (n,) bool.
    """
    n = len(slots)
    for i in range(min(_AHEAD, n)):
        prefetch_row(bits, slots[i])
    for i in range(n):
        if i + _AHEAD < n:
            prefetch_row(bits, slots[i + _AHEAD])
        if replace_row(table, bits, slots[i], rows, i):
            changed[i] = True
