"""GINEConv: an MLP of the vertex plus the sum of its neighbours, each with the attributes of its edge."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.declarations import GINEConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, linear, transposed
from freshet.gnn.model import Model
from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis
from freshet.gnn.synopses.of_messages import InvertibleSynopsis


class GINEConvPlan(LayerPlan):
    """x_v' = nn((1 + eps) x_v + sum_u relu(x_u + W e_uv + b)): a source sends its row, the rest is made by edge."""

    def __init__(self, spec: GINEConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        weights, width, cost = model.weights_of(prefix), spec.in_channels, 0
        edge = as_they_are
        if spec.edge_linear:
            edge = partial(linear, weight_t=transposed(weights["lin.weight"]), bias=weights["lin.bias"])
            cost = spec.edge_channels * width
        self.network = EdgeNetwork(0, -1, width, "sum", width, rectified, cost, edge)
        self.synopsis = NetworkSynopsis(InvertibleSynopsis("sum"), self.network)
        self.reads_self = self.self_is_message = True
        self.self_width, self.message_width = 0, width
        self._own_factor = np.float32(1.0 + spec.eps)
        self._nn = Chain(model, spec.nn, [f"{prefix}.nn.{i}" for i in range(len(spec.nn))])

    def _send(self, x: Rows, ctx: Context) -> Rows:
        return x

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        out = own * self._own_factor
        out += agg
        return self._nn.apply(out, own=True)


def as_they_are(attr: Rows) -> Rows:
    """Return the attributes."""
    return attr


def rectified(rows: Rows) -> Rows:
    """Return relu of rows, which it overwrites."""
    elementwise.relu(rows.reshape(-1))
    return rows
