"""Attention that reads attributes of edges.

An additive score has a term of the edge beside that of the source (GAT). Of other ones a network makes a message of its
own for each edge, [values | scores | what self-loops read], and the softmax takes the scores as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshet.gnn.layers.chain import transposed
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.attend import NO_TERMS
from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis
from freshet.gnn.synopses.of_messages import ColumnsSynopsis, InvertibleSynopsis, ProductSynopsis, Synopsis
from freshet.gnn.synopses.scores import Terms, terms_of
from freshet.gnn.synopses.softmax import EdgeSoftmaxSynopsis, Score, SoftmaxSynopsis
from freshet.kernels.kernel import kernel

Fill = float | str | None


@kernel
def make_joint(terms: np.ndarray, heads: int, channels: int, slope: np.float32, a: np.ndarray, out: np.ndarray) -> None:
    """Write [l | a . LeakyReLU(l + r + e)] of rows [l | r | e] (GATv2). Shapes: a (heads, channels) float32."""
    size = heads * channels
    for i in range(len(terms)):
        for h in range(heads):
            total = np.float64(0)
            for c in range(channels):
                at = h * channels + c
                out[i, at] = terms[i, at]
                x = np.float64(terms[i, at]) + np.float64(terms[i, size + at]) + np.float64(terms[i, 2 * size + at])
                total += (x if x > 0 else np.float64(slope) * x) * np.float64(a[h, c])
            out[i, size + h] = np.float32(total)


@kernel
def make_dot(terms: np.ndarray, heads: int, channels: int, factor: np.float64, out: np.ndarray) -> None:
    """Write [v + e | factor * q . (k + e)] of rows [v | k | q | e] (TransformerConv)."""
    size = heads * channels
    for i in range(len(terms)):
        for h in range(heads):
            total = np.float64(0)
            for c in range(h * channels, (h + 1) * channels):
                e = np.float64(terms[i, 3 * size + c])
                out[i, c] = np.float32(np.float64(terms[i, c]) + e)
                total += np.float64(terms[i, 2 * size + c]) * (np.float64(terms[i, size + c]) + e)
            out[i, size + h] = np.float32(total * factor)


class EdgeTermAttention:
    """Synopsis of additive scores with a term of the edge, and the terms of the self-loops that a layer adds.

    `fill` says what attributes these have, as that of EdgeAttention.

    Shapes: w (edge width, heads) float32.
    """

    def __init__(self, score: Score, w: Rows, fill: Fill) -> None:
        self.synopsis = EdgeSoftmaxSynopsis(score, np.ascontiguousarray(w, np.float32), fill == "mean")
        of_all = np.zeros(0) if fill is None or self.synopsis.means else float(fill) * w.astype(np.float64).sum(axis=0)
        self.fill = of_all.astype(np.float32)

    def split(self, agg: Rows) -> tuple[Rows, Rows]:
        """Return the softmax sums, and the terms of self-loops, (n, heads) float32, or (0, 0) where there are none."""
        width = self.synopsis.softmax_width
        sums = np.ascontiguousarray(agg[:, :width])
        if self.synopsis.means:
            return sums, agg[:, width:-1] / np.maximum(agg[:, -1:], np.float32(1))
        return sums, np.tile(self.fill, (len(agg), 1)) if self.fill.size else NO_TERMS


class EdgeAttention:
    """Maker of the messages of attention from the ends of an edge and its attributes, and their synopsis.

    `fill` says what attributes the self-loops have that a layer adds: a number, "mean" of those of the in-edges, or
    None where it adds none. For the mean a message has the attributes, and a 1, behind its scores: their sums are kept.

    Shapes: a row that is sent as `score` says; w (edge width, columns) float32, what makes the edge's term of the
    attributes; a message (heads * channels + heads [+ edge width + 1],).
    """

    def __init__(self, score: Score, w: Rows, fill: Fill) -> None:
        self._score, self._w, self._fill = score, np.ascontiguousarray(w, np.float32), fill
        self.edge_width, term = w.shape
        values = score.heads * score.channels
        self._made = values + score.heads
        self._sums = self.edge_width + 1 if fill == "mean" else 0
        target, target_size = score.reads
        sources = {"joint": values, "dot": 2 * values}
        self.given = Score("given", score.heads, score.channels, values, 0, self._made)
        self.network = EdgeNetwork(
            0, target, sources[score.kind], "beside", self._made + self._sums, self._messages,
            self.edge_width * term, self._term, target_size, term + self._sums,
        )  # fmt: skip
        self._softmax_width = (inner := SoftmaxSynopsis(self.given)).width(0)
        factors: tuple[Synopsis, ...] = (inner,)
        if self._sums:
            columns = self._made, self._made + self._sums
            factors = inner, ColumnsSynopsis(InvertibleSynopsis("sum"), *columns)
        self.synopsis = NetworkSynopsis(ProductSynopsis(factors) if self._sums else inner, self.network, score.width)
        self._make = _maker(score)

    def split(self, agg: Rows, own: Rows, target: Rows | None = None) -> tuple[Rows, Rows]:
        """Return the softmax sums, and of each vertex the message of the self-loop that the layer adds, if it does.

        Shapes: agg (n, synopsis width); own (n, message width) rows that vertices send as sources, and target those
        that they send as targets, by default the same; results (n, heads * (channels + 2)) and (n, network.width)
        float32.
        """
        sums = np.ascontiguousarray(agg[:, : self._softmax_width])
        if self._fill is None:
            return sums, own
        if self._sums:
            count = agg[:, -1:]
            attr = agg[:, self._softmax_width : -1] / np.maximum(count, np.float32(1))
        else:
            attr = np.full((len(agg), self.edge_width), self._fill, np.float32)
        return sums, self.network.of(own, own if target is None else target, np.ascontiguousarray(attr, np.float32))

    def _term(self, attr: Rows) -> Rows:
        """Return the edge's columns, [term | attributes | 1] where the mean is kept."""
        term = matmul(attr, self._w)
        if not self._sums:
            return term
        return np.concatenate([term, attr, np.ones((len(attr), 1), np.float32)], axis=1)

    def _messages(self, terms: Rows) -> Rows:
        out = np.empty((len(terms), self._made + self._sums), np.float32)
        self._make(terms, out)
        if self._sums:
            out[:, self._made :] = terms[:, -self._sums :]
        return out


