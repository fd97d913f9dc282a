"""Reading of synopses with one message more: that of a self-loop, which a layer adds to each vertex."""

from __future__ import annotations

import numpy as np

from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.attend import NO_TERMS, attend
from freshet.gnn.synopses.edge_network import NetworkSynopsis
from freshet.gnn.synopses.of_messages import (
    LEAST_VARIANCE,
    InvertibleSynopsis,
    MomentsSynopsis,
    MonotonicSynopsis,
    ProductSynopsis,
    Synopsis,
)
from freshet.gnn.synopses.quantiles import MulSynopsis, QuantileSynopsis
from freshet.gnn.synopses.scores import terms_of
from freshet.gnn.synopses.softmax import SoftmaxSynopsis


def read_with(synopsis: Synopsis, state: Rows, count: np.ndarray, mine: Rows) -> Rows:
    """Return the aggregates of states and of one message more each, in new rows.

    Shapes: state (n, synopsis width); count (n,), how many messages the states have; mine (n, message width) float32.
    Raises: TypeError for a synopsis that no layer has with self-loops of its own.
    """
    if isinstance(synopsis, NetworkSynopsis):
        return read_with(synopsis.inner, state, count, mine)
    if isinstance(synopsis, ProductSynopsis):
        parts = zip(synopsis.factors, synopsis.places(state.shape[1]), strict=True)
        return np.concatenate([read_with(one, state[:, a:b], count, mine) for one, (a, b) in parts], axis=1)
    if isinstance(synopsis, InvertibleSynopsis):
        total = state + mine
        return total if synopsis.kind == "sum" else total / (count + 1).astype(np.float32)[:, None]
    if isinstance(synopsis, MonotonicSynopsis):
        return extremum(synopsis.kind, state, mine, count)
    if isinstance(synopsis, MomentsSynopsis):
        found = variance(state, mine)
        return found if synopsis.kind == "var" else deviation(found)
    if isinstance(synopsis, MulSynopsis | QuantileSynopsis):
        return synopsis.read_with(state, mine)
    if isinstance(synopsis, SoftmaxSynopsis):
        out = np.empty((len(state), synopsis.score.heads * synopsis.score.channels), np.float32)
        attend(np.ascontiguousarray(state), mine, NO_TERMS, True, terms_of(synopsis.score), True, out)
        return out
    msg = f"{synopsis.name} has no reading with a message of a self-loop"
    raise TypeError(msg)


def extremum(kind: str, state: Rows, mine: Rows, count: np.ndarray) -> Rows:
    """Return the largest or smallest of states and messages, where a state of no messages says nothing."""
    out = np.array(state, np.float32, order="C")
    pair = np.maximum if kind == "max" else np.minimum
    pair(out, mine, out=out, where=(count > 0)[:, None])
    np.copyto(out, mine, where=(count == 0)[:, None])
    out += np.float32(0)  # -0.0 and 0.0 are equal, and which of them wins may depend on the place in the array
    return out


def variance(state: Rows, mine: Rows) -> Rows:
    """Return the variance of the messages of moments and of one more."""
    width = mine.shape[1]
    counted, mean, rest, others = np.split(state, [1, 1 + width, 1 + 2 * width], axis=1)
    count = counted.astype(np.float64)
    away = mine.astype(np.float64) - mean - rest
    return ((count * others + count / (count + 1) * away * away) / (count + 1)).astype(np.float32)


def deviation(of: Rows) -> Rows:
    """Return the roots of variances; 0 up to LEAST_VARIANCE."""
    least = np.float32(LEAST_VARIANCE)
    return np.where(of <= least, np.float32(0), np.sqrt(np.maximum(of, least)))
