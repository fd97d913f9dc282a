"""Folds of the same messages beside each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshet.operators.aggregates.fold import MessageFold, StepwiseFold
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.state.table import Table


class ProductFold(StepwiseFold):
    """Folds of the same messages, whose synopses stand side by side in a row; the tables are theirs."""

    def __init__(self, folds: Sequence[MessageFold], widths: Sequence[int]) -> None:
        """`widths` are those of the folds' synopses."""
        self.folds, self._widths = tuple(folds), tuple(widths)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its tables, with a row per slot."""
        return tuple(table for fold in self.folds for table in fold.tables)

    def leave(
        self, edges: Edges, gone: Messages, kept: Messages, moves: Moves, rows: np.ndarray, *, same_weights: bool
    ) -> None:
        """Begin an epoch in each fold's own way."""
        for fold in self.folds:
            fold.leave(edges, gone, kept, moves, rows, same_weights=same_weights)

    def arrive(self, edges: Edges, kept: Messages, come: Messages, serial: int) -> np.ndarray:
        """End the epoch; the rows that may have changed in any fold."""
        return _each_once([fold.arrive(edges, kept, come, serial) for fold in self.folds])

    def begin(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Begin an epoch, step by step."""
        for fold in self.folds:
            fold.begin(edges, moves, rows)

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Unmake messages."""
        for fold in self.folds:
            fold.take_back(edges, messages, serial)

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Merge messages."""
        for fold in self.folds:
            fold.bring(edges, messages, serial)

    def worn(self, edges: Edges) -> np.ndarray:
        """Return the touched rows that have to be recomputed in any fold."""
        return _each_once([fold.worn(edges) for fold in self.folds])

    def remake(self, edges: Edges, rows: np.ndarray, serial: int) -> None:
        """Recompute these rows from all their messages."""
        for fold in self.folds:
            fold.remake(edges, rows, serial)

    def finish(self, edges: Edges, serial: int) -> np.ndarray:
        """End the epoch, after all worn rows were recomputed; returns the rows that may have changed in any fold."""
        return _each_once([fold.finish(edges, serial) for fold in self.folds])

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write synopses to `out`, side by side."""
        for fold, width in zip(self.folds, self._widths, strict=True):
            fold.read(edges, slots, out, first)
            first += width


def _each_once(rows: list[np.ndarray]) -> np.ndarray:
    return rows[0] if len(rows) == 1 else np.unique(np.concatenate(rows))
