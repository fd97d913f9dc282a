"""Gated sums: of sigmoid(k_v + q_u) v_u over in-edges (u, v), each channel with a gate of its own.

A gate is rounded to float32, and so is its product with the value, before it is added in float64: these are the exact
sums of operators/aggregates/exact_sums.py. An old message is computed again from the old value of its source and the
target's term, which has not changed since; when that changes, the row is summed again.

Invariant: s[v] is the sum over the in-edges of v in this part, with the terms that the table has of v.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from freshet.gnn.synopses.of_messages import GatedSynopsis
from freshet.kernels.kernel import inner, kernel
from freshet.kernels.kernel_calls import Direct
from freshet.kernels.prefetch import prefetch, prefetch_row, prefetch_wide_row
from freshet.operators.aggregates.accumulator import Accumulator, RowAccumulator, ask_ahead
from freshet.operators.aggregates.aggregate import Aggregate
from freshet.operators.aggregates.exact_sums import (
    add_term,
    add_term_compensated,
    begin_afresh,
    clear_sum,
    compensate,
    forget_loss,
    is_worn,
    mark,
    merge_partial_sums,
    note_loss,
    read_sums,
    replace_sum,
    stamp_of,
)
from freshet.operators.aggregates.fold import StepwiseFold
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.graph.edge_messages import (
    EdgeMessage,
    Edges,
    Messages,
    Moves,
    Turns,
    differs_at,
    in_message,
    message_at,
)
from freshet.state.adjacency import base_of, place_of
from freshet.state.table import Table, TableSet, View

DELTAS, AFRESH, REREAD = range(3)  # what is counted: messages, rows, messages
_AHEAD = 8


class Gates(NamedTuple):
    """View of a fold of gated sums for kernels.

    A row of values is [value | term of a source | of a target]; where targets have rows of their own, these are the
    last term alone. All rows are those of targets.
    """

    s: View  # (rows, channels) float64
    note: View  # (rows, 4) int32, see operators/aggregates/exact_sums.py
    renew: np.ndarray  # (rows,) int32: the serial of the last epoch that has the row summed afresh
    touched: np.ndarray  # (rows,) int32
    counter: np.ndarray  # (1,) int64: how many rows are touched
    fresh: np.ndarray  # (2, channels) float64
    counts: np.ndarray  # (3,) int64


@inner
def gated_message(z: np.ndarray, q: np.ndarray, channels: int, message: EdgeMessage, c: int) -> np.float64:
    """Return the product that a channel of the message's source adds to its target."""
    u, v = message.src, message.dst
    term = np.float64(z[u, channels + c]) + np.float64(q[v, q.shape[1] - channels + c])
    small = math.exp(-abs(term))
    gate = np.float32((1.0 if term > 0 else small) / (1.0 + small))
    return np.float64(gate * z[u, c])


@kernel
def turn_targets(gates: Gates, in_edges: np.ndarray, q: np.ndarray, turns: Turns, serial: int) -> None:
    """Mark rows to be summed again whose targets' terms change."""
    channels = gates.s.data.shape[1]
    for i in range(len(turns.slots)):
        v = turns.slots[i]
        if in_edges[v] > 0 and differs_at(q, turns, i, np.int64(q.shape[1] - channels), channels):
            mark(gates, v, serial)
            gates.renew[v] = serial


@kernel
def add_messages(gates: Gates, edges: Edges, q: np.ndarray, messages: Messages, sign: float, serial: int) -> None:
    """Add these messages to the sums of their destinations, or subtract them if `sign` is -1.

    Rows that will be summed again are skipped.
    """
    s, z, n = gates.s.data, edges.z.data, len(messages.src)
    for i in range(n):
        if i + _AHEAD < n:
            ahead = np.int64(messages.dst[i + _AHEAD])
            prefetch_wide_row(s, ahead)
            prefetch(gates.note.data, ahead * 4)
            prefetch_row(q, ahead)
            prefetch_row(z, np.int64(messages.src[i + _AHEAD]))
        message = message_at(messages, i)
        v = message.dst
        mark(gates, v, serial)
        if gates.renew[v] == serial:
            continue
        gates.counts[DELTAS] += 1
        lossy = np.int64(0)
        for c in range(s.shape[1]):
            lossy |= add_term(s, v, c, sign * gated_message(z, q, s.shape[1], message, c))
        if lossy:
            note_loss(s, gates.note.data, v, lossy, 0.0)


