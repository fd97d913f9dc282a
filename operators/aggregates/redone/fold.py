"""States that are made of all messages of a row, whenever one of these comes, goes or changes."""

from __future__ import annotations

import numpy as np

from freshet.gnn.synopses.redone import RedoneSynopsis
from freshet.operators.aggregates.fold import StepwiseFold
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.state.table import Table, TableSet


class RedoneFold(StepwiseFold):
    """The states of one layer, of messages that others make. Shapes: s (rows, 1 + size) float32."""

    reads_changes = False

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: RedoneSynopsis) -> None:
        self._synopsis = synopsis
        self.s = tables.add(f"{name}s", "f4", synopsis.width(width))
        self._touched = list[np.ndarray]()

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its tables, with a row per slot."""
        return (self.s,)

    def begin(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Begin an epoch."""
        self._touched = []

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Note the rows that these messages go to."""
        self._touched.append(np.unique(messages.dst))

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Note the rows that these messages go to."""
        self._touched.append(np.unique(messages.dst))

    def worn(self, edges: Edges) -> np.ndarray:
        """The touched rows that have messages, each once."""
        rows = self._rows()
        return rows[edges.in_edges.data[rows] > 0]

    def remake(self, edges: Edges, rows: np.ndarray, serial: int) -> None:
        """Make these rows of all their messages, which stand one behind the other in `edges.z`."""
        self._touched.append(rows)
        self.s.touch_rows(rows)
        head, z = edges.inn.head.data, edges.z.data
        with np.errstate(all="ignore"):  # infinities and NaN are results
            for row in rows.tolist():
                first, many = int(head[row, 0]), int(head[row, 1])
                if many:
                    self.s.data[row] = self._synopsis.fold(z[first : first + many])

    def finish(self, edges: Edges, serial: int) -> np.ndarray:
        """Empty the touched rows without messages; returns the touched ones."""
        rows = self._rows()
        empty = rows[edges.in_edges.data[rows] == 0]
        self.s.touch_rows(empty)
        self.s.data[empty] = 0
        return rows

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write states to `out`."""
        out[:, first : first + self.s.data.shape[1]] = self.s.data[slots]

    def _rows(self) -> np.ndarray:
        return np.unique(np.concatenate([np.empty(0, np.int32), *self._touched])).astype(np.int32)
