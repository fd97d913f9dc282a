"""Sums that detect when they are not exact, in rows of a table.

A row is float64, its terms are float32 (a product of weight and value is rounded first, as in PyTorch Geometric). So a
sum has 29 bits more than a term, and adding or subtracting a term is exact unless values of one channel are more than a
factor of 2^29 apart. Exact sums do not drift, and do not depend on order or on removed terms.

An inexact addition is detected. A row keeps the channels in which that happened, and a bound of their loss. A row whose
bound is large relative to one of these channels is *worn*, and is summed again from its edges.

Invariant: |row - the sum of its terms| <= 2^-20 |row| in every channel, plus 2^-106 n^2 times the sum of the n terms'
magnitudes, the error of a compensated summation (tests/unit/operators/aggregates/test_exact_sums.py checks it).
Source: docs/design/sums.md; Dekker, A floating-point technique for extending the available precision (1971), for the
test of an addition; Neumaier (1974) for the compensated summation.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from freshet.kernels.kernel import apart, inner, kernel
from freshet.kernels.prefetch import prefetch_row, prefetch_wide_row
from freshet.state.adjacency import ListsView, base_of, place_of
from freshet.state.table import View, touch

# Columns of a row's note (four int32), side by side in one cache line: the serial of the last epoch that touched it;
# the in-edges in this part that carry messages; a bound of what it has lost since it was last summed (the bits of a
# float32); the channels that lost something, channel j in bit j % 32. Such a mask of channels is called `lossy` below.
LAST_SERIAL, IN_EDGES, LOST, LOSSY = 0, 1, 2, 3
_AHEAD = 12  # rows between asking for one and using it
_HALF_ULP = 2.0**-53
_WORN = 2.0**-20  # of the value: more than this may not be lost
_ROUND_UP = 1.0 + 2.0**-22  # of a bound that is kept as float32


class NotedSums(Protocol):
    """Sums and their notes as a kernel gets them, perhaps with more beside them."""

    @property
    def s(self) -> View:
        """(rows, width) float64: the sums."""

    @property
    def note(self) -> View:
        """(rows, 4) int32: see LAST_SERIAL."""

    @property
    def touched(self) -> np.ndarray:
        """(rows,) int32: the rows that change in this epoch."""

    @property
    def counter(self) -> np.ndarray:
        """Int64; the first: how many rows are touched."""


def stamp_of(serial: int) -> int:
    """Return the value of LAST_SERIAL for an epoch.

    After 2^31 epochs numbers come again, but 0 is kept for rows that no epoch has touched.
    """
    return 1 + serial % 0x7FFFFFFF


@inner
def mark(sums: NotedSums, row: int, serial: int) -> None:
    """Note that the sum of `row` changes in this epoch."""
    if sums.note.data[row, LAST_SERIAL] != serial:
        touch(sums.note, row)
        sums.note.data[row, LAST_SERIAL] = serial
        sums.touched[sums.counter[0]] = row
        sums.counter[0] += 1
        touch(sums.s, row)


@inner
def inexact(before: float, term: float, after: float) -> np.int64:
    """1 where `after` is not exactly `before` + `term`, else 0; NaN and infinity are never exact.

    Dekker's test subtracts the larger of the two numbers; both are tried.
    """
    return np.int64(after - before != term) | np.int64(after - term != before)


@inner
def add_term(sums: np.ndarray, row: int, j: int, term: float) -> np.int64:
    """Add a term to channel `j` of a row; returns the channel's bit if that was not exact, else 0.

    A `j` that is the sum of others should be unsigned: the compiler can't tell that it is never negative, and Python's
    meaning of such a place in every step leaves no vector instructions. (The same holds in `add_term_compensated`.)
    """
    before = sums[row, j]
    after = before + term
    sums[row, j] = after
    return inexact(before, term, after) << (np.int64(j) & np.int64(31))


@inner
def add_delta(sums: np.ndarray, row: int, terms: np.ndarray, i: int) -> np.int64:
    """Add row `i` of the float64 `terms` to a sum; returns the lossy channels."""
    lossy = np.int64(0)
    for j in range(sums.shape[1]):
        lossy |= add_term(sums, row, j, terms[i, j])
    return lossy


@inner
def add_message(sums: np.ndarray, row: int, values: np.ndarray, i: int, weight: float) -> np.int64:
    """Add weight * row `i` of the float32 `values` to a sum; returns the lossy channels."""
    lossy = np.int64(0)
    for j in range(sums.shape[1]):
        lossy |= add_term(sums, row, j, np.float64(weight * values[i, j]))
    return lossy


@inner
def add_message_change(
    sums: np.ndarray, row: int, old: np.ndarray, i: int, new: np.ndarray, k: int, weight: float
) -> np.int64:
    """Add weight * `new[k]` - weight * `old[i]` to a sum, each product rounded; returns the lossy channels."""
    lossy = np.int64(0)
    for j in range(sums.shape[1]):
        gone, come = np.float64(weight * old[i, j]), np.float64(weight * new[k, j])
        term = come - gone
        lossy |= add_term(sums, row, j, term) | inexact(come, -gone, term) << np.int64(j & 31)
    return lossy


@apart
def note_loss(sums: np.ndarray, note: np.ndarray, row: int, lossy: int, size: float) -> None:
    """Note what an addition may have lost in these channels; `size` is a bound of its term."""
    for j in range(sums.shape[1]):
        if (lossy >> (j & 31)) & 1:
            size = max(size, abs(sums[row, j])) if sums[row, j] == sums[row, j] else np.inf
    lost = note.view(np.float32)
    # twice half an ulp: of the sum, and of a term that is a difference itself
    lost[row, LOST] = np.float32((np.float64(lost[row, LOST]) + 2.0 * _HALF_ULP * size) * _ROUND_UP) + np.float32(1e-45)
    note[row, LOSSY] |= np.int32(np.uint32(lossy & 0xFFFFFFFF))


@inner
def is_worn(sums: np.ndarray, note: np.ndarray, row: int) -> bool:
    """Return whether a channel with losses may be off by more than the invariant allows."""
    if note[row, LOSSY] == 0:
        return False
    lost = np.float64(note.view(np.float32)[row, LOST])
    for j in range(sums.shape[1]):
        # put like this for infinities and NaN, which are neither
        if (note[row, LOSSY] >> np.int32(j & 31)) & 1 and not lost <= _WORN * abs(sums[row, j]):
            return True
    return False


@inner
def add_term_compensated(fresh: np.ndarray, j: int, term: float) -> None:
    """Add a term to `fresh[0, j]`, and what rounding loses to `fresh[1, j]`."""
    before = fresh[0, j]
    after = before + term
    of_term = after - before
    fresh[0, j] = after
    fresh[1, j] += (before - (after - of_term)) + (term - of_term)


@inner
def add_message_compensated(fresh: np.ndarray, values: np.ndarray, i: int, weight: float) -> None:
    """Add weight * row `i` of the float32 `values` to `fresh[0]`, and what rounding loses to `fresh[1]`."""
    for j in range(fresh.shape[1]):
        add_term_compensated(fresh, j, np.float64(weight * values[i, j]))


@inner
def compensate(fresh: np.ndarray) -> np.int64:
    """Add to `fresh[0]` what rounding lost, `fresh[1]`; returns the channels in which that was not exact.

    Infinite sums have nothing to compensate.
    """
    lossy = np.int64(0)
    for j in range(fresh.shape[1]):
        rounded, rest = fresh[0, j], fresh[1, j]
        whole = rounded + rest
        if abs(rounded) < np.inf:
            fresh[0, j] = whole
            lossy |= inexact(rounded, rest, whole) << np.int64(j & 31)
    return lossy


@inner
def begin_afresh(fresh: np.ndarray) -> None:
    """Set a row to be summed again, and the loss of its additions, to 0."""
    for j in range(fresh.shape[1]):
        fresh[0, j] = 0.0
        fresh[1, j] = 0.0


@inner
def sum_in_edges(fresh: np.ndarray, values: np.ndarray, inn: ListsView, row: int) -> np.int64:
    """Sum the messages of a row's in-edges in its part into `fresh[0]`; returns the lossy channels."""
    pool, base, at = inn.pool.data, base_of(inn, row), place_of(inn, row)
    end = at + inn.head.data[row, 1]
    begin_afresh(fresh)
    for k in range(at, end):
        if k + _AHEAD < end:
            prefetch_row(values, np.int64(base + pool[k + _AHEAD]))
        weight = inn.weight.data[k] if inn.weighted else np.float32(1)
        add_message_compensated(fresh, values, base + pool[k], weight)
    return compensate(fresh)