class AttributedAttention:
    """Base of plans of attention that may read attributes of edges: by a network's messages, or by terms of a score."""

    network: EdgeNetwork | None
    synopsis: Synopsis
    _loops: bool
    _terms: Terms
    _of_edges: EdgeAttention | None = None
    _edge_terms: EdgeTermAttention | None = None

    def _read_edges(self, score: Score, w: Rows, fill: Fill) -> None:
        """Read attributes of edges; `w` makes their term (see EdgeAttention)."""
        of_edges = EdgeAttention(score, w, fill if self._loops else None)
        self.network, self.synopsis = of_edges.network, of_edges.synopsis
        self._of_edges, self._terms = of_edges, terms_of(of_edges.given)

    def _add_edges(self, score: Score, w: Rows, fill: Fill) -> None:
        """Have the term that `w` makes of an edge's attributes beside that of its source, in an additive score."""
        of_edges = self._edge_terms = EdgeTermAttention(score, w, fill if self._loops else None)
        self.synopsis = of_edges.synopsis


def _maker(score: Score) -> Callable[[Rows, Rows], None]:
    heads, channels, slope = score.heads, score.channels, np.float32(score.slope)
    if score.kind == "joint":
        a = np.ascontiguousarray(score.a, np.float32)
        return lambda terms, out: make_joint(terms, heads, channels, slope, a, out)
    return lambda terms, out: make_dot(terms, heads, channels, np.float64(score.factor), out)


def edge_terms(weight: Rows, att: Rows | None = None) -> Rows:
    """Return the matrix that makes an edge's term of its attributes: W_e, or a number per head, att . W_e.

    Shapes: weight (heads * channels, edge width); att (heads, channels); result (edge width, heads * channels), or
    (edge width, heads) with att.
    """
    if att is None:
        return transposed(weight)
    by_head = weight.astype(np.float64).reshape(*att.shape, -1)
    return np.ascontiguousarray(np.einsum("hca,hc->ah", by_head, att.astype(np.float64)), np.float32)
