"""Sums beside other synopses of the same messages: the exact sums of operators/aggregates/exact_sums.py, by message.

Where sums are all that a layer keeps, operators/aggregates/sums/store.py merges differences and edges in one pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.gnn.synopses.of_messages import InvertibleSynopsis
from freshet.kernels.kernel import inner, kernel
from freshet.kernels.kernel_calls import Direct
from freshet.kernels.prefetch import prefetch_row, prefetch_wide_row
from freshet.operators.aggregates.exact_sums import (
    add_message,
    clear_sum,
    forget_loss,
    is_worn,
    mark,
    note_loss,
    read_sums,
    replace_sum,
    stamp_of,
    sum_in_edges,
)
from freshet.operators.aggregates.fold import StepwiseFold
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.state.table import Table, TableSet, View

_AHEAD = 12


class Sums(NamedTuple):
    """View of a fold of sums for kernels."""

    s: View  # (rows, width) float64
    note: View  # (rows, 4) int32, see operators/aggregates/exact_sums.py; in-edges are counted elsewhere
    touched: np.ndarray  # (rows,) int32
    counter: np.ndarray  # (2,) int64: how many rows are touched; how many were ever summed afresh
    fresh: np.ndarray  # (2, width) float64


@inner
def _sum_afresh(sums: Sums, edges: Edges, row: int) -> None:
    """Make the sums of a row from its in-edges in this part."""
    lossy = sum_in_edges(sums.fresh, edges.z.data, edges.inn, row)
    replace_sum(sums.s.data, sums.note.data, row, sums.fresh, lossy)
    sums.counter[1] += 1


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
def settle_sums(sums: Sums, edges: Edges) -> None:
    """Set sums without messages to 0, and sum the worn rows again."""
    s, note = sums.s, sums.note.data
    for i in range(sums.counter[0]):
        row = sums.touched[i]
        if edges.in_edges.data[row] == 0:
            clear_sum(s, row)
            forget_loss(note, row)
        elif is_worn(s.data, note, row):
            _sum_afresh(sums, edges, row)


@kernel
def list_worn(sums: Sums, edges: Edges, found: np.ndarray) -> int:
    """List the touched rows that are worn; returns how many."""
    count = 0
    for i in range(sums.counter[0]):
        row = sums.touched[i]
        if edges.in_edges.data[row] > 0 and is_worn(sums.s.data, sums.note.data, row):
            found[count] = row
            count += 1
    return count


@kernel
def remake_sums(sums: Sums, edges: Edges, rows: np.ndarray, serial: int) -> None:
    """Sum these rows again."""
    for i in range(len(rows)):
        mark(sums, rows[i], serial)
        _sum_afresh(sums, edges, rows[i])


@kernel
def finish_sums(sums: Sums, edges: Edges) -> None:
    """Set sums of nothing to 0."""
    for i in range(sums.counter[0]):
        row = sums.touched[i]
        if edges.in_edges.data[row] == 0:
            clear_sum(sums.s, row)
            forget_loss(sums.note.data, row)


class SumFold(StepwiseFold):
    """The sums of one layer beside other synopses. Shapes: s (rows, width) float64; note (rows, 4) int32."""

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: InvertibleSynopsis) -> None:
        self.s = tables.add(f"{name}s", "f8", width)
        self.note = tables.add(f"{name}note", "i4", 4)
        self._fresh = np.empty((2, width), np.float64)
        self._counter = np.zeros(2, np.int64)
        self._touched = np.zeros(0, np.int32)
        self._add, self._settle = Direct(add_messages), Direct(settle_sums)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its tables, with a row per slot."""
        return self.s, self.note

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

    def settle(self, edges: Edges, serial: int) -> np.ndarray:
        """Sum worn rows again; returns the rows that received a message."""
        self._settle(self._view(), edges)
        return self._touched[: self._counter[0]].copy()

    def worn(self, edges: Edges) -> np.ndarray:
        """The touched rows that have lost too much."""
        found = np.empty(self._counter[0], np.int32)
        return found[: list_worn(self._view(), edges, found)]

    def remake(self, edges: Edges, rows: np.ndarray, serial: int) -> None:
        """Sum these rows again."""
        remake_sums(self._view(), edges, rows, stamp_of(serial))

    def finish(self, edges: Edges, serial: int) -> np.ndarray:
        """Like `settle`, without reading."""
        finish_sums(self._view(), edges)
        return self._touched[: self._counter[0]].copy()

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write sums to `out`."""
        read_sums(self.s.data, slots, out, first)