@inner
def forget_loss(note: np.ndarray, row: int) -> None:
    """Record that a row has lost nothing: it is empty, or was summed again."""
    note[row, LOST] = 0
    note[row, LOSSY] = 0


@inner
def replace_sum(sums: np.ndarray, note: np.ndarray, row: int, fresh: np.ndarray, lossy: int) -> None:
    """Replace a row by the sum `fresh[0]`, of which `compensate` returned the lossy channels."""
    for j in range(sums.shape[1]):
        sums[row, j] = fresh[0, j]
    forget_loss(note, row)
    if lossy:
        note_loss(sums, note, row, lossy, 0.0)


@inner
def _row_at(sums: np.ndarray, slots: np.ndarray, i: int) -> Any:
    """Return `slots[i]`, with the rows of the next ones on their way into the caches."""
    for k in range(i + 8 if i else 0, min(i + 9, len(slots))):
        prefetch_wide_row(sums, np.int64(slots[k]))
    return slots[i]


@kernel
def read_sums(sums: np.ndarray, slots: np.ndarray, out: np.ndarray, first: int) -> None:
    """Write the rows `sums[slots]` to `out` as float32, from column `first` on."""
    for i in range(len(slots)):
        row = _row_at(sums, slots, i)
        for j in range(sums.shape[1]):
            out[i, first + j] = np.float32(sums[row, j])


