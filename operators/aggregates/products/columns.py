"""Synopses of some columns of messages (ColumnsSynopsis)."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.synopses.of_messages import ColumnsSynopsis
from freshet.operators.aggregates.accumulator import Accumulator
from freshet.operators.aggregates.aggregate import Aggregate, Lookup
from freshet.operators.aggregates.fold import MessageFold, StepwiseFold
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.state.table import Table, TableSet


class ColumnsFold(StepwiseFold):
    """A fold of some columns of the messages that others bring; the tables are that one's."""

    def __init__(self, inner: MessageFold, first: int, end: int) -> None:
        self._inner, self._columns = inner, slice(first, end)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its tables, with a row per slot."""
        return self._inner.tables

    def begin(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Begin an epoch."""
        self._inner.begin(edges, moves, rows)

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Unmake messages."""
        self._inner.take_back(self._cut(edges), messages, serial)

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Merge messages."""
        self._inner.bring(self._cut(edges), messages, serial)

    def worn(self, edges: Edges) -> np.ndarray:
        """Return the touched rows that have to be recomputed."""
        return self._inner.worn(edges)

    def remake(self, edges: Edges, rows: np.ndarray, serial: int) -> None:
        """Recompute these rows from all their messages."""
        self._inner.remake(self._cut(edges), rows, serial)

    def finish(self, edges: Edges, serial: int) -> np.ndarray:
        """End the epoch, after all worn rows were recomputed; returns the rows that may have changed."""
        return self._inner.finish(edges, serial)

    def settle(self, edges: Edges, serial: int) -> np.ndarray:
        """Recompute rows where needed, and end the epoch; returns the rows that may have changed."""
        worn = self.worn(edges)
        if worn.size:
            self.remake(edges, worn, serial)
        return self.finish(edges, serial)

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write synopses to `out`, from column `first` on."""
        self._inner.read(edges, slots, out, first)

    def _cut(self, edges: Edges) -> Edges:
        return edges._replace(z=edges.z._replace(data=np.ascontiguousarray(edges.z.data[:, self._columns])))


class ColumnsAccumulator:
    """An accumulator of some columns of the messages."""

    def __init__(self, inner: Accumulator, first: int, end: int) -> None:
        self._inner, self._columns = inner, slice(first, end)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        """Merge messages."""
        self._inner.merge(np.ascontiguousarray(z[:, self._columns]), messages)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write synopses to `out`."""
        self._inner.read(got, rows, out, first)


def columns_of(of: Lookup) -> Aggregate[ColumnsSynopsis]:
    """Return how they are kept, where `of` says how the synopses of the columns are."""

    def fold(tables: TableSet, name: str, width: int, synopsis: ColumnsSynopsis) -> ColumnsFold:
        first, end = synopsis.first, synopsis.end
        return ColumnsFold(of(synopsis.inner).fold_of(tables, name, end - first, synopsis.inner), first, end)

    def accumulator(synopsis: ColumnsSynopsis, width: int, rows: int) -> ColumnsAccumulator:
        first, end = synopsis.first, synopsis.end
        return ColumnsAccumulator(of(synopsis.inner).accumulator(synopsis.inner, end - first, rows), first, end)

    return Aggregate(
        store=partial(FoldStore, fold),
        merger=lambda synopsis: of(synopsis.inner).merger(synopsis.inner),
        accumulator=accumulator,
        accumulator_bytes=lambda synopsis, _: of(synopsis.inner).accumulator_bytes(
            synopsis.inner, synopsis.end - synopsis.first
        ),
        message_fold=fold,
    )
