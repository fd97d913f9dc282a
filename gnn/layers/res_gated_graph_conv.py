"""ResGatedGraphConv: a sum of source values, each channel through a gate that source and target open together."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.declarations import ResGatedGraphConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, linear, transposed
from freshet.gnn.model import Model
from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis
from freshet.gnn.synopses.of_messages import GatedSynopsis, InvertibleSynopsis


class ResGatedGraphConvPlan(LayerPlan):
    """x_v' = sum_u sigmoid(k_v + q_u) v_u + W_skip x_v + b; a row is [v | q | k].

    With attributes a network makes the messages: value and gate are linear in source, target and attributes. So each of
    these has terms [v | q] of its own, a target [0 | k].
    """

    def __init__(self, spec: ResGatedGraphConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        weights, names = model.weights_of(prefix), ["lin_value", "lin_query", "lin_key"]
        read, channels = spec.in_channels, spec.out_channels
        self.synopsis = GatedSynopsis(spec.out_channels)
        self.message_width = 3 * spec.out_channels
        self.reads_self, self.self_width = spec.root_weight, spec.out_channels if spec.root_weight else 0
        all_weights = [weights[f"{name}.weight"][:, :read] for name in names]
        biases = [weights[f"{name}.bias"] for name in names]
        if spec.edge_channels:
            value, query, key = (weights[f"{name}.weight"][:, read:] for name in names)
            of_edges = transposed(np.concatenate([value, query + key]))
            cost = 2 * channels * spec.edge_channels
            gated = partial(_gated, channels=channels)
            edge = partial(matmul, w=of_edges)
            self.network = EdgeNetwork(0, 2 * channels, 2 * channels, "sum", channels, gated, cost, edge)
            self.synopsis = NetworkSynopsis(InvertibleSynopsis("sum"), self.network)
            self.message_width = 4 * channels
            all_weights.insert(2, np.zeros_like(all_weights[0]))
            biases.insert(2, np.zeros_like(biases[0]))
        self._all, self._biases = transposed(np.concatenate(all_weights)), np.concatenate(biases)
        self._skip = transposed(weights["lin_skip.weight"]) if spec.root_weight else None
        self._bias = weights.get("bias")

    def _send(self, x: Rows, ctx: Context) -> Rows:
        row = linear(x, self._all, self._biases)
        return row if self._skip is None else np.concatenate([row, matmul(x, self._skip)], axis=1)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        out = np.array(agg, np.float32, order="C") if self._skip is None else agg + own
        if self._bias is not None:
            out += self._bias
        return out


def _gated(terms: Rows, channels: int) -> Rows:
    """Return values times the sigmoids of the gates' terms, channel by channel, of rows [values | gates]."""
    gates = np.ascontiguousarray(terms[:, channels:])
    elementwise.sigmoid(gates.reshape(-1))
    gates *= terms[:, :channels]
    return gates
