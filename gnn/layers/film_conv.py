"""FiLMConv: an aggregate of messages that their targets scale and shift."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import FiLMConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.by_name import synopsis_of
from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis


class FiLMConvPlan(LayerPlan):
    """x_v' = aggr_u act(gamma_v z_u + beta_v).

    A row is [z | 0 | 0 | beta | gamma]: a source's columns [z | 0 | 0] and a target's [0 | beta | gamma] overlap, and
    their sum is what a message is made of.
    """

    def __init__(self, spec: FiLMConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        self.reads_self, self.self_width = False, 0
        self.reads_context = spec.aggr == "mean"
        self._width = width = spec.out_channels
        self._act = Chain(model, spec.act, [f"{prefix}.act.{i}" for i in range(len(spec.act))])
        cost = sum(layer.multiplications for layer in spec.act)
        self.network = EdgeNetwork(0, 2 * width, 3 * width, "sum", width, self._modulated, cost)
        self.synopsis = NetworkSynopsis(synopsis_of(spec.aggr, weighted=False), self.network)
        self.message_width = 5 * width

    def _modulated(self, terms: Rows) -> Rows:
        value, beta, gamma = np.split(terms, 3, axis=1)
        made = np.multiply(gamma, value, order="C")
        made += beta
        return self._act.apply(made, own=True)

    def _send(self, x: Rows, ctx: Context) -> Rows:
        value, film = np.split(x, [self._width], axis=1)
        return np.concatenate([value, np.zeros((len(x), 2 * self._width), np.float32), film], axis=1)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        return np.array(self.synopsis.read(agg, ctx.count), np.float32, order="C")
