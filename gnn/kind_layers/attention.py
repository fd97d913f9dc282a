"""GAT, GATv2 and TransformerConv in a relation: sources send values and their terms of scores, targets theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from freshet.gnn.declarations import GATConv, GATv2Conv, TransformerConv
from freshet.gnn.kind_layers.columns import RowPiece, linear_piece
from freshet.gnn.kind_layers.relation_conv import Count, RelationConvPlan, Root
from freshet.gnn.layers.attention_convs import terms_of_values, with_terms
from freshet.gnn.layers.chain import transposed
from freshet.gnn.layers.edge_attention import AttributedAttention, edge_terms
from freshet.gnn.model import WeightedModel
from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.attend import NO_TERMS, attend, merge_heads
from freshet.gnn.synopses.scores import terms_of
from freshet.gnn.synopses.softmax import Score, SoftmaxSynopsis

Weights = dict[str, Rows]


class AttentionRelation(AttributedAttention, RelationConvPlan):
    """softmax_u(score(u, v)) value_u per head, side by side or averaged.

    A source's columns are [value | what the score reads of a source], a target's what it reads of a target. Within one
    kind, a self-loop may be added, which is no edge: `update` makes it from the vertex's own columns of both sides.
    """

    def __init__(self, spec: GATConv | GATv2Conv | TransformerConv, score: Score, loop_score: Score) -> None:
        """Take the declaration, the score of an edge, and that of a self-loop, of a row [source's | target's]."""
        super().__init__(spec)
        self.synopsis = SoftmaxSynopsis(score)
        self._terms, self._concat, self._loops = terms_of(loop_score), spec.concat, spec.add_self_loops

    def _keep(self, source: RowPiece, target: RowPiece) -> None:
        """Take the columns of both ends."""
        self.source, self.target = source, target
        self.own = (source, target) if self._loops else ()

    def update(self, agg: Rows, own: Sequence[Rows], count: Count) -> Rows:
        """Return the sums of values, divided by those of weights, after adding self-loops."""
        row, terms = agg, NO_TERMS
        if self._of_edges is not None:
            agg, row = self._of_edges.split(agg, own[0] if self._loops else agg, own[1] if self._loops else None)
        elif self._loops:
            row = np.concatenate(own, axis=1)
        if self._edge_terms is not None:
            agg, terms = self._edge_terms.split(agg)
        return self._attended(agg, row, terms)

    def of_all(self, others: Sequence[RelationConvPlan], aggregates: Sequence[Rows]) -> Rows:
        """Return what `update` would make if the messages of other convs, of the same heads, were its own as well."""
        sums = self._sums(aggregates[0]).copy()
        for other, agg in zip(others, aggregates[1:], strict=True):
            assert isinstance(other, AttentionRelation)  # KindsModel has checked it
            merge_heads(sums, other._sums(agg), self._terms.heads)
        return self._attended(sums, sums, NO_TERMS)

    def _sums(self, agg: Rows) -> Rows:
        if self._edge_terms is not None:
            return self._edge_terms.split(agg)[0]
        return agg if self._of_edges is None else self._of_edges.split(agg, agg)[0]

    def _attended(self, sums: Rows, row: Rows, terms: Rows) -> Rows:
        out = np.empty((len(sums), self.out_width), np.float32)
        attend(sums, row, terms, self._loops, self._terms, self._concat, out)
        return out


class GATRelation(AttentionRelation):
    """x_v' = softmax_u(LeakyReLU(a_src . W x_u + a_dst . W x_v)) W x_u + b."""

    def __init__(self, spec: GATConv, model: WeightedModel, prefix: str, first: bool) -> None:
        """Take the declaration and the prefix of its weights' names."""
        heads, size = spec.heads, spec.heads * spec.channels
        score = Score("additive", heads, spec.channels, size, 0, size + heads, spec.negative_slope)
        super().__init__(spec, score, replace(score, target=size + heads, width=size + 2 * heads))
        weights = model.weights_of(prefix)
        values = transposed(weights["lin.weight"])
        of_target = transposed(weights["lin_dst.weight"]) if "lin_dst.weight" in weights else values
        source = linear_piece(with_terms(values, weights["att_src"]))
        target = terms_of_values(of_target, weights["att_dst"]).astype(np.float32)
        self._keep(source, linear_piece(np.ascontiguousarray(target)))
        if spec.edge_channels:
            self._add_edges(score, edge_terms(weights["lin_edge.weight"], weights["att_edge"]), spec.fill_value)
        self.root = _residual(weights)


class GATv2Relation(AttentionRelation):
    """x_v' = softmax_u(a . LeakyReLU(l_u + r_v)) l_u + b, with l = W_l x + b_l, r = W_r x + b_r."""

    def __init__(self, spec: GATv2Conv, model: WeightedModel, prefix: str, first: bool) -> None:
        """Take the declaration and the prefix of its weights' names."""
        weights, size = model.weights_of(prefix), spec.heads * spec.channels
        score = Score("joint", spec.heads, spec.channels, 0, 0, size, spec.negative_slope, a=weights["att"])
        super().__init__(spec, score, replace(score, target=size, width=2 * size))
        left, right = "lin_l", "lin_l" if spec.share_weights else "lin_r"
        self._keep(_functions(weights, [left]), _functions(weights, [right]))
        if spec.edge_channels:
            self._read_edges(score, edge_terms(weights["lin_edge.weight"]), spec.fill_value)
        self.root = _residual(weights)


class TransformerRelation(AttentionRelation):
    """x_v' = softmax_u(q_v . k_u / sqrt(channels)) v_u, plus or mixed with W_skip x_v."""

    def __init__(self, spec: TransformerConv, model: WeightedModel, prefix: str, first: bool) -> None:
        """Take the declaration and the prefix of its weights' names."""
        weights, size = model.weights_of(prefix), spec.heads * spec.channels
        score = Score("dot", spec.heads, spec.channels, size, 0, 2 * size, factor=spec.channels**-0.5)
        super().__init__(spec, score, score)
        self._keep(_functions(weights, ["lin_value", "lin_key"]), _functions(weights, ["lin_query"]))
        if spec.edge_channels:
            self._read_edges(score, edge_terms(weights["lin_edge.weight"]), None)
        self._beta = transposed(weights["lin_beta.weight"]) if spec.beta else None
        if self._beta is not None:
            self.own = (_functions(weights, ["lin_skip"]),)
        elif spec.root_weight:
            self.root = Root(transposed(weights["lin_skip.weight"]), weights.get("lin_skip.bias"))

    def update(self, agg: Rows, own: Sequence[Rows], count: Count) -> Rows:
        """Return the sums of values, divided by those of weights; with beta mixed with W_skip x_v."""
        out = super().update(agg, own, count)
        if self._beta is None:
            return out
        beta = matmul(np.concatenate([out, own[0], out - own[0]], axis=1), self._beta)
        elementwise.sigmoid(beta.reshape(-1))
        return beta * own[0] + (np.float32(1) - beta) * out


def _functions(weights: Weights, names: Sequence[str]) -> RowPiece:
    """Return the columns of linear functions beside each other."""
    weight = transposed(np.concatenate([weights[f"{name}.weight"] for name in names]))
    biases = [weights[f"{name}.bias"] for name in names if f"{name}.bias" in weights]
    return linear_piece(weight, np.concatenate(biases) if biases else None)


def _residual(weights: Weights) -> Root:
    return Root(transposed(weights["res.weight"]) if "res.weight" in weights else None, weights.get("bias"))
