"""Sums and means: a change is a delta (InvertibleSynopsis).

Where sums are all that a layer keeps, store.py merges differences and edges in one pass. Beside other synopses of the
same messages they are the exact sums of operators/aggregates/exact_sums.py, by message.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from freshet.gnn.synopses.of_messages import InvertibleSynopsis
from freshet.kernels.kernel import kernel
from freshet.kernels.kernel_calls import Direct
from freshet.kernels.prefetch import prefetch_row, prefetch_wide_row
from freshet.operators.aggregates.accumulator import Accumulator, RowAccumulator, ask_ahead
from freshet.operators.aggregates.aggregate import Aggregate
from freshet.operators.aggregates.exact_sums import (
    add_message,
    clear_sum,
    forget_loss,
    is_worn,
    mark,
    merge_partial_sums,
    note_loss,
    read_sums,
    replace_sum,
    stamp_of,
    sum_in_edges,
)
from freshet.operators.aggregates.fold import MessageFold
from freshet.operators.aggregates.sums.store import SumStore
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.state.table import TableSet, View

_AHEAD = 12


class Sums(NamedTuple):
    """View of a fold of sums for kernels."""

    s: View  # (rows, width) float64
    note: View  # (rows, 4) int32, see operators/aggregates/exact_sums.py; in-edges are counted elsewhere
    touched: np.ndarray  # (rows,) int32
    counter: np.ndarray  # (2,) int64: how many rows are touched; how many were ever summed afresh
    fresh: np.ndarray  # (2, width) float64


@kernel
def add_messages(sums: Sums, edges: Edges, messages: Messages, sign: float, serial: int) -> None:
    """Add these messages to the sums of their destinations, or take them back where `sign` is -1."""
    s, z, note = sums.s.data, edges.z.data, sums.note.data
    for i in range(len(messages.src)):
        if i + _AHEAD < len(messages.src):
            prefetch_wide_row(s, np.int64(messages.dst[i + _AHEAD]))
            prefetch_row(z, np.int64(messages.src[i + _AHEAD]))
        row = messages.dst[i]
        mark(sums, row, serial)
        lossy = add_message(s, row, z, messages.src[i], sign * messages.weight[i])
        if lossy:
            note_loss(s, note, row, lossy, 0.0)


@kernel
def settle_sums(sums: Sums, edges: Edges, worn: np.ndarray) -> int:
    """Set sums without messages to 0, and list the touched rows that have lost too much; returns how many."""
    s, note, count = sums.s, sums.note.data, 0
    for i in range(sums.counter[0]):
        row = sums.touched[i]
        if edges.in_edges.data[row] == 0:
            clear_sum(s, row)
            forget_loss(note, row)
        elif is_worn(s.data, note, row):
            worn[count] = row
            count += 1
    return count


@kernel
def remake_sums(sums: Sums, edges: Edges, rows: np.ndarray, serial: int) -> None:
    """Sum these rows again."""
    for i in range(len(rows)):
        mark(sums, rows[i], serial)
        lossy = sum_in_edges(sums.fresh, edges.z.data, edges.inn, rows[i])
        replace_sum(sums.s.data, sums.note.data, rows[i], sums.fresh, lossy)
        sums.counter[1] += 1


class SumFold(MessageFold):
    """The sums of one layer beside other synopses. Shapes: s (rows, width) float64; note (rows, 4) int32."""

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: InvertibleSynopsis) -> None:
        self.s = tables.add(f"{name}s", "f8", width)
        self.note = tables.add(f"{name}note", "i4", 4)
        super().__init__(self.s, self.note)
        self._fresh = np.empty((2, width), np.float64)
        self._counter = np.zeros(2, np.int64)
        self._touched = np.zeros(0, np.int32)
        self._add, self._settle = Direct(add_messages), Direct(settle_sums)

    def _view(self) -> Sums:
        return Sums(self.s.view, self.note.view, self._touched, self._counter, self._fresh)

    def begin(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Begin an epoch."""
        self._counter[0] = 0
        if self._touched.size < len(edges.in_edges.data):
            self._touched = np.zeros(len(edges.in_edges.data), np.int32)

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Subtract messages."""
        self._add(self._view(), edges, messages, np.float32(-1), stamp_of(serial))

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Add messages."""
        self._add(self._view(), edges, messages, np.float32(1), stamp_of(serial))

    def worn(self, edges: Edges) -> np.ndarray:
        """Return the touched rows that have lost too much; sums without messages are 0 from now on."""
        found = np.empty(self._counter[0], np.int32)
        return found[: self._settle(self._view(), edges, found)]

    def remake(self, edges: Edges, rows: np.ndarray, serial: int) -> None:
        """Sum these rows again."""
        remake_sums(self._view(), edges, rows, stamp_of(serial))

    def finish(self, edges: Edges, serial: int) -> np.ndarray:
        """End the epoch; returns the rows that received a message."""
        return self._touched[: self._counter[0]].copy()

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write sums to `out`."""
        read_sums(self.s.data, slots, out, first)


@kernel
def merge_sums(s: np.ndarray, z: np.ndarray, messages: Messages) -> None:
    """Add the messages. Shapes: s (rows, width) float64; z (values, width) float32."""
    for i in range(len(messages.src)):
        ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        for j in range(s.shape[1]):
            s[v, j] += np.float64(messages.weight[i] * z[u, j])


def _accumulator(synopsis: InvertibleSynopsis, width: int, rows: int) -> Accumulator:
    sums = np.zeros((rows, width), np.float64)
    return RowAccumulator(partial(merge_sums, sums), lambda got, at, out, first: read_sums(sums, at, out, first))


SUMS = Aggregate[InvertibleSynopsis](
    store=SumStore,
    merger=lambda _: merge_partial_sums,
    accumulator=_accumulator,
    accumulator_bytes=lambda _, width: 8 * width,
    message_fold=SumFold,
    spills=True,
)
