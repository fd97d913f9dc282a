"""Softmax sums of messages that a network has made, with their scores (gnn/synopses/edge_network.py).

Each message is a row of its own, and its score stands in it: so such sums read nothing of a target, and who brings the
messages says which rows are made of all of them once more.
"""

from __future__ import annotations

import numpy as np

from freshet.gnn.synopses.softmax import SoftmaxSynopsis
from freshet.kernels.kernel import kernel
from freshet.kernels.kernel_calls import Direct
from freshet.operators.aggregates.attention.deltas import add_messages
from freshet.operators.aggregates.attention.fold import AttentionFold
from freshet.operators.aggregates.attention.kernels import SUSPECT, TOUCHED, Attention, InEdges, mark
from freshet.operators.aggregates.attention.recomputed import clear_row, sum_afresh, wants_sums
from freshet.operators.aggregates.exact_sums import stamp_of
from freshet.operators.aggregates.fold import MessageFold, StepwiseFold
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.state.table import TableSet


@kernel
def add_made(att: Attention, edges: InEdges, messages: Messages, sign: int, serial: int) -> None:
    """Add messages, or take them back where `sign` is -1."""
    add_messages(att, edges, messages, sign, serial)


@kernel
def list_worn_sums(att: Attention, edges: InEdges, serial: int, found: np.ndarray) -> int:
    """List the touched rows that have to be summed again, and clear those without messages; returns how many."""
    count = 0
    for i in range(att.counter[TOUCHED]):
        row = att.touched[i]
        if att.note[row, SUSPECT] != serial:
            continue
        if edges.in_edges[row] == 0:
            clear_row(att, row)
        elif wants_sums(att, row, serial):
            found[count] = row
            count += 1
    return count


@kernel
def remake_softmax(att: Attention, edges: InEdges, rows: np.ndarray, serial: int) -> None:
    """Sum these rows again, of the messages that `edges` lists."""
    for i in range(len(rows)):
        mark(att, rows[i], serial)
        sum_afresh(att, edges, rows[i])


class MadeAttentionFold(AttentionFold, MessageFold):
    """Softmax sums per head of messages with their scores. Shapes: see kernels.Attention."""

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: SoftmaxSynopsis) -> None:
        if synopsis.score.kind != "given":
            msg = f"a softmax of {synopsis.score.kind} scores reads both ends of an edge: it has no fold of messages"
            raise TypeError(msg)
        super().__init__(tables, name, width, synopsis)
        self._add, self._list, self._remake = Direct(add_made), Direct(list_worn_sums), Direct(remake_softmax)
        self._serial = 0

    leave = StepwiseFold.leave
    arrive = StepwiseFold.arrive
    finisher = StepwiseFold.finisher

    def begin(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Begin an epoch."""
        self._reset(len(edges.in_edges.data))
        self._serial = stamp_of(moves.serial)

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Take messages back."""
        self._add(self._view(), self._ends(edges), messages, -1, stamp_of(serial))

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Add messages."""
        self._add(self._view(), self._ends(edges), messages, 1, stamp_of(serial))

    def worn(self, edges: Edges) -> np.ndarray:
        """Return the touched rows that have to be summed again; rows without messages are empty from now on."""
        found = np.empty(int(self._counter[TOUCHED]), np.int32)
        return found[: self._list(self._view(), self._ends(edges), self._serial, found)]

    def remake(self, edges: Edges, rows: np.ndarray, serial: int) -> None:
        """Sum these rows again."""
        self._remake(self._view(), self._ends(edges), rows, stamp_of(serial))

    def finish(self, edges: Edges, serial: int) -> np.ndarray:
        """End the epoch; returns the rows that may have changed."""
        return self._touched[: self._counter[TOUCHED]].copy()
