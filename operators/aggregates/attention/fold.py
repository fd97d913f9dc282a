"""Softmax sums of one layer in the parts of a task (gnn/synopses/softmax.py; the kernels: kernels.py)."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.plan import Epilogue
from freshet.gnn.synopses.attend import AttentionEpilogue
from freshet.gnn.synopses.scores import terms_of
from freshet.gnn.synopses.softmax import EdgeSoftmaxSynopsis, SoftmaxSynopsis
from freshet.kernels.kernel import kernel
from freshet.kernels.kernel_calls import Direct
from freshet.operators.aggregates.attention.deltas import add_away, add_messages, replace_messages, turn_targets
from freshet.operators.aggregates.attention.kernels import TOUCHED, Attention, EdgeTerms, InEdges, width_of
from freshet.operators.aggregates.attention.reading import finish_attention, read_attention
from freshet.operators.aggregates.attention.recomputed import settle
from freshet.operators.aggregates.attention.sides import FLIPS_AT_ONCE, move_sides
from freshet.operators.aggregates.exact_sums import stamp_of
from freshet.operators.aggregates.finishing import Finish
from freshet.operators.graph.edge_messages import Edges, Messages, Moves, Turns
from freshet.operators.graph.edge_table import EdgeTable
from freshet.state.adjacency import Data, read_alone
from freshet.state.table import Table, TableSet


@kernel
def leave(
    att: Attention,
    edges: InEdges,
    gone: Messages,
    kept: Messages,
    moves: Moves,
    rows: np.ndarray,
    turns: Turns,
    moves_sides: bool,
    serial: int,
) -> None:
    """Take back the messages that are gone, and have those of moved sources be what they are by `rows`.

    The tables have the old values, and afterwards the new terms of targets that turn where those are moved by their
    sides; `rows` has the new ones in the places of the moves.
    """
    if not moves_sides:
        turn_targets(att, edges, turns, serial)
    add_messages(att, edges, gone, -1, serial)
    add_away(att, edges, kept, -1, serial)
    if moves_sides:
        move_sides(att, edges, moves, rows, turns, serial)
    replace_messages(att, edges, kept, moves, rows, serial)


@kernel
def arrive(att: Attention, edges: InEdges, kept: Messages, come: Messages, serial: int) -> None:
    """Add the messages that come, of moved sources those whose edges change as well, and end the epoch."""
    add_away(att, edges, kept, 1, serial)
    add_messages(att, edges, come, 1, serial)
    settle(att, edges, serial)


_NO_ATTR, _NO_W, NONE_AWAY = np.zeros((1, 1), np.float32), np.zeros((1, 1)), np.zeros(0, np.uint8)


class AttentionFold:
    """Softmax sums per head. Shapes: see kernels.Attention."""

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: SoftmaxSynopsis) -> None:
        score, more = synopsis.score, synopsis.sums_of_terms
        self.moves_sides = score.kind == "additive"
        sums, width = score.sides * score.heads, score.sides * score.heads * (1 + score.channels) + more
        self._before, whole = width_of(sums, score.heads, score.channels, more, additive=self.moves_sides)
        self.s = tables.add(f"{name}s", "f8", whole)
        self.near = tables.add(f"{name}near", "f4", score.heads) if self.moves_sides else None
        self.tables: tuple[Table, ...] = (self.s,)
        self.source_tables: tuple[Table, ...] = () if self.near is None else (self.near,)
        self.counts = np.zeros(5, np.int64)
        self._counter, self._fresh = np.zeros(2, np.int64), np.empty((2, width), np.float64)
        self._flips = np.empty((FLIPS_AT_ONCE, 4), np.int32)
        self._scratch = np.empty(score.channels + 2, np.float32)
        self._renew, self._touched = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self._terms = terms_of(score)
        self._words = self.s.data.view(np.int32), self.s.data.view(np.float32)
        self._leave, self._arrive, self._finish = Direct(leave), Direct(arrive), Direct(finish_attention)
        self._stand_in = Table("", "f4", score.heads)  # for scores that have no such table: nothing reads it
        self._q: Table | None = None
        self._turned = Turns(self._touched, self._touched, np.empty((0, 1), np.float32))

    def read_targets(self, q: Table, turns: Turns) -> None:
        """Have scores read these rows, and other ones of the destinations that turn in the epoch that begins."""
        self._q, self._turned = q, turns

    @property
    def note(self) -> Data:
        """The notes of exact_sums.py, with which the rows of its table begin; for tests."""
        return Data(self.s.data.view(np.int32))

    def _view(self) -> Attention:
        table = self.s.view
        if self._words[0].base is not table.data:
            self._words = table.data.view(np.int32), table.data.view(np.float32)
        return Attention(
            table,
            *self._words,
            self._before,
            (self.near or self._stand_in).view,
            self._renew,
            self._touched,
            self._counter,
            self._fresh,
            self._flips,
            self.counts,
            self._terms,
        )

    def _reset(self, slots: int) -> None:
        """Begin an epoch, with memory for this many rows."""
        self._counter[:] = 0
        if self._renew.size < slots:
            self._renew, self._touched = np.zeros(slots, np.int32), np.zeros(slots, np.int32)

    def leave(
        self, edges: Edges, gone: Messages, kept: Messages, moves: Moves, rows: np.ndarray, *, same_weights: bool
    ) -> None:
        """Begin an epoch: unmake messages that are gone, and replace those of moved sources; nothing has weights."""
        self._reset(len(edges.in_edges.data))
        view, serial = self._view(), stamp_of(moves.serial)
        self._leave(view, self._ends(edges), gone, kept, moves, rows, self._turned, self.moves_sides, serial)

    def arrive(self, edges: Edges, kept: Messages, come: Messages, serial: int) -> np.ndarray:
        """End the epoch: add messages, recompute rows where needed, and return the changed rows.

        These are the rows that received a message, or whose own term has changed.
        """
        self._arrive(self._view(), self._ends(edges), kept, come, stamp_of(serial))
        return self._touched[: self._counter[TOUCHED]].copy()

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write [m | D | N] of every head to `out`."""
        read_attention(self._view(), slots, out, first)

    def finisher(self, z: Table, own: Table, epilogue: Epilogue | AttentionEpilogue) -> Finish:
        """Return a function that UPDATEs rows by an epilogue, and stores them, in one pass."""
        return partial(self._finish, self._view(), own.data, epilogue, self._scratch)

    def _ends(self, edges: Edges) -> InEdges:
        """Return what kernels read of a Storage's edges and values."""
        z = edges.z.data
        q = z if self._q is None else self._q.data
        return InEdges(z, q, edges.in_edges.data, read_alone(edges.inn), self._edge_terms(edges))

    def _edge_terms(self, edges: Edges) -> EdgeTerms:
        """Return what scores read of edges: nothing here."""
        return EdgeTerms(False, _NO_ATTR, _NO_W, edges.inn.pool.data, 0, NONE_AWAY)


