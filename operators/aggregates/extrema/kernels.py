"""Maxima and minima kept in place: which messages matter, and which channels have to be reread.

A row has, for each channel, the extremum and the number of messages that attain it, its holders. A message that does
not reach the extremum is only compared with it. Removing a holder decrements the number; a message that exceeds the
extremum replaces it. A channel without a holder at the end of an epoch is *exposed*, and reread from the in-edges of
the vertex in this part. Minima are maxima of negated messages, so there is one set of kernels.

Invariant: if a channel has holders, its extremum is that of the row's messages, and holders is at least 1 and at
most the number of messages equal to it (it stops at 65,535). A channel with a NaN among its messages is NaN.
Source: algebra of InkStream, section II-C1, per channel; a count of holders in place of its covered and exposed resets
by vertex, since ties are common after a ReLU.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch, prefetch_row
from freshet.operators.aggregates.extrema import channels, lanes
from freshet.operators.aggregates.extrema.lanes import LANES
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.state.table import View, touch

_AHEAD = 12
_HOLDERS_OF_A_LINE = 32
# What is counted: messages, channels that they held, exposed channels, their rows, in-edges of those, values read.
COMPARED, HELD, EXPOSED, EXPOSED_ROWS, REREAD, VALUES = range(6)


class Extrema(NamedTuple):
    """View of a fold of extrema for kernels."""

    s: View  # (rows, width) float32: sign * the extremum, -inf where there are no messages
    holders: View  # (rows, width) uint16
    stamp: np.ndarray  # (rows,) int64: the serial of the last epoch that touched the row
    altered: np.ndarray  # (rows,) uint8: whether a touched row has other bits than before the epoch
    touched: np.ndarray  # (rows,) int32
    counter: np.ndarray  # (1,) int64: how many rows are touched
    counts: np.ndarray  # (6,) int64
    sign: np.float32  # 1 for maxima, -1 for minima


@inner
def _passes(ext: Extrema, row: int, values: np.ndarray, src: int, factor: float) -> bool:
    """Return whether the message of a row of values is as good as the extremum in any channel, or NaN."""
    s, width, passing = ext.s.data, ext.s.data.shape[1], np.int32(0)
    at, to, whole = np.int64(src) * values.shape[1], np.int64(row) * width, width - width % LANES
    for j in range(0, whole, LANES):
        passing |= np.int32(lanes.passes(values, at + j, factor, s, to + j))
    if whole < width:
        passing |= np.int32(channels.passes(values, at + whole, factor, s, to + whole, width - whole))
    return passing != 0


@inner
def mark(ext: Extrema, row: int, serial: int) -> None:
    """Note that `row` changes in this epoch."""
    if ext.stamp[row] != serial:
        ext.stamp[row] = serial
        ext.altered[row] = 0
        ext.touched[ext.counter[0]] = row
        ext.counter[0] += 1
    touch(ext.s, row)
    touch(ext.holders, row)


@inner
def prefetch_holders(ext: Extrema, row: int) -> None:
    """Ask for a row of counts."""
    width = ext.holders.data.shape[1]
    for column in range(0, width, _HOLDERS_OF_A_LINE):
        prefetch(ext.holders.data, np.int64(row) * width + column)


@inner
def _prefetch(ext: Extrema, edges: Edges, messages: Messages, i: int) -> None:
    if i + _AHEAD < len(messages.src):
        v = np.int64(messages.dst[i + _AHEAD])
        prefetch_row(ext.s.data, v)
        prefetch_holders(ext, v)
        if messages.src[i + _AHEAD] != messages.src[i + _AHEAD - 1]:
            prefetch_row(edges.z.data, np.int64(messages.src[i + _AHEAD]))


@inner
def _count_off(ext: Extrema, row: int, values: np.ndarray, src: int, factor: float) -> None:
    """Count off what a message holds."""
    s, holders, width, held = ext.s.data, ext.holders.data, ext.s.data.shape[1], np.int64(0)
    at, to, whole = np.int64(src) * values.shape[1], np.int64(row) * width, width - width % LANES
    for j in range(0, whole, LANES):
        held += lanes.count_off(values, at + j, factor, s, holders, to + j)
    if whole < width:
        held += channels.count_off(values, at + whole, factor, s, holders, to + whole, width - whole)
    ext.counts[HELD] += held


@inner
def _count_on(ext: Extrema, row: int, values: np.ndarray, src: int, factor: float) -> None:
    """Merge a message."""
    s, holders, width, altered = ext.s.data, ext.holders.data, ext.s.data.shape[1], np.int32(0)
    at, to, whole = np.int64(src) * values.shape[1], np.int64(row) * width, width - width % LANES
    for j in range(0, whole, LANES):
        altered |= np.int32(lanes.count_on(values, at + j, factor, s, holders, to + j))
    if whole < width:
        altered |= np.int32(channels.count_on(values, at + whole, factor, s, holders, to + whole, width - whole))
    ext.altered[row] |= np.uint8(altered)


@kernel
def take_back(ext: Extrema, edges: Edges, messages: Messages, serial: int) -> None:
    """Count off what these messages hold; the table has the values that they were made of."""
    _count(ext, edges, messages, serial, False)


@kernel
def bring(ext: Extrema, edges: Edges, messages: Messages, serial: int) -> None:
    """Merge new messages."""
    _count(ext, edges, messages, serial, True)


@inner
def _count(ext: Extrema, edges: Edges, messages: Messages, serial: int, comes: bool) -> None:
    """Merge messages that come, or count off what those that go hold."""
    z = edges.z.data
    ext.counts[COMPARED] += len(messages.src)
    for i in range(len(messages.src)):
        _prefetch(ext, edges, messages, i)
        u, v, factor = messages.src[i], messages.dst[i], np.float32(ext.sign * messages.weight[i])
        if _passes(ext, v, z, u, factor):
            mark(ext, v, serial)
            if comes:
                _count_on(ext, v, z, u, factor)
            else:
                _count_off(ext, v, z, u, factor)


@inner
def _exchange(ext: Extrema, edges: Edges, kept: Messages, moves: Moves, rows: np.ndarray, serial: int) -> None:
    """Have kept messages, source by source in the order of the moves, be what the new values make of them.

    One message after the other is counted off and merged, so that a row of extrema is read once. An extremum is never
    below a message that is counted, so it makes no difference in which order that is done.
    """
    z, k = edges.z.data, np.int64(0)
    ext.counts[COMPARED] += 2 * len(kept.src)
    for i in range(len(kept.src)):
        _prefetch(ext, edges, kept, i)
        u, v, factor = kept.src[i], kept.dst[i], np.float32(ext.sign * kept.weight[i])
        while moves.slots[k] != u:
            k += 1
        held, comes = _passes(ext, v, z, u, factor), _passes(ext, v, rows, moves.places[k], factor)
        if held or comes:
            mark(ext, v, serial)
        if held:
            _count_off(ext, v, z, u, factor)
        if comes:
            _count_on(ext, v, rows, moves.places[k], factor)


@kernel
def exchange(
    ext: Extrema, edges: Edges, gone: Messages, kept: Messages, moves: Moves, rows: np.ndarray, serial: int
) -> None:
    """Take back messages that are gone, then have kept ones be what the new values make of them: one call for both."""
    _count(ext, edges, gone, serial, False)
    _exchange(ext, edges, kept, moves, rows, serial)


@kernel
def read_extrema(s: np.ndarray, sign: float, count: np.ndarray, slots: np.ndarray, out: np.ndarray, first: int) -> None:
    """Write the extrema of these rows to `out`, from column `first` on; 0 where there are no messages."""
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            prefetch_row(s, np.int64(slots[i + _AHEAD]))
            prefetch(count, np.int64(slots[i + _AHEAD]))
        row = slots[i]
        if count[row] > 0:
            for j in range(s.shape[1]):
                out[i, first + j] = sign * s[row, j] + np.float32(0)
        else:
            for j in range(s.shape[1]):
                out[i, first + j] = np.float32(0)


@kernel
def merge_partial_extrema(
    index: np.ndarray,
    partial: np.ndarray,
    slots: np.ndarray,
    out: np.ndarray,
    shifts: tuple[int, int],
    columns: tuple[int, int],
    sign: float,
) -> None:
    """The extremum of each slot's partials in these columns, 0 where there are none."""
    for i in range(len(slots)):
        base, some = np.int64(slots[i] >> shifts[0]) << shifts[1], False
        for j in range(columns[0], columns[1]):
            out[i, j] = 0
        for part in range(index.shape[1]):
            row = base + index[slots[i], part]
            if index[slots[i], part] < 0:
                continue
            for j in range(columns[0], columns[1]):
                new, best = sign * partial[row, j], sign * out[i, j]
                if not some or new > best or (new != new and best == best):
                    out[i, j] = partial[row, j]
            some = True