@inner
def _sum_afresh(gates: Gates, edges: Edges, q: np.ndarray, row: int) -> None:
    """Make the sums of a row from its in-edges in this part."""
    z, pool, fresh = edges.z.data, edges.inn.pool.data, gates.fresh
    base, at = base_of(edges.inn, row), place_of(edges.inn, row)
    end = at + edges.inn.head.data[row, 1]
    begin_afresh(fresh)
    for k in range(at, end):
        if k + _AHEAD < end:
            prefetch_row(z, np.int64(base + pool[k + _AHEAD]))
        message = in_message(edges, base, row, k)
        for c in range(fresh.shape[1]):
            add_term_compensated(fresh, c, gated_message(z, q, fresh.shape[1], message, c))
    replace_sum(gates.s.data, gates.note.data, row, fresh, compensate(fresh))
    gates.counts[AFRESH] += 1
    gates.counts[REREAD] += end - at


@kernel
def settle_gates(gates: Gates, edges: Edges, q: np.ndarray, serial: int) -> None:
    """Set sums without messages to 0, and sum rows again that are worn or whose target's term has changed."""
    for i in range(gates.counter[0]):
        row = gates.touched[i]
        if edges.in_edges.data[row] == 0:
            clear_sum(gates.s, row)
            forget_loss(gates.note.data, row)
        elif gates.renew[row] == serial or is_worn(gates.s.data, gates.note.data, row):
            _sum_afresh(gates, edges, q, row)


class GatedFold(StepwiseFold):
    """The gated sums of one layer. Shapes: see Gates."""

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: GatedSynopsis) -> None:
        self.s = tables.add(f"{name}s", "f8", synopsis.channels)
        self.note = tables.add(f"{name}note", "i4", 4)
        super().__init__(self.s, self.note)
        self.counts = np.zeros(3, np.int64)
        self._counter, self._fresh = np.zeros(1, np.int64), np.empty((2, synopsis.channels), np.float64)
        self._renew, self._touched = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self._turn, self._add, self._settle = Direct(turn_targets), Direct(add_messages), Direct(settle_gates)
        self._q = Table("", "f4", synopsis.channels)
        self._turned = Turns(self._touched, self._touched, np.empty((0, 1), np.float32))

    def _view(self) -> Gates:
        by_row = self._renew, self._touched
        return Gates(self.s.view, self.note.view, *by_row, self._counter, self._fresh, self.counts)

    def read_targets(self, q: Table, turns: Turns) -> None:
        """Have gates read these rows, and other ones of the destinations that turn in the epoch that begins."""
        self._q, self._turned = q, turns

    def begin(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Begin an epoch."""
        self._counter[0] = 0
        slots = len(edges.in_edges.data)
        if self._renew.size < slots:
            self._renew, self._touched = np.zeros(slots, np.int32), np.zeros(slots, np.int32)
        self._turn(self._view(), edges.in_edges.data, self._q.data, self._turned, stamp_of(moves.serial))

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Subtract messages."""
        self._add(self._view(), edges, self._q.data, messages, np.float64(-1), stamp_of(serial))

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Add messages."""
        self._add(self._view(), edges, self._q.data, messages, np.float64(1), stamp_of(serial))

    def settle(self, edges: Edges, serial: int) -> np.ndarray:
        """Sum rows again where needed; returns the rows that received a message, or whose own term has changed."""
        self._settle(self._view(), edges, self._q.data, stamp_of(serial))
        return self._touched[: self._counter[0]].copy()

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write sums to `out`."""
        read_sums(self.s.data, slots, out, first)


@kernel
def merge_gated(s: np.ndarray, z: np.ndarray, messages: Messages) -> None:
    """Add gated messages.

    Shapes: s (rows, channels) float64; z (values, 3 * channels) float32, the destinations' rows first.
    """
    for i in range(len(messages.src)):
        ask_ahead(s, z, messages, i)
        message = message_at(messages, i)
        for c in range(s.shape[1]):
            s[message.dst, c] += gated_message(z, z, s.shape[1], message, c)


def _accumulator(synopsis: GatedSynopsis, width: int, rows: int) -> Accumulator:
    sums = np.zeros((rows, synopsis.channels), np.float64)
    return RowAccumulator(partial(merge_gated, sums), lambda got, at, out, first: read_sums(sums, at, out, first))


GATES = Aggregate[GatedSynopsis](
    store=partial(FoldStore, GatedFold),
    merger=lambda _: merge_partial_sums,
    accumulator=_accumulator,
    accumulator_bytes=lambda synopsis, width: 8 * synopsis.width(width),
)
