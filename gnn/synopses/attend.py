"""The end of attention: what a vertex makes of its softmax sums, with the self-loop that is no edge."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.gnn.synopses.scores import Terms, loop_score
from freshet.kernels.kernel import exp, inner, kernel


class AttentionEpilogue(NamedTuple):
    """An UPDATE that is one pass over rows: `attend`, then perhaps a residual, a bias, and ReLU.

    Shapes: bias (out_width,) float32, or (0,) where there is none; see `fill`.
    """

    loops: bool
    """There are self-loops that are no edges."""
    concat: bool
    """Heads stand side by side; else their mean is taken."""
    residual: bool
    """The last columns of the self input are added."""
    relu: bool
    bias: np.ndarray
    fill: np.ndarray
    """Terms of each head of all self-loops, (heads,) float32; (0,) where they have none, or the mean of the edges'."""

    @property
    def makes_again(self) -> bool:
        """False: rows are kept, and never made again of what made them."""
        return False


@inner
def exp_of(x: float) -> np.float64:
    """e^x; 1 for 0, of which there are many, at once."""
    return np.float64(1) if x == 0 else np.float64(exp(x))


@inner
def weights_of_head(
    agg: np.ndarray,
    first: int,
    own: np.ndarray,
    o: int,
    h: int,
    edge: np.float32,
    loops: bool,
    terms: Terms,
    concat: bool,
) -> tuple[np.float64, np.float64]:
    """Return the factors of the sums of a head, [m | D | N] from `agg[first]` on, and of its own values.

    `edge` is the self-loop's term in an additive score, 0 where it has none.
    """
    shift, bottom = np.float64(agg[first]), np.float64(agg[first + 1])
    ours, theirs = np.float64(0), np.float64(1)
    if loops:
        logit = loop_score(terms, own, o, h, edge)
        if bottom == 0:
            shift, theirs = logit, np.float64(0)
        most = max(shift, logit)
        theirs *= exp_of(shift - most)
        ours = exp_of(logit - most)
    total = bottom * theirs + ours
    share = np.float64(0) if total == 0 else (1 if concat else 1 / np.float64(terms.heads)) / total
    return theirs * share, ours * share


NO_TERMS = np.zeros((0, 0), np.float32)


@inner
def put_head(
    agg: np.ndarray,
    first: int,
    theirs: np.float64,
    own: np.ndarray,
    o: int,
    h: int,
    ours: np.float64,
    loops: bool,
    terms: Terms,
    concat: bool,
    begin: int,
    out: np.ndarray,
) -> None:
    """Write what one row makes of one head, from its channel `begin` on, to `out`; without concat, add its share."""
    channels, values, at = np.uint64(terms.channels), np.uint64(first + 2), np.uint64(h * terms.channels)
    to, begun = at if concat else np.uint64(0), np.uint64(begin)
    for c in range(begun, channels if loops else begun):
        value = np.float32(np.float64(agg[values + c]) * theirs + np.float64(own[o, at + c]) * ours)
        out[to + c] = value if concat else out[to + c] + value
    for c in range(begun, begun if loops else channels):
        value = np.float32(np.float64(agg[values + c]) * theirs)
        out[to + c] = value if concat else out[to + c] + value


@kernel
def attend(
    agg: np.ndarray, own: np.ndarray, edge: np.ndarray, loops: bool, terms: Terms, concat: bool, out: np.ndarray
) -> None:
    """Divide N by D per head, after adding the self-loop where there are loops; heads side by side, or their mean.

    Shapes: agg (n, heads * (channels + 2)) float32, see gnn.softmax.SoftmaxSynopsis; own (n, at least
    the width of a row) float32, the vertex's own rows, read with loops alone; edge (n, heads) float32, the terms of
    self-loops, or (0, 0) where there are none; out (n, heads * channels) float32, or
    (n, channels) without concat.
    """
    for i in range(len(agg)):
        if not concat:
            for c in range(terms.channels):
                out[i, c] = np.float32(0)
        for h in range(terms.heads):
            first, term = h * (terms.channels + 2), edge[i, h] if len(edge) else np.float32(0)
            theirs, ours = weights_of_head(agg[i], first, own, i, h, term, loops, terms, concat)
            put_head(agg[i], first, theirs, own, i, h, ours, loops, terms, concat, 0, out[i])


@kernel
def merge_heads(into: np.ndarray, more: np.ndarray, heads: int) -> None:
    """Merge softmax sums into others, row by row, as those of all their messages.

    Shapes: into, more (n, heads * (channels + 2)) float32, see gnn.softmax.SoftmaxSynopsis.
    """
    size = into.shape[1] // heads
    for i in range(len(into)):
        for first in range(0, heads * size, size):
            if more[i, first + 1] == 0:
                continue
            if into[i, first + 1] == 0:
                for c in range(first, first + size):
                    into[i, c] = more[i, c]
                continue
            shift, other = np.float64(into[i, first]), np.float64(more[i, first])
            most = max(shift, other)
            ours, theirs = exp_of(shift - most), exp_of(other - most)
            into[i, first] = np.float32(most)
            for c in range(first + 1, first + size):
                into[i, c] = np.float32(np.float64(into[i, c]) * ours + np.float64(more[i, c]) * theirs)
