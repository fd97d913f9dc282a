"""Maxima and minima that are kept in place: which messages matter, and which channels have to be read anew.

A row has, by channel, the extremum and how many messages hold it. A message that does not pass the extremum is only
compared with it. One that goes and holds it is counted off; one that comes and passes it takes its place. A channel
that nobody holds at the end of an epoch is *exposed*, and read anew from the in-edges of the vertex in this part.
Minima are maxima of negated messages, so there is one set of kernels.

Invariant: where a channel has holders, its extremum is that of the row's messages, and holders is at least 1 and at
most the number of messages that are equal to it (it stops at 65,535). A channel with a NaN among its messages is NaN.
Source: algebra of InkStream, section II-C1, per channel; a count of holders in place of its covered and exposed resets
by vertex, since ties are the rule after a ReLU.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnn.kernel import inner, kernel
from gnn.synopses import MonotonicSynopsis
from operators.storage.aggregates.extrema_remaking import Remaking, finish_extrema, list_exposed, remake_extrema
from operators.storage.edge_messages import Edges, Messages, Moves
from state.adjacency import base_of, place_of
from state.prefetch import prefetch, prefetch_row
from state.table import Table, TableSet, View, touch

_AHEAD = 12
_MOST_HOLDERS = 65535
_FEW = 12  # channels that are read by themselves
_NOTHING = np.float32(-np.inf)
COMPARED, HELD, EXPOSED, EXPOSED_ROWS, REREAD = range(5)  # what is counted: messages, channels, rows, messages read


class Extrema(NamedTuple):
    """What the kernels get of a fold of extrema."""

    s: View  # (rows, width) float32: sign * the extremum, -inf where there are no messages
    holders: View  # (rows, width) uint16
    stamp: np.ndarray  # (rows,) int64: the serial of the last epoch that touched the row
    altered: np.ndarray  # (rows,) uint8: whether a touched row has other bits than before the epoch
    touched: np.ndarray  # (rows,) int32
    counter: np.ndarray  # (1,) int64: how many rows are touched
    columns: np.ndarray  # (width,) int32: memory for the exposed channels of a row
    fresh: np.ndarray  # (width,) float32: extrema that are read anew
    found: np.ndarray  # (width,) int32: and how many hold those
    counts: np.ndarray  # (5,) int64
    sign: np.float32  # 1 for maxima, -1 for minima


@inner
def _passes(s: np.ndarray, row: int, z: np.ndarray, src: int, factor: float) -> bool:
    """Whether a message is as good as the extremum in any channel, or NaN."""
    passing = np.int32(0)
    for j in range(s.shape[1]):
        passing |= np.int32(not (factor * z[src, j] + np.float32(0) < s[row, j]))
    return passing != 0


@inner
def _mark(ext: Extrema, row: int, serial: int) -> None:
    if ext.stamp[row] != serial:
        ext.stamp[row] = serial
        ext.altered[row] = 0
        ext.touched[ext.counter[0]] = row
        ext.counter[0] += 1
    touch(ext.s, row)
    touch(ext.holders, row)


@inner
def _prefetch(ext: Extrema, edges: Edges, messages: Messages, i: int) -> None:
    if i + _AHEAD < len(messages.src):
        prefetch_row(ext.s.data, np.int64(messages.dst[i + _AHEAD]))
        prefetch_row(edges.z.data, np.int64(messages.src[i + _AHEAD]))


@kernel
def take_back(ext: Extrema, edges: Edges, messages: Messages, serial: int) -> None:
    """Count off what these messages hold; the table has the values that they were made of."""
    s, z, holders = ext.s.data, edges.z.data, ext.holders.data
    ext.counts[COMPARED] += len(messages.src)
    for i in range(len(messages.src)):
        _prefetch(ext, edges, messages, i)
        u, v, factor = messages.src[i], messages.dst[i], ext.sign * messages.weight[i]
        if not _passes(s, v, z, u, factor):
            continue
        _mark(ext, v, serial)
        for j in range(s.shape[1]):
            m = factor * z[u, j] + np.float32(0)
            if m == s[v, j]:
                if holders[v, j] > 0:
                    holders[v, j] -= 1
                ext.counts[HELD] += 1
            elif m != m:
                holders[v, j] = 0


@kernel
def bring(ext: Extrema, edges: Edges, messages: Messages, serial: int) -> None:
    """Merge new messages."""
    s, z, holders = ext.s.data, edges.z.data, ext.holders.data
    ext.counts[COMPARED] += len(messages.src)
    for i in range(len(messages.src)):
        _prefetch(ext, edges, messages, i)
        u, v, factor = messages.src[i], messages.dst[i], ext.sign * messages.weight[i]
        if not _passes(s, v, z, u, factor):
            continue
        _mark(ext, v, serial)
        for j in range(s.shape[1]):
            m = factor * z[u, j] + np.float32(0)
            if m > s[v, j]:
                s[v, j], holders[v, j] = m, 1
                ext.altered[v] = 1
            elif m == s[v, j]:
                if m == _NOTHING:  # it may be the first message
                    ext.altered[v] = 1
                if holders[v, j] < _MOST_HOLDERS:
                    holders[v, j] += 1
            elif m != m:
                s[v, j], holders[v, j] = m, 0
                ext.altered[v] = 1


@inner
def _read_some(ext: Extrema, edges: Edges, row: int, exposed: int) -> None:
    """Find the extrema of a few channels, and ask for their cache lines alone: a hub loses one channel at a time."""
    z, fresh, found, pool = edges.z.data, ext.fresh, ext.found, edges.inn.pool.data
    base, at = base_of(edges.inn, row), place_of(edges.inn, row)
    end = at + edges.inn.head.data[row, 1]
    for k in range(at, end):
        if k + _AHEAD < end:
            ahead = np.int64(base + pool[k + _AHEAD]) * z.shape[1]
            for c in range(exposed):
                prefetch(z, ahead + ext.columns[c])
        factor = ext.sign * (edges.inn.weight.data[k] if edges.inn.weighted else np.float32(1))
        for c in range(exposed):
            j = ext.columns[c]
            m = factor * z[base + pool[k], j] + np.float32(0)
            if m > fresh[j] or (m != m and fresh[j] == fresh[j]):
                fresh[j], found[j] = m, 1
            elif m == fresh[j]:
                found[j] += 1


@inner
def _read_all(ext: Extrema, edges: Edges, row: int) -> None:
    """Find the extrema of all channels, side by side."""
    z, fresh, found, pool = edges.z.data, ext.fresh, ext.found, edges.inn.pool.data
    base, at = base_of(edges.inn, row), place_of(edges.inn, row)
    end = at + edges.inn.head.data[row, 1]
    for k in range(at, end):
        if k + _AHEAD < end:
            prefetch_row(z, np.int64(base + pool[k + _AHEAD]))
        factor = ext.sign * (edges.inn.weight.data[k] if edges.inn.weighted else np.float32(1))
        u = base + pool[k]
        for j in range(z.shape[1]):
            m, best, many = factor * z[u, j] + np.float32(0), fresh[j], found[j]
            better = (m > best) | ((m != m) & (best == best))
            fresh[j] = m if better else best
            found[j] = np.int32(1) if better else many + np.int32(m == best)


@inner
def _read_anew(ext: Extrema, edges: Edges, row: int, exposed: int) -> None:
    """Make the first `exposed` of `ext.columns` of a row from its in-edges in this part."""
    s, fresh = ext.s.data, ext.fresh
    for j in range(s.shape[1]):
        fresh[j], ext.found[j] = _NOTHING, np.int32(0)
    if exposed <= _FEW:
        _read_some(ext, edges, row, exposed)
    else:
        _read_all(ext, edges, row)
    ext.counts[EXPOSED] += exposed
    ext.counts[EXPOSED_ROWS] += 1
    ext.counts[REREAD] += edges.inn.head.data[row, 1]
    for c in range(exposed):
        j = ext.columns[c]
        if not (fresh[j] == s[row, j] or (fresh[j] != fresh[j] and s[row, j] != s[row, j])):
            ext.altered[row] = 1
        s[row, j], ext.holders.data[row, j] = fresh[j], min(ext.found[j], _MOST_HOLDERS)


@kernel
def settle(ext: Extrema, edges: Edges) -> int:
    """Read exposed channels anew; the altered rows are the first of `touched` then. Returns how many."""
    s, holders, count = ext.s.data, ext.holders.data, 0
    for i in range(ext.counter[0]):
        row = ext.touched[i]
        if edges.in_edges.data[row] == 0:
            for j in range(s.shape[1]):
                s[row, j], holders[row, j] = _NOTHING, 0
            ext.altered[row] = 1
        else:
            exposed = 0
            for j in range(s.shape[1]):
                if holders[row, j] == 0:
                    ext.columns[exposed] = j
                    exposed += 1
            if exposed > 0:
                _read_anew(ext, edges, row, exposed)
        if ext.altered[row]:
            ext.touched[count] = row
            count += 1
    return count


@kernel
def read_extrema(s: np.ndarray, sign: float, count: np.ndarray, slots: np.ndarray, out: np.ndarray, first: int) -> None:
    """Write the extrema of these rows to `out`, from column `first` on; 0 where there are no messages."""
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            prefetch_row(s, np.int64(slots[i + _AHEAD]))
        row = slots[i]
        for j in range(s.shape[1]):
            out[i, first + j] = sign * s[row, j] + np.float32(0) if count[row] > 0 else np.float32(0)


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


def sign_of(synopsis: MonotonicSynopsis) -> np.float32:
    """What messages are multiplied by, so that the extremum is a maximum."""
    return np.float32(1 if synopsis.kind == "max" else -1)


class ExtremaFold:
    """The extrema of one layer. Shapes: s (rows, width) float32; holders (rows, width) uint16."""

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: MonotonicSynopsis) -> None:
        self.s = tables.add(f"{name}s", "f4", width, fill=float("-inf"))
        self.holders = tables.add(f"{name}holders", "u2", width)
        self.counts = np.zeros(5, np.int64)
        self._sign = sign_of(synopsis)
        self._counter = np.zeros(1, np.int64)
        self._memory = np.empty(width, np.int32), np.empty(width, np.float32), np.empty(width, np.int32)
        self._fresh = np.empty(width, np.float32), np.empty(width, np.int32)
        self._stamp = np.zeros(0, np.int64)
        self._altered, self._touched = np.zeros(0, np.uint8), np.zeros(0, np.int32)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its tables, with a row per slot."""
        return self.s, self.holders

    def _view(self) -> Extrema:
        by_row = self._stamp, self._altered, self._touched
        return Extrema(self.s.view, self.holders.view, *by_row, self._counter, *self._memory, self.counts, self._sign)

    def begin(self, edges: Edges, moves: Moves, values: np.ndarray) -> None:
        """Begin an epoch."""
        self._counter[0] = 0
        rows = len(edges.z.data)
        if self._stamp.size < rows:
            self._stamp, self._altered = np.zeros(rows, np.int64), np.zeros(rows, np.uint8)
            self._touched = np.zeros(rows, np.int32)

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Count off what these messages hold."""
        take_back(self._view(), edges, messages, serial)

    def retarget(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Extrema read nothing of their targets."""

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Merge new messages."""
        bring(self._view(), edges, messages, serial)

    def settle(self, edges: Edges, serial: int) -> np.ndarray:
        """Read exposed channels anew; the rows that have other bits than before."""
        return self._touched[: settle(self._view(), edges)].copy()

    def worn(self, edges: Edges) -> np.ndarray:
        """The touched rows with exposed channels."""
        found = np.empty(self._counter[0], np.int32)
        return found[: list_exposed(self._remaking(), edges, found)]

    def remake(self, edges: Edges, rows: np.ndarray, serial: int) -> None:
        """Make these rows anew from all their messages."""
        remake_extrema(self._remaking(), edges, rows, serial)

    def finish(self, edges: Edges, serial: int) -> np.ndarray:
        """End the epoch without reading; the rows that have other bits than before."""
        return self._touched[: finish_extrema(self._remaking(), edges)].copy()

    def _remaking(self) -> Remaking:
        by_row = self._stamp, self._altered, self._touched
        return Remaking(self.s.view, self.holders.view, *by_row, self._counter, self._sign, *self._fresh)

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write extrema to `out`, 0 where there are no messages."""
        read_extrema(self.s.data, self._sign, edges.in_edges.data, slots, out, first)
