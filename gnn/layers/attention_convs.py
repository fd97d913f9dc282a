"""Layers that weigh their sources by a softmax of scores: GAT, GATv2, SuperGAT, TransformerConv and AGNN.

What a vertex sends is all that anybody's score reads of it, as source and as target. The self-loop that some of them
add, in place of any that is there, is no message: UPDATE makes it from the vertex's own row.
"""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import AGNNConv, AttentionConv, GATConv, GATv2Conv, SuperGATConv, TransformerConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, linear, transposed
from freshet.gnn.layers.edge_attention import AttributedAttention, edge_terms
from freshet.gnn.model import Model
from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.attend import NO_TERMS, AttentionEpilogue, attend
from freshet.gnn.synopses.scores import terms_of
from freshet.gnn.synopses.softmax import Score, SoftmaxSynopsis


class AttentionConvPlan(AttributedAttention, LayerPlan):
    """softmax_u(score(u, v)) value_u per head, side by side or averaged; then perhaps a residual and a bias.

    A row is [value | what the score reads]; `_rows` makes it, `_residual_rows` what the vertex itself adds.
    """

    _adds_residual = True
    """A residual, if any, is added as it is."""

    def __init__(self, spec: AttentionConv, score: Score, before: Chain, after: Chain) -> None:
        """Take the declaration, and the score with the places of its terms."""
        super().__init__(spec, before, after)
        self.synopsis = SoftmaxSynopsis(score)
        self.message_width = score.width
        self._terms, self._concat, self._loops = terms_of(score), spec.concat, spec.add_self_loops
        self._bias: Rows | None = None

    def _keep_own(self, residual_width: int) -> None:
        """Say what of its own UPDATE reads: the row for a self-loop, and a residual of that width."""
        self._residual_width = residual_width
        self.reads_self = self._loops or residual_width > 0
        self.self_is_message = self._loops and residual_width == 0
        row = self.message_width if self._loops else 0
        self.self_width = 0 if self.self_is_message else row + residual_width
        if self._after.types in ([], ["relu"]) and self._adds_residual and self._of_edges is None:
            bias = np.zeros(0, np.float32) if self._bias is None else np.ascontiguousarray(self._bias, np.float32)
            relu = bool(self._after.types)
            fill = np.zeros(0, np.float32) if self._edge_terms is None else self._edge_terms.fill
            self.epilogue = AttentionEpilogue(self._loops, self._concat, residual_width > 0, relu, bias, fill)

    def _send(self, x: Rows, ctx: Context) -> Rows:
        row = self._rows(x)
        if not self._residual_width:
            return row
        return np.concatenate([row, *([row] if self._loops else []), self._residual_rows(x)], axis=1)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        out, row, terms = np.empty((len(agg), self.out_channels), np.float32), own, NO_TERMS
        if self._of_edges is not None:
            agg, row = self._of_edges.split(agg, own)
        elif self._edge_terms is not None:
            agg, terms = self._edge_terms.split(agg)
        attend(agg, row, terms, self._loops, self._terms, self._concat, out)
        if self._residual_width:
            out = self._with_residual(out, own[:, own.shape[1] - self._residual_width :])
        if self._bias is not None:
            out += self._bias
        return out

    def _rows(self, x: Rows) -> Rows:
        raise NotImplementedError

    def _residual_rows(self, x: Rows) -> Rows:
        raise NotImplementedError

    def _with_residual(self, out: Rows, residual: Rows) -> Rows:
        out += residual
        return out


