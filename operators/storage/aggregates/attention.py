"""Softmax sums of one layer in the parts of a task (gnn/softmax.py; the kernels: attention_kernels.py)."""

from __future__ import annotations

import numpy as np

from gnn.scores import terms_of
from gnn.softmax import SoftmaxSynopsis
from operators.storage.aggregates import attention_kernels as kernels
from operators.storage.aggregates.attention_reading import read_attention
from operators.storage.edge_messages import Edges, Messages, Moves
from operators.storage.exact_sums import stamp_of
from state.table import Table, TableSet


class AttentionFold:
    """Softmax sums per head. Shapes: see attention_kernels.Attention."""

    def __init__(self, tables: TableSet, name: str, synopsis: SoftmaxSynopsis) -> None:
        score = synopsis.score
        self.moves_sides = score.kind == "additive"
        sums, width = score.sides * score.heads, score.sides * score.heads * (1 + score.channels)
        self.s = tables.add(f"{name}s", "f8", width)
        self.note = tables.add(f"{name}note", "i4", 4)
        self.shift = tables.add(f"{name}shift", "f4", sums)
        self.held = tables.add(f"{name}held", "i4", sums)
        self.near = tables.add(f"{name}near", "f4", score.heads) if self.moves_sides else None
        self.counts = np.zeros(5, np.int64)
        self._counter, self._fresh = np.zeros(1, np.int64), np.empty((2, width), np.float64)
        self._renew, self._touched = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self._terms = terms_of(score)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its tables, with a row per slot."""
        near = () if self.near is None else (self.near,)
        return self.s, self.note, self.shift, self.held, *near

    def _view(self) -> kernels.Attention:
        return kernels.Attention(
            self.s.view,
            self.note.view,
            self.shift.view,
            self.held.view,
            self.shift.view if self.near is None else self.near.view,  # a stand-in that nothing reads
            self._renew,
            self._touched,
            self._counter,
            self._fresh,
            self.counts,
            self._terms,
        )

    def begin(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Begin an epoch that moves these sources to these values."""
        self._counter[0] = 0
        slots = len(edges.z.data)
        if self._renew.size < slots:
            self._renew, self._touched = np.zeros(slots, np.int32), np.zeros(slots, np.int32)
        if not self.moves_sides:
            kernels.turn_targets(self._view(), edges, moves, rows, stamp_of(moves.serial))

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Subtract messages."""
        kernels.add_messages(self._view(), edges, messages, -1, stamp_of(serial))

    def retarget(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Move what other terms of targets move, before the table has the new values."""
        if self.moves_sides:
            kernels.move_sides(self._view(), edges, moves, rows, stamp_of(moves.serial))

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Add messages."""
        kernels.add_messages(self._view(), edges, messages, 1, stamp_of(serial))

    def settle(self, edges: Edges, serial: int) -> np.ndarray:
        """Sum rows afresh where that must be; the rows that any message came for, or whose own term has changed."""
        kernels.settle(self._view(), edges, stamp_of(serial))
        return self._touched[: self._counter[0]].copy()

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write [m | D | N] of every head to `out`."""
        read_attention(self._view(), edges.z.data, slots, out, first)
