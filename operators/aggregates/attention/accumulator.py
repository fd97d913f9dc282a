"""Softmax sums of messages that come and never go."""

from __future__ import annotations

import numpy as np

from freshet.gnn.synopses.scores import ADDITIVE, Terms, score_of, terms_of
from freshet.gnn.synopses.softmax import SoftmaxSynopsis
from freshet.kernels.kernel import exp, inner, kernel
from freshet.operators.aggregates.accumulator import ask_ahead
from freshet.operators.aggregates.exact_sums import read_sums
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


class SoftmaxAccumulator:
    """Softmax sums relative to the largest score so far."""

    def __init__(self, synopsis: SoftmaxSynopsis, width: int, rows: int) -> None:
        self._s, self._terms = np.zeros((rows, synopsis.width(width)), np.float64), terms_of(synopsis.score)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        """Add messages."""
        merge_softmax(self._s, z, messages, self._terms)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write [m | D | N] of every head to `out`."""
        read_sums(self._s, rows, out, first)  # a shift is a float32 already
