"""Several synopses of the same messages (ProductSynopsis)."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.synopses.of_messages import ProductSynopsis
from freshet.operators.aggregates.accumulator import Accumulator
from freshet.operators.aggregates.aggregate import Aggregate, Lookup, MergePartials
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.aggregates.products.fold import ProductFold
from freshet.operators.graph.edge_messages import Messages
from freshet.state.table import TableSet


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
