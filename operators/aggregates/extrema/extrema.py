"""Maxima and minima (MonotonicSynopsis); the kernels: kernels.py.

Where a network makes the messages (operators/aggregates/edge_networks.py), reading an exposed channel means making
them, so a row has all of its channels read at once: other code finds these rows, and has them made once more.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.synopses.of_messages import MonotonicSynopsis
from freshet.kernels.kernel import inner, kernel
from freshet.kernels.kernel_calls import Direct
from freshet.operators.aggregates.accumulator import Accumulator, RowAccumulator, ask_ahead
from freshet.operators.aggregates.aggregate import Aggregate, MergePartials
from freshet.operators.aggregates.extrema import kernels
from freshet.operators.aggregates.extrema.channels import MOST_HOLDERS, NOTHING
from freshet.operators.aggregates.extrema.kernels import Extrema, mark, merge_partial_extrema, read_extrema
from freshet.operators.aggregates.extrema.rereading import plan_for, settle
from freshet.operators.aggregates.fold import MessageFold
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.state.adjacency import base_of, place_of
from freshet.state.table import TableSet


@kernel
def list_exposed(ext: Extrema, edges: Edges, found: np.ndarray) -> int:
    """List the touched rows with a channel that nobody holds; returns how many."""
    count = 0
    for i in range(ext.counter[0]):
        row, exposed = ext.touched[i], False
        for j in range(ext.s.data.shape[1]):
            exposed |= ext.holders.data[row, j] == 0
        if exposed and edges.in_edges.data[row] > 0:
            found[count] = row
            count += 1
    return count


@inner
def _find(ext: Extrema, edges: Edges, row: int, best: np.ndarray, found: np.ndarray) -> None:
    """Find the extrema of the messages of a row, which carry no weights, and how many hold them.

    Messages stand one behind the other, so all channels of one are read, and not cell by cell as in kernels.py.
    """
    z, pool = edges.z.data, edges.inn.pool.data
    base, at = base_of(edges.inn, row), place_of(edges.inn, row)
    for j in range(z.shape[1]):
        best[j], found[j] = NOTHING, 0
    for k in range(at, at + edges.inn.head.data[row, 1]):
        u = base + pool[k]
        for j in range(z.shape[1]):
            m, most, many = ext.sign * z[u, j] + np.float32(0), best[j], found[j]
            better = (m > most) | ((m != m) & (most == most))
            best[j] = m if better else most
            found[j] = np.int32(1) if better else many + np.int32(m == most)


@inner
def _put_extremum(ext: Extrema, row: int, j: int, new: float, many: int) -> None:
    """Set a channel's extremum, and its number of holders; the row is altered if the extremum is another."""
    old = ext.s.data[row, j]
    if not (new == old or (new != new and old != old)):
        ext.altered[row] = 1
    ext.s.data[row, j], ext.holders.data[row, j] = new, min(many, MOST_HOLDERS)


@kernel
def remake_extrema(
    ext: Extrema, edges: Edges, rows: np.ndarray, serial: int, best: np.ndarray, found: np.ndarray
) -> None:
    """Make these rows from the messages of their in-edges; those of the same bits as before are not altered by it.

    Shapes: best and found, memory for a row, (width or more,) float32 and int32.
    """
    for i in range(len(rows)):
        mark(ext, rows[i], serial)
        _find(ext, edges, rows[i], best, found)
        for j in range(ext.s.data.shape[1]):
            _put_extremum(ext, rows[i], np.int64(j), best[j], found[j])


@kernel
def finish_extrema(ext: Extrema, edges: Edges) -> int:
    """Empty the touched rows without messages; the altered rows are the first of `touched` then. Returns how many."""
    count = 0
    for i in range(ext.counter[0]):
        row = ext.touched[i]
        if edges.in_edges.data[row] == 0:
            for j in range(ext.s.data.shape[1]):
                ext.s.data[row, j], ext.holders.data[row, j] = NOTHING, 0
            ext.altered[row] = 1
        if ext.altered[row]:
            ext.touched[count] = row
            count += 1
    return count


def sign_of(synopsis: MonotonicSynopsis) -> np.float32:
    """Return the factor of messages that makes the extremum a maximum."""
    return np.float32(1 if synopsis.kind == "max" else -1)


