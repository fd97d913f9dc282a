"""GINEConv and EdgeConv in a relation: a network makes each message of its ends and its edge's attributes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from freshet.gnn.declarations import EdgeConv, GINEConv, Linear
from freshet.gnn.kind_layers.columns import as_it_is, linear_piece
from freshet.gnn.kind_layers.relation_conv import Count, RelationConvPlan
from freshet.gnn.layers.chain import Chain, linear, transposed
from freshet.gnn.layers.edge_conv import WIDENING, terms_of_ends
from freshet.gnn.layers.gine_conv import as_they_are, rectified
from freshet.gnn.model import WeightedModel
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.by_name import synopsis_of
from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis
from freshet.gnn.synopses.of_messages import InvertibleSynopsis


class GINERelation(RelationConvPlan):
    """x_v' = nn((1 + eps) x_v + sum_u relu(x_u + W e_uv + b)): a source sends its row, the rest is made by edge."""

    def __init__(self, spec: GINEConv, model: WeightedModel, prefix: str, first: bool) -> None:
        """Take the declaration and the prefix of its weights' names."""
        weights, width, cost = model.weights_of(prefix), spec.in_channels, 0
        super().__init__(spec)
        edge = as_they_are
        if spec.edge_linear:
            edge = partial(linear, weight_t=transposed(weights["lin.weight"]), bias=weights["lin.bias"])
            cost = spec.edge_channels * width
        self.network = EdgeNetwork(0, -1, width, "sum", width, rectified, cost, edge)
        self.synopsis = NetworkSynopsis(InvertibleSynopsis("sum"), self.network, width)
        self.source, self.own = as_it_is(width), (as_it_is(width),)
        self._own_factor = np.float32(1.0 + spec.eps)
        self._nn = Chain(model, spec.nn, [f"{prefix}.nn.{i}" for i in range(len(spec.nn))])

    def update(self, agg: Rows, own: Sequence[Rows], count: Count) -> Rows:
        """Return what nn makes of the vertex and the sum."""
        out = own[0] * self._own_factor
        out += agg
        return self._nn.apply(out, own=True)


class EdgeConvRelation(RelationConvPlan):
    """x_v' = aggr_u nn([x_v | x_u - x_v]).

    If a first linear layer does not widen much, its terms of source and target are made once per vertex, as in a
    graph of one kind.
    """

    def __init__(self, spec: EdgeConv, model: WeightedModel, prefix: str, first: bool) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec)
        self.reads_count = "mean" in spec.aggr
        layers, names = list(spec.nn), [f"{prefix}.nn.{i}" for i in range(len(spec.nn))]
        opening, size = layers[0] if layers else None, spec.in_channels
        self.source = self.target = as_it_is(size)
        is_additive = isinstance(opening, Linear) and opening.out_channels <= WIDENING * spec.in_channels
        if is_additive:
            both, biases = terms_of_ends(model.weights_of(names[0]))
            size = both.shape[1] // 2
            parts = [np.ascontiguousarray(half) for half in np.split(both, 2, axis=1)]
            self.source = linear_piece(parts[0])
            self.target = linear_piece(parts[1], None if biases is None else biases[size:])
            layers, names = layers[1:], names[1:]
        rest, width = Chain(model, layers, names), spec.out_channels // spec.aggregates
        cost = sum(layer.multiplications for layer in layers)
        ends = partial(rest.apply, own=True)
        self.network = EdgeNetwork(0, 0, size, "sum" if is_additive else "difference", width, ends, cost)
        self.synopsis = NetworkSynopsis(synopsis_of(spec.aggr, False), self.network, size)

    def update(self, agg: Rows, own: Sequence[Rows], count: Count) -> Rows:
        """Return the aggregate."""
        return np.array(self.synopsis.read(agg, count), np.float32, order="C")
