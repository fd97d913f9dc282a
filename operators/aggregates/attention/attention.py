"""Softmax sums (SoftmaxSynopsis): how Storages and Tails keep them, and a full pass, in which messages never go."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.synopses.scores import ADDITIVE, Terms, score_of, terms_of
from freshet.gnn.synopses.softmax import EdgeSoftmaxSynopsis, SoftmaxSynopsis
from freshet.kernels.kernel import exp, inner, kernel
from freshet.operators.aggregates.accumulator import Accumulator, RowAccumulator, ask_ahead
from freshet.operators.aggregates.aggregate import Aggregate, MergePartials
from freshet.operators.aggregates.attention.fold import AttentionFold, EdgeAttentionFold
from freshet.operators.aggregates.attention.messages import MadeAttentionFold
from freshet.operators.aggregates.attention.reading import merge_partial_attention
from freshet.operators.aggregates.exact_sums import merge_partial_sums, read_sums
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.graph.edge_messages import Messages


@inner
def _score(terms: Terms, z: np.ndarray, u: int, v: int, h: int) -> np.float64:
    if terms.kind != ADDITIVE:
        return score_of(terms, z, u, z, v, h)
    both = np.float64(z[u, terms.source + h]) + np.float64(z[v, terms.target + h])
    return both if both > 0 else np.float64(terms.slope) * both


@inner
def _raise_shift(s: np.ndarray, v: int, at: int, channels: int, score: float) -> np.float64:
    """Have a head's sums relative to a score that is larger than all before, as it is written: in float32."""
    shift = np.float64(np.float32(score))
    if s[v, at + 1] != 0:
        factor = exp(s[v, at] - shift)
        for j in range(at + 1, at + 2 + channels):
            s[v, j] *= factor
    s[v, at] = shift
    return shift


@kernel
def merge_softmax(s: np.ndarray, z: np.ndarray, messages: Messages, terms: Terms) -> None:
    """Add messages to softmax sums whose shift is the largest score so far.

    Shapes: s (rows, heads * (channels + 2)) float64, [m | D | N] per head, 0 without messages; z (values, width)
    float32, the destinations' rows first.
    """
    channels = terms.channels
    for i in range(len(messages.src)):
        ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        for h in range(terms.heads):
            at = h * (channels + 2)
            score, shift = _score(terms, z, u, v, h), s[v, at]
            if s[v, at + 1] == 0 or score > shift:
                shift = _raise_shift(s, v, at, channels, score)
            p = exp(score - shift)
            s[v, at + 1] += p
            for c in range(channels):
                s[v, at + 2 + c] += p * np.float64(z[u, h * channels + c])


def softmax_accumulator(synopsis: SoftmaxSynopsis, width: int, rows: int) -> Accumulator:
    """Return room for softmax sums relative to the largest score so far, a shift among them that is a float32."""
    s, terms = np.zeros((rows, synopsis.width(width)), np.float64), terms_of(synopsis.score)
    return RowAccumulator(
        lambda z, messages: merge_softmax(s, z, messages, terms),
        lambda got, at, out, first: read_sums(s, at, out, first),
    )


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
    accumulator=softmax_accumulator,
    accumulator_bytes=lambda synopsis, width: 8 * synopsis.width(width),
    message_fold=MadeAttentionFold,
)
EDGE_ATTENTION = Aggregate[EdgeSoftmaxSynopsis](
    store=partial(FoldStore, EdgeAttentionFold),
    merger=_merger_of_terms,
    accumulator=_refuse,
    accumulator_bytes=lambda synopsis, width: 8 * synopsis.width(width),
)
