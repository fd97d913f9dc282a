"""Several synopses of the same messages side by side (ProductSynopsis), and such of some columns (ColumnsSynopsis)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from freshet.gnn.synopses.of_messages import ColumnsSynopsis, ProductSynopsis
from freshet.operators.aggregates.accumulator import Accumulator, RowAccumulator
from freshet.operators.aggregates.aggregate import Aggregate, Lookup, MergePartials
from freshet.operators.aggregates.fold import MessageFold
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.state.table import TableSet


class ProductFold(MessageFold):
    """Folds of the same messages, whose synopses stand side by side in a row; the tables are theirs."""

    def __init__(self, folds: Sequence[MessageFold], widths: Sequence[int]) -> None:
        """`widths` are those of the folds' synopses."""
        super().__init__(*(table for fold in folds for table in fold.tables))
        self.folds, self._widths = tuple(folds), tuple(widths)

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


class ProductAccumulator:
    """The factors' accumulators, all of which get every message."""

    def __init__(self, factors: list[Accumulator], widths: list[int]) -> None:
        """`widths` are those of the factors' synopses."""
        self._factors, self._widths = factors, widths

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        """Merge messages."""
        for factor in self._factors:
            factor.merge(z, messages)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write synopses to `out`, side by side."""
        for factor, width in zip(self._factors, self._widths, strict=True):
            factor.read(got, rows, out, first)
            first += width


def products_of(of: Lookup) -> Aggregate[ProductSynopsis]:
    """Return how they are kept, where `of` says how the factors are."""

    def fold(tables: TableSet, name: str, width: int, synopsis: ProductSynopsis) -> ProductFold:
        names = [name] if len(synopsis.factors) == 1 else [f"{name}{i}." for i in range(len(synopsis.factors))]
        pairs = zip(names, synopsis.factors, strict=True)
        folds = [of(factor).fold_of(tables, named, width, factor) for named, factor in pairs]
        return ProductFold(folds, [factor.width(width) for factor in synopsis.factors])

    def accumulator(synopsis: ProductSynopsis, width: int, rows: int) -> ProductAccumulator:
        factors = [of(factor).accumulator(factor, width, rows) for factor in synopsis.factors]
        return ProductAccumulator(factors, [factor.width(width) for factor in synopsis.factors])

    def merger(synopsis: ProductSynopsis) -> MergePartials:
        mergers = [of(factor).merger(factor) for factor in synopsis.factors]

        def merge(
            index: np.ndarray,
            partial: np.ndarray,
            slots: np.ndarray,
            out: np.ndarray,
            shifts: tuple[int, int],
            columns: tuple[int, int],
        ) -> None:
            for merge_factor, (first, end) in zip(mergers, synopsis.places(columns[1] - columns[0]), strict=True):
                merge_factor(index, partial, slots, out, shifts, (columns[0] + first, columns[0] + end))

        return merge

    return Aggregate(
        store=partial(FoldStore, fold),
        merger=merger,
        accumulator=accumulator,
        accumulator_bytes=lambda synopsis, width: sum(
            of(factor).accumulator_bytes(factor, width) for factor in synopsis.factors
        ),
        message_fold=fold,
    )


class ColumnsFold(MessageFold):
    """A fold of some columns of the messages that others bring; the tables are that one's."""

    def __init__(self, inner: MessageFold, first: int, end: int) -> None:
        super().__init__(*inner.tables)
        self._inner, self._columns = inner, slice(first, end)

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

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write synopses to `out`, from column `first` on."""
        self._inner.read(edges, slots, out, first)

    def _cut(self, edges: Edges) -> Edges:
        return edges._replace(z=edges.z._replace(data=np.ascontiguousarray(edges.z.data[:, self._columns])))


def columns_of(of: Lookup) -> Aggregate[ColumnsSynopsis]:
    """Return how they are kept, where `of` says how the synopses of the columns are."""

    def fold(tables: TableSet, name: str, width: int, synopsis: ColumnsSynopsis) -> ColumnsFold:
        first, end = synopsis.first, synopsis.end
        return ColumnsFold(of(synopsis.inner).fold_of(tables, name, end - first, synopsis.inner), first, end)

    def accumulator(synopsis: ColumnsSynopsis, width: int, rows: int) -> Accumulator:
        first, end = synopsis.first, synopsis.end
        inner = of(synopsis.inner).accumulator(synopsis.inner, end - first, rows)
        return RowAccumulator(
            lambda z, messages: inner.merge(np.ascontiguousarray(z[:, first:end]), messages), inner.read
        )

    return Aggregate(
        store=partial(FoldStore, fold),
        merger=lambda synopsis: of(synopsis.inner).merger(synopsis.inner),
        accumulator=accumulator,
        accumulator_bytes=lambda synopsis, _: of(synopsis.inner).accumulator_bytes(
            synopsis.inner, synopsis.end - synopsis.first
        ),
        message_fold=fold,
    )
