"""Softmax sums (SoftmaxSynopsis)."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.synopses.softmax import EdgeSoftmaxSynopsis, SoftmaxSynopsis
from freshet.operators.aggregates.accumulator import Accumulator
from freshet.operators.aggregates.aggregate import Aggregate, MergePartials
from freshet.operators.aggregates.attention.accumulator import SoftmaxAccumulator
from freshet.operators.aggregates.attention.by_edge import EdgeAttentionFold
from freshet.operators.aggregates.attention.fold import AttentionFold
from freshet.operators.aggregates.attention.messages import MadeAttentionFold
from freshet.operators.aggregates.attention.reading import merge_partial_attention
from freshet.operators.aggregates.exact_sums import merge_partial_sums
from freshet.operators.aggregates.fold_store import FoldStore


def _merger(synopsis: SoftmaxSynopsis) -> MergePartials:
    heads = synopsis.score.heads
    return lambda index, partial, slots, out, shifts, columns: merge_partial_attention(
        index, partial, slots, out, shifts, columns, heads
    )


def _merger_of_terms(synopsis: EdgeSoftmaxSynopsis) -> MergePartials:
    softmax, sums = _merger(synopsis), synopsis.sums_of_terms

    def merge(
        index: np.ndarray,
        partial: np.ndarray,
        slots: np.ndarray,
        out: np.ndarray,
        shifts: tuple[int, int],
        columns: tuple[int, int],
    ) -> None:
        first = columns[0] + synopsis.softmax_width
        softmax(index, partial, slots, out, shifts, (columns[0], first))
        if sums:
            merge_partial_sums(index, partial, slots, out, shifts, (first, columns[1]))

    return merge


def _refuse(synopsis: EdgeSoftmaxSynopsis, width: int, rows: int) -> Accumulator:
    """Refuse to accumulate: a full pass has no attributes of edges.

    Raises: TypeError.
    """
    msg = f"a {type(synopsis).__name__} reads attributes of edges, which a full pass has none of"
    raise TypeError(msg)


ATTENTION = Aggregate[SoftmaxSynopsis](
    store=partial(FoldStore, AttentionFold),
    merger=_merger,
    accumulator=SoftmaxAccumulator,
    accumulator_bytes=lambda synopsis, width: 8 * synopsis.width(width),
    message_fold=MadeAttentionFold,
)
EDGE_ATTENTION = Aggregate[EdgeSoftmaxSynopsis](
    store=partial(FoldStore, EdgeAttentionFold),
    merger=_merger_of_terms,
    accumulator=_refuse,
    accumulator_bytes=lambda synopsis, width: 8 * synopsis.width(width),
)