class EdgeAttentionFold(AttentionFold):
    """Softmax sums per head, in which the term of an edge joins that of its source. Shapes: see kernels.Attention.

    An edge's term is made of its attributes whenever a kernel reads it; nothing more is kept of an edge. A
    message whose attributes change is taken back before they do, and brought afterwards.
    """

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: EdgeSoftmaxSynopsis) -> None:
        super().__init__(tables, name, width, synopsis)
        self._w = np.ascontiguousarray(synopsis.edge.T, np.float64)
        self._attributes: EdgeTable | None = None
        self._away = NONE_AWAY

    def read_attributes(self, attributes: EdgeTable) -> None:
        """Have messages whose weights are the numbers of edges in this table."""
        self._attributes = attributes

    def leave(
        self, edges: Edges, gone: Messages, kept: Messages, moves: Moves, rows: np.ndarray, *, same_weights: bool
    ) -> None:
        """Begin an epoch."""
        assert self._attributes is not None
        if not same_weights:
            self._away = np.zeros(len(self._attributes.attr.data), np.uint8)
            self._away[self._attributes.changing] = 1
        super().leave(edges, gone, kept, moves, rows, same_weights=same_weights)

    def arrive(self, edges: Edges, kept: Messages, come: Messages, serial: int) -> np.ndarray:
        """End the epoch."""
        touched = super().arrive(edges, kept, come, serial)
        self._away = NONE_AWAY
        return touched

    def _edge_terms(self, edges: Edges) -> EdgeTerms:
        """Return what scores read of edges."""
        assert self._attributes is not None
        attr, numbers = self._attributes.attr, edges.inn.weight.data.view(np.int32)
        return EdgeTerms(True, attr.data, self._w, numbers, attr.stride, self._away)
