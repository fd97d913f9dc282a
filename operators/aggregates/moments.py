"""Variances kept in place: for each channel the sum of the messages and that of their squares, in float64.

A message is float32, so its square is exact in float64, but has 48 bits of its 53: unlike sums of messages
(aggregates/exact_sums.py), sums of squares are usually rounded. So each sum has a bound of its loss, and the row is
summed again when that is large relative to the *variance*, which may be far smaller than the mean square.

Invariant: the loss changes n times the variance by at most 2^-20 of itself plus 2^-44 of the sum of squares; moving
each message by half an ulp moves it by as much as 2^-24 of the latter.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from freshet.gnn.synopses.of_messages import MomentsSynopsis
from freshet.kernels.kernel import inner, kernel
from freshet.kernels.kernel_calls import Direct
from freshet.kernels.prefetch import prefetch_row, prefetch_wide_row
from freshet.operators.aggregates.accumulator import Accumulator, RowAccumulator, ask_ahead
from freshet.operators.aggregates.aggregate import Aggregate
from freshet.operators.aggregates.exact_sums import add_term_compensated, begin_afresh, clear_sum, compensate, inexact
from freshet.operators.aggregates.fold import MessageFold
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.state.adjacency import base_of, place_of
from freshet.state.table import TableSet, View, touch

_AHEAD = 12
_HALF_ULP = 2.0**-53
_WORN = 2.0**-20  # of n times the variance
_ROUNDING = 2.0**-44  # of the sum of squares
_ROUND_UP = 1.0 + 2.0**-22  # of a bound that is kept as float32


class Moments(NamedTuple):
    """View of a fold of moments for kernels."""

    s: View  # (rows, 2 * width) float64: sums of messages, then of their squares
    lost: View  # (rows, 2 * width) float32: a bound of what each of them has lost
    stamp: np.ndarray  # (rows,) int64: the serial of the last epoch that touched the row
    touched: np.ndarray  # (rows,) int32
    counter: np.ndarray  # (3,) int64: rows touched; rows ever summed afresh, and messages read for that
    fresh: np.ndarray  # (2, 2 * width) float64


@inner
def _add(mom: Moments, row: int, j: int, term: float) -> None:
    before = mom.s.data[row, j]
    after = before + term
    mom.s.data[row, j] = after
    if inexact(before, term, after):
        size = abs(after) if after == after else np.inf
        lost = (np.float64(mom.lost.data[row, j]) + _HALF_ULP * size) * _ROUND_UP
        mom.lost.data[row, j] = np.float32(lost) + np.float32(1e-45)


@inner
def _mark(mom: Moments, row: int, serial: int) -> None:
    """Note that the sums of `row` change in this epoch."""
    if mom.stamp[row] != serial:
        mom.stamp[row] = serial
        mom.touched[mom.counter[0]] = row
        mom.counter[0] += 1
        touch(mom.s, row)
        touch(mom.lost, row)


@kernel
def add_messages(mom: Moments, edges: Edges, messages: Messages, sign: float, serial: int) -> None:
    """Add these messages to the sums of their destinations, or take them back where `sign` is -1."""
    z, width = edges.z.data, edges.z.data.shape[1]
    for i in range(len(messages.src)):
        if i + _AHEAD < len(messages.src):
            prefetch_wide_row(mom.s.data, np.int64(messages.dst[i + _AHEAD]))
            prefetch_row(z, np.int64(messages.src[i + _AHEAD]))
        u, v = messages.src[i], messages.dst[i]
        _mark(mom, v, serial)
        for j in range(width):
            m = np.float64(messages.weight[i] * z[u, j])
            _add(mom, v, j, sign * m)
            _add(mom, v, width + j, sign * (m * m))


@inner
def _is_worn(mom: Moments, row: int, count: float) -> bool:
    """Return whether the loss is large relative to a variance, or the variance is not finite."""
    s, lost, width = mom.s.data, mom.lost.data, mom.s.data.shape[1] // 2
    for j in range(width):
        of_sum, of_squares = np.float64(lost[row, j]), np.float64(lost[row, width + j])
        if of_sum + of_squares == 0:
            continue
        mean, squares = s[row, j] / count, s[row, width + j]
        off = of_squares + (2 * abs(mean) + of_sum / count) * of_sum
        # put like this for infinities and NaN, which are neither
        if not off <= _WORN * (squares - mean * s[row, j]) + _ROUNDING * squares:
            return True
    return False


@inner
def _sum_afresh(mom: Moments, edges: Edges, row: int) -> None:
    """Make the sums of a row from its in-edges in this part."""
    z, pool, fresh, width = edges.z.data, edges.inn.pool.data, mom.fresh, edges.z.data.shape[1]
    base, at = base_of(edges.inn, row), place_of(edges.inn, row)
    end = at + edges.inn.head.data[row, 1]
    begin_afresh(fresh)
    for k in range(at, end):
        if k + _AHEAD < end:
            prefetch_row(z, np.int64(base + pool[k + _AHEAD]))
        weight = edges.inn.weight.data[k] if edges.inn.weighted else np.float32(1)
        for j in range(width):
            m = np.float64(weight * z[base + pool[k], j])
            add_term_compensated(fresh, j, m)
            add_term_compensated(fresh, width + j, m * m)
    compensate(fresh)
    for j in range(2 * width):
        mom.s.data[row, j] = fresh[0, j]
        mom.lost.data[row, j] = np.float32(0)
        if fresh[1, j] != 0 or not abs(fresh[0, j]) < np.inf:  # of a sum that rounds nothing away there is no rest
            mom.lost.data[row, j] = np.float32(_ROUND_UP * 2.0 * _HALF_ULP * abs(fresh[0, j])) + np.float32(1e-45)
    mom.counter[1] += 1
    mom.counter[2] += end - at


@kernel
def settle_moments(mom: Moments, edges: Edges, worn: np.ndarray) -> int:
    """Set sums without messages to 0, and list the touched rows that are worn; returns how many."""
    count = 0
    for i in range(mom.counter[0]):
        row = mom.touched[i]
        many = edges.in_edges.data[row]
        if many == 0:
            clear_sum(mom.s, row)
            for j in range(mom.lost.data.shape[1]):
                mom.lost.data[row, j] = np.float32(0)
        elif _is_worn(mom, row, np.float64(many)):
            worn[count] = row
            count += 1
    return count


@kernel
def remake_moments(mom: Moments, edges: Edges, rows: np.ndarray, serial: int) -> None:
    """Sum these rows again."""
    for i in range(len(rows)):
        _mark(mom, rows[i], serial)
        _sum_afresh(mom, edges, rows[i])


@inner
def _write(out: np.ndarray, i: int, at: int, width: int, mean: float, variance: float) -> None:
    """Write the mean of a channel, in two float32, and its variance, which is never below 0."""
    rounded = np.float32(mean)
    out[i, at] = rounded
    out[i, at + width] = np.float32(mean - np.float64(rounded)) if abs(rounded) < np.inf else np.float32(0)
    out[i, at + 2 * width] = np.float32(0) if variance < 0 else np.float32(variance)


@kernel
def read_moments(s: np.ndarray, counts: np.ndarray, slots: np.ndarray, out: np.ndarray, first: int) -> None:
    """Write [count | mean | rest of the mean | variance] of these rows to `out`, from column `first` on."""
    width = s.shape[1] // 2
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            prefetch_wide_row(s, np.int64(slots[i + _AHEAD]))
        row = slots[i]
        count = np.float64(max(counts[row], 1))
        out[i, first] = np.float32(counts[row])
        for j in range(width):
            mean = s[row, j] / count
            _write(out, i, first + 1 + j, width, mean, s[row, width + j] / count - mean * mean)


@kernel
def merge_partial_moments(
    index: np.ndarray,
    partial: np.ndarray,
    slots: np.ndarray,
    out: np.ndarray,
    shifts: tuple[int, int],
    columns: tuple[int, int],
) -> None:
    """The moments of each slot's partials in these columns, in the order of the parts; 0 where there are none."""
    first, width = columns[0], (columns[1] - columns[0]) // 3
    for i in range(len(slots)):
        base, count = np.int64(slots[i] >> shifts[0]) << shifts[1], np.float64(0)
        for part in range(index.shape[1]):
            if index[slots[i], part] >= 0:
                count += np.float64(partial[base + index[slots[i], part], first])
        out[i, first] = np.float32(count)
        for at in range(first + 1, first + 1 + width):
            mean, spread = np.float64(0), np.float64(0)
            for part in range(index.shape[1]):
                if index[slots[i], part] >= 0:
                    row = base + index[slots[i], part]
                    of_part = np.float64(partial[row, at]) + np.float64(partial[row, at + width])
                    mean += np.float64(partial[row, first]) / count * of_part
            for part in range(index.shape[1]):
                if index[slots[i], part] >= 0:
                    row = base + index[slots[i], part]
                    away = np.float64(partial[row, at]) + np.float64(partial[row, at + width]) - mean
                    share = np.float64(partial[row, first]) / count
                    spread += share * (np.float64(partial[row, at + 2 * width]) + away * away)
            _write(out, i, at, width, mean, spread)