class GATConvPlan(AttentionConvPlan):
    """x_v' = softmax_u(LeakyReLU(a_src . W x_u + a_dst . W x_v)) W x_u + b; a row is [W x | s | t]."""

    def __init__(self, spec: GATConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        heads, size = spec.heads, spec.heads * spec.channels
        score = Score("additive", heads, spec.channels, size, size + heads, size + 2 * heads, spec.negative_slope)
        super().__init__(spec, score, before, after)
        weights = model.weights_of(prefix)
        self._bias = weights.get("bias")
        self._weight = with_terms(transposed(weights["lin.weight"]), weights["att_src"], weights["att_dst"])
        self._residual = transposed(weights["res.weight"]) if spec.residual else None
        if spec.edge_channels:
            of_edges = edge_terms(weights["lin_edge.weight"], weights["att_edge"])
            self._add_edges(score, of_edges, spec.fill_value)
        self._keep_own(spec.out_channels if spec.residual else 0)

    def _rows(self, x: Rows) -> Rows:
        return matmul(x, self._weight)

    def _residual_rows(self, x: Rows) -> Rows:
        assert self._residual is not None
        return matmul(x, self._residual)


class GATv2ConvPlan(AttentionConvPlan):
    """x_v' = softmax_u(a . LeakyReLU(l_u + r_v)) l_u + b, with l = W_l x + b_l, r = W_r x + b_r; a row is [l | r]."""

    def __init__(self, spec: GATv2Conv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        weights, size = model.weights_of(prefix), spec.heads * spec.channels
        share = spec.share_weights
        score = Score(
            "joint", spec.heads, spec.channels, 0, 0 if share else size, size if share else 2 * size,
            spec.negative_slope, a=weights["att"],
        )  # fmt: skip
        super().__init__(spec, score, before, after)
        self._bias = weights.get("bias")
        names = ["lin_l"] if share else ["lin_l", "lin_r"]
        self._both = transposed(np.concatenate([weights[f"{name}.weight"] for name in names]))
        self._biases = np.concatenate([weights[f"{name}.bias"] for name in names]) if spec.bias else None
        self._residual = transposed(weights["res.weight"]) if spec.residual else None
        if spec.edge_channels:
            self._read_edges(score, edge_terms(weights["lin_edge.weight"]), spec.fill_value)
        self._keep_own(spec.out_channels if spec.residual else 0)

    def _rows(self, x: Rows) -> Rows:
        return linear(x, self._both, self._biases)

    def _residual_rows(self, x: Rows) -> Rows:
        assert self._residual is not None
        return matmul(x, self._residual)


class SuperGATConvPlan(AttentionConvPlan):
    """x_v' = softmax_u(LeakyReLU(score)) W x_u + b, by W x_u . W x_v; a row is [W x | t | s] for MX, [W x] for SD."""

    def __init__(self, spec: SuperGATConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        heads, channels, size = spec.heads, spec.channels, spec.heads * spec.channels
        weights, slope = model.weights_of(prefix), spec.negative_slope
        if spec.attention_type == "MX":
            score = Score("mixed", heads, channels, size + heads, size, size + 2 * heads, slope)
        else:
            score = Score("leaky_dot", heads, channels, 0, 0, size, slope, channels**-0.5)
        super().__init__(spec, score, before, after)
        self._weight, self._bias = transposed(weights["lin.weight"]), weights.get("bias")
        if spec.attention_type == "MX":
            self._weight = with_terms(self._weight, weights["att_r"], weights["att_l"])
        self._keep_own(0)

    def _rows(self, x: Rows) -> Rows:
        return matmul(x, self._weight)


class TransformerConvPlan(AttentionConvPlan):
    """x_v' = softmax_u(q_v . k_u / sqrt(channels)) v_u, plus or mixed with W_skip x_v; a row is [v | k | q]."""

    def __init__(self, spec: TransformerConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        weights, size = model.weights_of(prefix), spec.heads * spec.channels
        score = Score("dot", spec.heads, spec.channels, size, 2 * size, 3 * size, factor=spec.channels**-0.5)
        super().__init__(spec, score, before, after)
        names = ["lin_value", "lin_key", "lin_query"]
        self._all = transposed(np.concatenate([weights[f"{name}.weight"] for name in names]))
        self._biases = np.concatenate([weights[f"{name}.bias"] for name in names]) if spec.bias else None
        self._skip = (
            (transposed(weights["lin_skip.weight"]), weights.get("lin_skip.bias")) if spec.root_weight else None
        )
        self._beta = transposed(weights["lin_beta.weight"]) if spec.beta else None
        self._adds_residual = not spec.beta
        if spec.edge_channels:
            self._read_edges(score, edge_terms(weights["lin_edge.weight"]), None)
        self._keep_own(spec.out_channels if spec.root_weight else 0)

    def _rows(self, x: Rows) -> Rows:
        return linear(x, self._all, self._biases)

    def _residual_rows(self, x: Rows) -> Rows:
        assert self._skip is not None
        return linear(x, *self._skip)

    def _with_residual(self, out: Rows, residual: Rows) -> Rows:
        if self._beta is None:
            return super()._with_residual(out, residual)
        beta = matmul(np.concatenate([out, residual, out - residual], axis=1), self._beta)
        elementwise.sigmoid(beta.reshape(-1))
        return beta * residual + (np.float32(1) - beta) * out


class AGNNConvPlan(AttentionConvPlan):
    """x_v' = softmax_u(beta cos(x_u, x_v)) x_u; a row is [x | x / |x|]."""

    def __init__(self, spec: AGNNConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        size = spec.in_channels
        beta = float(model.weights_of(prefix)["beta"][0])
        super().__init__(spec, Score("dot", 1, size, size, size, 2 * size, factor=beta), before, after)
        self._keep_own(0)

    def _rows(self, x: Rows) -> Rows:
        lengths_of_one = x.copy()
        elementwise.normalize_rows(lengths_of_one)
        return np.concatenate([x, lengths_of_one], axis=1)


def with_terms(weight: Rows, *of_terms: Rows) -> Rows:
    """Return the matrix that makes values, and of them terms of each head: one product for [W x | a . W x | ...].

    Shapes: weight (in_channels, heads * channels); of_terms (heads, channels) each, or (heads, heads * channels).
    """
    terms = [terms_of_values(weight, of) for of in of_terms]
    return np.ascontiguousarray(np.concatenate([weight, *terms], axis=1), np.float32)


def terms_of_values(weight: Rows, of: Rows) -> np.ndarray:
    """Return the matrix that makes a term of each head of what `weight` reads, (in_channels, heads) float64."""
    if of.size > weight.shape[1]:  # each head's term reads the values of all heads
        return np.asarray(weight.astype(np.float64) @ of.astype(np.float64).T)
    by_head = weight.astype(np.float64).reshape(len(weight), *of.shape)
    return np.asarray(np.einsum("ihc,hc->ih", by_head, of.astype(np.float64)))
