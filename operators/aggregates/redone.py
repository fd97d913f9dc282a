"""Aggregates that are made again (OfAllMessages): states of all messages of a row, wherever one comes, goes or changes.

There is always a network around them that makes their messages.
"""

from __future__ import annotations

import numpy as np

from freshet.gnn.synopses.redone import OfAllMessages
from freshet.operators.aggregates.accumulator import Accumulator
from freshet.operators.aggregates.aggregate import Aggregate, MergePartials
from freshet.operators.aggregates.fold import MessageFold
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.state.table import TableSet


class RedoneFold(MessageFold):
    """The states of one layer, of messages that others make. Shapes: s (rows, width of the synopsis) float32."""

    reads_changes = False

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: OfAllMessages) -> None:
        self._synopsis = synopsis
        self.s = tables.add(f"{name}s", "f4", synopsis.width(width))
        super().__init__(self.s)
        self._touched = list[np.ndarray]()

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


def _merger(synopsis: OfAllMessages) -> MergePartials:
    def merge(
        index: np.ndarray, partial: np.ndarray, slots: np.ndarray, out: np.ndarray, shifts: tuple[int, int],
        columns: tuple[int, int],
    ) -> None:  # fmt: skip
        here = slice(*columns)
        with np.errstate(all="ignore"):
            for i, slot in enumerate(slots.tolist()):
                base, state = (slot >> shifts[0]) << shifts[1], np.zeros(columns[1] - columns[0], np.float32)
                for row in index[slot].tolist():
                    if row >= 0:
                        state = synopsis.merge(state, partial[base + row, here])
                out[i, here] = state

    return merge


def _no_store(*given: object, **options: object) -> RedoneFold:
    msg = "an aggregate of all messages at once is kept of messages that others make: put a NetworkSynopsis around it"
    raise TypeError(msg)


def _no_accumulator(synopsis: OfAllMessages, width: int, rows: int) -> Accumulator:
    msg = f"{synopsis.name} is made of all messages of a vertex at once, which a pass over sources does not have"
    raise TypeError(msg)


REDONE = Aggregate[OfAllMessages](
    store=_no_store,  # type: ignore[arg-type]
    merger=_merger,
    accumulator=_no_accumulator,
    accumulator_bytes=lambda synopsis, width: 4 * synopsis.width(width),
    message_fold=RedoneFold,
)