class MomentsFold(MessageFold):
    """The sums and sums of squares of one layer. Shapes: see Moments."""

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: MomentsSynopsis) -> None:
        self.s = tables.add(f"{name}s", "f8", 2 * width)
        self.lost = tables.add(f"{name}lost", "f4", 2 * width)
        super().__init__(self.s, self.lost)
        self.counter = np.zeros(3, np.int64)
        self._fresh = np.empty((2, 2 * width), np.float64)
        self._stamp, self._touched = np.zeros(0, np.int64), np.zeros(0, np.int32)
        self._add, self._settle = Direct(add_messages), Direct(settle_moments)

    def _view(self) -> Moments:
        return Moments(self.s.view, self.lost.view, self._stamp, self._touched, self.counter, self._fresh)

    def begin(self, edges: Edges, moves: Moves, values: np.ndarray) -> None:
        """Begin an epoch."""
        self.counter[0] = 0
        rows = len(edges.in_edges.data)
        if self._stamp.size < rows:
            self._stamp, self._touched = np.zeros(rows, np.int64), np.zeros(rows, np.int32)

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Subtract messages and their squares."""
        self._add(self._view(), edges, messages, np.float64(-1), serial)

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Add messages and their squares."""
        self._add(self._view(), edges, messages, np.float64(1), serial)

    def worn(self, edges: Edges) -> np.ndarray:
        """Return the touched rows that have lost too much; sums without messages are 0 from now on."""
        found = np.empty(self.counter[0], np.int32)
        return found[: self._settle(self._view(), edges, found)]

    def remake(self, edges: Edges, rows: np.ndarray, serial: int) -> None:
        """Sum these rows again."""
        remake_moments(self._view(), edges, rows, serial)

    def finish(self, edges: Edges, serial: int) -> np.ndarray:
        """End the epoch; returns the rows that received a message."""
        return self._touched[: self.counter[0]].copy()

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write moments to `out`."""
        read_moments(self.s.data, edges.in_edges.data, slots, out, first)


@kernel
def merge_moments(s: np.ndarray, z: np.ndarray, messages: Messages) -> None:
    """Add the messages and their squares. Shapes: s (rows, 2 * width) float64; z (values, width) float32."""
    width = s.shape[1] // 2
    for i in range(len(messages.src)):
        ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        for j in range(width):
            m = np.float64(messages.weight[i] * z[u, j])
            s[v, j] += m
            s[v, width + j] += m * m


def _accumulator(synopsis: MomentsSynopsis, width: int, rows: int) -> Accumulator:
    sums = np.zeros((rows, 2 * width), np.float64)
    return RowAccumulator(partial(merge_moments, sums), partial(read_moments, sums))


MOMENTS = Aggregate[MomentsSynopsis](
    store=partial(FoldStore, MomentsFold),
    merger=lambda _: merge_partial_moments,
    accumulator=_accumulator,
    accumulator_bytes=lambda _, width: 16 * width,
    message_fold=MomentsFold,
)
