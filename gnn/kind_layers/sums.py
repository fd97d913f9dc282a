"""SAGEConv, GraphConv and GINConv in a relation: messages are rows of sources, as they are or multiplied before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from freshet.gnn.declarations import GINConv, GraphConv, Linear, SAGEConv
from freshet.gnn.kind_layers.columns import RowPiece, as_it_is, linear_piece
from freshet.gnn.kind_layers.relation_conv import Count, RelationConvPlan, Root
from freshet.gnn.layers.chain import Chain, linear, transposed
from freshet.gnn.model import WeightedModel
from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.by_name import synopsis_of


class NeighbourRelation(RelationConvPlan):
    """x_v' = W_root x_v + W aggr(f(x_u)) + b, optionally scaled to length 1.

    Where `first`, W is applied to the rows of sources, else to the aggregate.
    """

    def __init__(self, spec: SAGEConv | GraphConv, model: WeightedModel, prefix: str, first: bool) -> None:
        """Take the declaration, the prefix of its weights' names, and whether sources are multiplied."""
        super().__init__(spec)
        weights = model.weights_of(prefix)
        if isinstance(spec, GraphConv):
            names, self._normalize = ("lin_rel", "lin_root"), False
        else:
            names, self._normalize = ("lin_l", "lin_r"), spec.normalize
        weight, bias = transposed(weights[f"{names[0]}.weight"]), weights.get(f"{names[0]}.bias")
        own = weights.get(f"{names[1]}.weight")
        self.synopsis, self.reads_count = synopsis_of(spec.aggr, self.edge.weighted), "mean" in spec.aggr
        self.after = None if first else weight
        self.is_sum = spec.aggr in ("sum", "mean") and not self._normalize
        self.source = as_it_is(spec.in_channels)
        if isinstance(spec, SAGEConv) and spec.project:
            projection = transposed(weights["lin.weight"]), weights["lin.bias"]
            width = spec.out_channels if first else spec.in_channels
            self.source = RowPiece(
                (prefix, "projected"), width, make=_projected(*projection, weight if first else None)
            )
        elif first:
            self.source = linear_piece(weight)
        root = Root(None if own is None else transposed(own), bias)
        if self._normalize and own is not None:  # the length is that of the sum
            self.own, self._bias = (linear_piece(transposed(own)),), bias
        elif self._normalize:
            self._bias = bias
        else:
            self.root = root

    def update(self, agg: Rows, own: Sequence[Rows], count: Count) -> Rows:
        """Return the aggregate, multiplied if sources were not."""
        out = self.synopsis.read(agg, count)
        out = np.array(out, np.float32, order="C") if self.after is None else matmul(out, self.after)
        if self._normalize:
            for row in own:
                out += row
            if self._bias is not None:
                out += self._bias
            elementwise.normalize_rows(out)
        return out


def _projected(weight: Rows, bias: Rows, then: Rows | None) -> Callable[[Rows], Rows]:
    def make(x: Rows) -> Rows:
        rows = linear(x, weight, bias)
        elementwise.relu(rows.reshape(-1))
        return rows if then is None else matmul(rows, then)

    return make


class GINRelation(RelationConvPlan):
    """x_v' = nn((1 + eps) x_v + aggr_u(x_u)).

    Where `first`, the first linear layer of nn is applied to the rows of both ends, its bias after aggregating.
    """

    def __init__(self, spec: GINConv, model: WeightedModel, prefix: str, first: bool) -> None:
        """Take the declaration, the prefix of its weights' names, and whether sources are multiplied."""
        super().__init__(spec)
        self.synopsis, self.reads_count = synopsis_of(spec.aggr, weighted=False), spec.aggr == "mean"
        self._own_factor, self._bias = np.float32(1.0 + spec.eps), None
        layers, names = list(spec.nn), [f"{prefix}.nn.{i}" for i in range(len(spec.nn))]
        self.source = as_it_is(spec.in_channels)
        if first:
            opening = layers[0]
            assert isinstance(opening, Linear)  # or sources could not be multiplied
            weights = model.weights_of(names[0])
            self.source = linear_piece(transposed(weights["weight"]))
            self._bias, layers, names = weights.get("bias"), layers[1:], names[1:]
        self.own = (self.source,)
        self._nn = Chain(model, layers, names)

    def update(self, agg: Rows, own: Sequence[Rows], count: Count) -> Rows:
        """Return what nn makes of the vertex and the aggregate."""
        out = own[0] * self._own_factor
        out += self.synopsis.read(agg, count)
        if self._bias is not None:
            out += self._bias
        return self._nn.apply(out, own=True)


def width_first(spec: SAGEConv | GraphConv | GINConv) -> int | None:
    """Return how wide messages are if sources are multiplied before; None where they cannot be."""
    if not synopsis_of(spec.aggr, weighted=False).is_linear:
        return None
    if isinstance(spec, GINConv):
        return spec.nn[0].out_channels if spec.nn and isinstance(spec.nn[0], Linear) else None
    return spec.out_channels
