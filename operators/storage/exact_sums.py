"""Rows of sums that know when they are not exact.

A row is float64, its terms are float32 (a product of weight and value is rounded first, as PyTorch Geometric does it).
So a sum has 29 bits more than a term, and adding a term or taking it back is exact unless values of one channel differ
by more than that: nothing drifts, no order matters, and what came and went leaves nothing behind. An addition that is
not exact is noticed, channel by channel, and a bound of all that such additions have lost is kept with the row; a row
whose bound has become large beside one of those channels is worn, and summed afresh from its edges.

Invariant: |row - the sum of its terms| <= 2^-20 |row| in every channel, beside 2^-106 n^2 times the sum of the n terms'
magnitudes, which a fresh, compensated summation may be off (tests/unit/operators/storage/test_exact_sums.py).
Source: Dekker, A floating-point technique for extending the available precision (1971), for the test of an addition;
Neumaier (1974) for the compensated summation.
"""

from __future__ import annotations

import numpy as np

from gnn.kernel import kernel
from state.prefetch import prefetch
from state.table import View, touch

# Columns of the notes of a row, side by side in one cache line: the last epoch that touched it; in-edges in this part
# that carry messages; a bound of what its additions have lost since it was last summed (bits of a float32); which of
# its channels lost something, channel j in bit j % 32.
STAMP, LOCAL, LOST, CHANNELS = 0, 1, 2, 3
_HALF_ULP = 2.0**-53
_WORN = 2.0**-20
_ROUND_UP = 1.0 + 2.0**-22  # of a bound that is kept as float32


@kernel
def prefetch_sums(sums: np.ndarray, row: int) -> None:
    """Ask for a row of float64 ahead of its use."""
    width = sums.shape[1]
    for column in range(0, width, 8):
        prefetch(sums, np.int64(row) * width + column)


@kernel
def inexact(before: float, term: float, after: float) -> np.int64:
    """Whether `after` is not exactly `before` plus `term`; NaN and infinity never are.

    One of the two tests is Dekker's, whichever number is the larger.
    """
    return np.int64(after - before != term) | np.int64(after - term != before)


@kernel
def _add(sums: np.ndarray, row: int, j: int, term: float) -> np.int64:
    """Add a term to channel `j` of a row; returns the channel's bit where that was not exact."""
    before = sums[row, j]
    after = before + term
    sums[row, j] = after
    return inexact(before, term, after) << np.int64(j & 31)


@kernel
def add_differences(sums: np.ndarray, row: int, terms: np.ndarray, i: int) -> np.int64:
    """Add row `i` of the float64 `terms`; returns the channels in which that was not exact, as CHANNELS has them."""
    lossy = np.int64(0)
    for j in range(sums.shape[1]):
        lossy |= _add(sums, row, j, terms[i, j])
    return lossy


@kernel
def add_values(sums: np.ndarray, row: int, values: np.ndarray, i: int, weight: float) -> np.int64:
    """Add weight * row `i` of the float32 `values`, as `add_differences`."""
    lossy = np.int64(0)
    for j in range(sums.shape[1]):
        lossy |= _add(sums, row, j, np.float64(weight * values[i, j]))
    return lossy


@kernel
def add_changes(
    sums: np.ndarray, row: int, old: np.ndarray, i: int, new: np.ndarray, k: int, weight: float
) -> np.int64:
    """Add what the message of a changed source grows by: weight * `new[k]` less weight * `old[i]`."""
    lossy = np.int64(0)
    for j in range(sums.shape[1]):
        gone, come = np.float64(weight * old[i, j]), np.float64(weight * new[k, j])
        term = come - gone
        lossy |= _add(sums, row, j, term) | inexact(come, -gone, term) << np.int64(j & 31)
    return lossy


@kernel
def lose(sums: np.ndarray, note: np.ndarray, row: int, lossy: int, size: float) -> None:
    """Keep account of an addition that was not exact, of a term no larger than `size`."""
    for j in range(sums.shape[1]):
        if (lossy >> (j & 31)) & 1:
            size = max(size, abs(sums[row, j])) if sums[row, j] == sums[row, j] else np.inf
    lost = note.view(np.float32)
    # twice half an ulp: of the sum, and of a term that is a difference itself
    lost[row, LOST] = np.float32((np.float64(lost[row, LOST]) + 2.0 * _HALF_ULP * size) * _ROUND_UP) + np.float32(1e-45)
    note[row, CHANNELS] |= np.int32(np.uint32(lossy & 0xFFFFFFFF))


@kernel
def is_worn(sums: np.ndarray, note: np.ndarray, row: int) -> bool:
    """Whether one of the channels that lost something may be off by more than the invariant allows."""
    if note[row, CHANNELS] == 0:
        return False
    lost = np.float64(note.view(np.float32)[row, LOST])
    for j in range(sums.shape[1]):
        # put like this for infinities and NaN, which are neither
        if (note[row, CHANNELS] >> np.int32(j & 31)) & 1 and not lost <= _WORN * abs(sums[row, j]):
            return True
    return False


@kernel
def add_compensated(fresh: np.ndarray, values: np.ndarray, i: int, weight: float) -> None:
    """Add weight * row `i` of the float32 `values` to `fresh[0]`, and what that rounds away to `fresh[1]`."""
    for j in range(fresh.shape[1]):
        before, term = fresh[0, j], np.float64(weight * values[i, j])
        after = before + term
        of_term = after - before
        fresh[0, j] = after
        fresh[1, j] += (before - (after - of_term)) + (term - of_term)


@kernel
def compensate(fresh: np.ndarray) -> np.int64:
    """Put into `fresh[0]` what its additions rounded away; returns the channels where a part of it found no room.

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


@kernel
def begin_again(note: np.ndarray, row: int) -> None:
    """The row holds nothing, or a fresh sum: it has lost nothing."""
    note[row, LOST] = 0
    note[row, CHANNELS] = 0


@kernel
def renew(sums: np.ndarray, note: np.ndarray, row: int, fresh: np.ndarray, lossy: int) -> None:
    """Put a fresh sum, of which `compensate` told the lossy channels, in the place of a row."""
    for j in range(sums.shape[1]):
        sums[row, j] = fresh[0, j]
    begin_again(note, row)
    if lossy:
        lose(sums, note, row, lossy, 0.0)


@kernel
def read_sums(sums: np.ndarray, slots: np.ndarray, out: np.ndarray) -> None:
    """The rows `sums[slots]` as float32."""
    n = len(slots)
    for i in range(min(8, n)):
        prefetch_sums(sums, np.int64(slots[i]))
    for i in range(n):
        if i + 8 < n:
            prefetch_sums(sums, np.int64(slots[i + 8]))
        row = slots[i]
        for j in range(sums.shape[1]):
            out[i, j] = np.float32(sums[row, j])


@kernel
def clear_sums(sums: View, row: int) -> None:
    """A row without terms is exactly 0."""
    touch(sums, row)
    for j in range(sums.data.shape[1]):
        sums.data[row, j] = 0.0
