"""The scores of attention, one edge and head at a time: shared by UPDATE (self-loops) and the sums of a Storage."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from freshet.gnn.synopses.softmax import Score
from freshet.kernels.kernel import inner

ADDITIVE, JOINT, DOT, LEAKY_DOT, MIXED, GIVEN = range(6)
_KINDS = {"additive": ADDITIVE, "joint": JOINT, "dot": DOT, "leaky_dot": LEAKY_DOT, "mixed": MIXED, "given": GIVEN}


class Terms(NamedTuple):
    """A score as kernels see it; see gnn.synopses.softmax.Score."""

    kind: int
    heads: int
    channels: int
    source: int
    target: int
    reads: tuple[int, int]
    slope: np.float32
    factor: np.float32
    a: np.ndarray  # (heads, channels) float32, of joint scores


def terms_of(score: Score) -> Terms:
    """Return a score as kernels see it."""
    a = np.zeros((1, 1), np.float32) if score.a is None else np.ascontiguousarray(score.a, np.float32)
    places = score.heads, score.channels, score.source, score.target, score.reads
    return Terms(_KINDS[score.kind], *places, np.float32(score.slope), np.float32(score.factor), a)


@inner
def side_of(terms: Terms, source: float, target: float) -> np.int64:
    """Return on which side of 0 the sum of two additive terms is: 1 where the LeakyReLU is the identity."""
    return np.int64(source + target > 0)


@inner
def _leaky(terms: Terms, x: float) -> np.float64:
    return np.float64(x if x > 0 else np.float64(terms.slope) * x)


@inner
def score_of(terms: Terms, sources: np.ndarray, u: int, targets: np.ndarray, v: int, h: int) -> np.float64:
    """Return the score of an edge from row u of `sources` to row v of `targets`, which is not additive."""
    if terms.kind == GIVEN:
        return np.float64(sources[u, terms.source + h])
    first, total = h * terms.channels, np.float64(0)
    source = 0 if terms.kind == MIXED else terms.source
    target = 0 if terms.kind == MIXED else terms.target
    for c in range(first, first + terms.channels):
        x, y = np.float64(sources[u, source + c]), np.float64(targets[v, target + c])
        if terms.kind == JOINT:
            total += _leaky(terms, x + y) * np.float64(terms.a[h, c - first])
        else:
            total += x * y
    if terms.kind == JOINT:
        return total
    if terms.kind == MIXED:
        small = math.exp(-abs(total))
        gate = (1.0 if total > 0 else small) / (1.0 + small)
        both = np.float64(sources[u, terms.source + h]) + np.float64(targets[v, terms.target + h])
        return _leaky(terms, both * gate)
    total *= np.float64(terms.factor)
    return total if terms.kind == DOT else _leaky(terms, total)


@inner
def loop_score(terms: Terms, rows: np.ndarray, v: int, h: int, edge: np.float32) -> np.float64:
    """Return the score of the self-loop of a row; `edge` is the loop's term in an additive one."""
    if terms.kind != ADDITIVE:
        return score_of(terms, rows, v, rows, v, h)
    both = np.float64(rows[v, terms.source + h] + rows[v, terms.target + h]) + np.float64(edge)
    return both if both > 0 else np.float64(terms.slope) * both