class ExtremaFold(MessageFold):
    """The extrema of one layer. Shapes: s (rows, width) float32; holders (rows, width) uint16."""

    exchanges = True

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: MonotonicSynopsis) -> None:
        self.s = tables.add(f"{name}s", "f4", width, fill=float("-inf"))
        self.holders = tables.add(f"{name}holders", "u2", width)
        super().__init__(self.s, self.holders)
        self.counts = np.zeros(6, np.int64)
        self._sign = sign_of(synopsis)
        self._counter = np.zeros(1, np.int64)
        self._plan = plan_for(width)
        self._take_back, self._exchange = Direct(kernels.take_back), Direct(kernels.exchange)
        self._bring, self._settle = Direct(kernels.bring), Direct(settle)
        self._stamp = np.zeros(0, np.int64)
        self._altered, self._touched = np.zeros(0, np.uint8), np.zeros(0, np.int32)

    def _view(self) -> kernels.Extrema:
        by_row = self._stamp, self._altered, self._touched
        return kernels.Extrema(self.s.view, self.holders.view, *by_row, self._counter, self.counts, self._sign)

    def begin(self, edges: Edges, moves: Moves, values: np.ndarray) -> None:
        """Begin an epoch."""
        self._counter[0] = 0
        rows = len(edges.in_edges.data)
        if self._stamp.size < rows:
            self._stamp, self._altered = np.zeros(rows, np.int64), np.zeros(rows, np.uint8)
            self._touched = np.zeros(rows, np.int32)

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Count off what these messages hold."""
        self._take_back(self._view(), edges, messages, serial)

    def exchange(self, edges: Edges, gone: Messages, kept: Messages, moves: Moves, rows: np.ndarray) -> None:
        """Remove deleted messages, and replace kept ones by those of their sources' new values."""
        self._exchange(self._view(), edges, gone, kept, moves, rows, moves.serial)

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Merge new messages."""
        self._bring(self._view(), edges, messages, serial)

    def settle(self, edges: Edges, serial: int) -> np.ndarray:
        """Reread exposed channels; returns the rows that have other bits than before."""
        return self._touched[: self._settle(self._view(), self._plan, edges)].copy()

    def worn(self, edges: Edges) -> np.ndarray:
        """The touched rows with exposed channels."""
        found = np.empty(self._counter[0], np.int32)
        return found[: list_exposed(self._view(), edges, found)]

    def remake(self, edges: Edges, rows: np.ndarray, serial: int) -> None:
        """Recompute these rows from all their messages."""
        remake_extrema(self._view(), edges, rows, serial, self._plan.best, self._plan.found)

    def finish(self, edges: Edges, serial: int) -> np.ndarray:
        """End the epoch without reading; the rows that have other bits than before."""
        return self._touched[: finish_extrema(self._view(), edges)].copy()

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write extrema to `out`, 0 where there are no messages."""
        kernels.read_extrema(self.s.data, self._sign, edges.in_edges.data, slots, out, first)


@kernel
def merge_extrema(s: np.ndarray, z: np.ndarray, messages: Messages, sign: float) -> None:
    """Keep the largest of `sign` times the messages, channel by channel; NaN passes everything.

    Shapes: s (rows, width) float32, -inf where there was none; z (values, width) float32.
    """
    for i in range(len(messages.src)):
        ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        factor = sign * messages.weight[i]
        for j in range(s.shape[1]):
            m = factor * z[u, j] + np.float32(0)
            if m > s[v, j] or m != m:
                s[v, j] = m


def _accumulator(synopsis: MonotonicSynopsis, width: int, rows: int) -> Accumulator:
    """Return room for extrema without their holders."""
    s, sign = np.full((rows, width), -np.inf, np.float32), sign_of(synopsis)
    return RowAccumulator(lambda z, messages: merge_extrema(s, z, messages, sign), partial(read_extrema, s, sign))


def _merger(synopsis: MonotonicSynopsis) -> MergePartials:
    sign = sign_of(synopsis)
    return lambda *of_parts: merge_partial_extrema(*of_parts, sign)


EXTREMA = Aggregate[MonotonicSynopsis](
    store=partial(FoldStore, ExtremaFold),
    merger=_merger,
    accumulator=_accumulator,
    accumulator_bytes=lambda _, width: 4 * width,
    message_fold=ExtremaFold,
)
