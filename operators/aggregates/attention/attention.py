"""Softmax sums (SoftmaxSynopsis)."""

from __future__ import annotations

from functools import partial

from freshet.gnn.synopses.softmax import SoftmaxSynopsis
from freshet.operators.aggregates.aggregate import Aggregate, MergePartials
from freshet.operators.aggregates.attention.accumulator import SoftmaxAccumulator
from freshet.operators.aggregates.attention.fold import AttentionFold
from freshet.operators.aggregates.attention.messages import MadeAttentionFold
from freshet.operators.aggregates.attention.reading import merge_partial_attention
from freshet.operators.aggregates.fold_store import FoldStore


def _merger(synopsis: SoftmaxSynopsis) -> MergePartials:
    heads = synopsis.score.heads
    return lambda index, partial, slots, out, shifts, columns: merge_partial_attention(
        index, partial, slots, out, shifts, columns, heads
    )


ATTENTION = Aggregate[SoftmaxSynopsis](
    store=partial(FoldStore, AttentionFold),
    merger=_merger,
    accumulator=SoftmaxAccumulator,
    accumulator_bytes=lambda synopsis, width: 8 * synopsis.width(width),
    message_fold=MadeAttentionFold,
)
