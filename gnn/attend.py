"""The end of attention: what a vertex makes of its softmax sums, with the self-loop that is no edge."""

from __future__ import annotations

import math

import numpy as np

from gnn.kernel import kernel
from gnn.scores import Terms, loop_score


@kernel
def attend(agg: np.ndarray, own: np.ndarray, loops: bool, terms: Terms, concat: bool, out: np.ndarray) -> None:
    """Divide N by D per head, after adding the self-loop where there are loops; heads side by side, or their mean.

    Shapes: agg (n, heads * (channels + 2)) float32, see gnn.softmax.SoftmaxSynopsis; own (n, at least
    the width of a row) float32, the vertex's own rows, read with loops alone; out (n, heads * channels) float32, or
    (n, channels) without concat.
    """
    heads, channels = terms.heads, terms.channels
    for i in range(len(agg)):
        if not concat:
            for c in range(channels):
                out[i, c] = np.float32(0)
        for h in range(heads):
            first = h * (channels + 2)
            shift, bottom = np.float64(agg[i, first]), np.float64(agg[i, first + 1])
            ours, theirs = np.float64(0), np.float64(1)
            if loops:
                logit = loop_score(terms, own, i, h)
                if bottom == 0:
                    shift, theirs = logit, np.float64(0)
                most = max(shift, logit)
                theirs *= math.exp(shift - most)
                ours = np.float64(math.exp(logit - most))
            total = bottom * theirs + ours
            for c in range(channels):
                value = np.float64(0)
                if total != 0:
                    value = np.float64(agg[i, first + 2 + c]) * theirs
                    if loops:
                        value += ours * np.float64(own[i, h * channels + c])
                    value /= total
                if concat:
                    out[i, h * channels + c] = np.float32(value)
                else:
                    out[i, c] += np.float32(value / heads)