@kernel
def read_means(sums: np.ndarray, note: np.ndarray, slots: np.ndarray, mean: bool, out: np.ndarray, first: int) -> None:
    """Write the rows `sums[slots]`, or with `mean` as many messages as the note counts of them, as `read_sums` does.

    The bits are those that InvertibleSynopsis.read makes of what `read_sums` writes.
    """
    for i in range(len(slots)):
        row = _row_at(sums, slots, i)
        count = note[row, IN_EDGES] if mean else np.int32(1)
        divisor = np.float32(count)
        for j in range(sums.shape[1]):
            out[i, first + j] = np.float32(sums[row, j]) / divisor if count else np.float32(0)


@kernel
def merge_partial_sums(
    index: np.ndarray,
    partial: np.ndarray,
    slots: np.ndarray,
    out: np.ndarray,
    shifts: tuple[int, int],
    columns: tuple[int, int],
) -> None:
    """The sum of each slot's partials in these columns, in the order of the parts: float32 sums depend on it."""
    for i in range(len(slots)):
        base = np.int64(slots[i] >> shifts[0]) << shifts[1]
        for j in range(columns[0], columns[1]):
            out[i, j] = 0
        for part in range(index.shape[1]):
            row = index[slots[i], part]
            if row >= 0:
                for j in range(columns[0], columns[1]):
                    out[i, j] += partial[base + row, j]


@inner
def clear_sum(sums: View, row: int) -> None:
    """Set a row without terms to exactly 0."""
    touch(sums, row)
    for j in range(sums.data.shape[1]):
        sums.data[row, j] = 0.0
