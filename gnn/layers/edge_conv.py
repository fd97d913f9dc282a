"""EdgeConv: an aggregate of what a network makes of both ends of each edge."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.declarations import EdgeConv, Linear
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, linear, transposed
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.by_name import synopsis_of
from freshet.gnn.synopses.edge_network import EdgeNetwork, EndsForm, NetworkSynopsis

WIDENING = 2  # by so much a first linear layer may widen and still be taken before sending


class EdgeConvPlan(LayerPlan):
    """x_v' = aggr_u nn([x_v | x_u - x_v]).

    A first linear layer is additive: [x_v | x_u - x_v] W = x_u W_2 + x_v (W_1 - W_2). If it does not widen much, its
    two terms are computed once per vertex, and a row is [source's | target's]; each edge then adds them and runs the
    rest of nn. Otherwise a row is the input itself.
    """

    def __init__(self, spec: EdgeConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        self.reads_self, self.self_width = False, 0
        self.reads_context = "mean" in spec.aggr  # a name, or a tuple of names
        layers, names = list(spec.nn), [f"{prefix}.nn.{i}" for i in range(len(spec.nn))]
        self._terms: tuple[Rows, Rows | None] | None = None
        source, target, size = 0, 0, spec.in_channels
        if layers and isinstance(layers[0], Linear) and layers[0].out_channels <= WIDENING * spec.in_channels:
            self._terms = terms_of_ends(model.weights_of(names[0]))
            target = size = layers[0].out_channels
            layers, names = layers[1:], names[1:]
        rest, ends = Chain(model, layers, names), _ends_of(self._terms)
        width, cost = spec.out_channels // spec.aggregates, sum(layer.multiplications for layer in layers)
        self.network = EdgeNetwork(source, target, size, ends, width, partial(rest.apply, own=True), cost)
        self.synopsis = NetworkSynopsis(synopsis_of(spec.aggr, weighted=False), self.network)
        self.message_width = target + size

    def _send(self, x: Rows, ctx: Context) -> Rows:
        return x if self._terms is None else linear(x, *self._terms)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        return np.array(self.synopsis.read(agg, ctx.count), np.float32, order="C")


def _ends_of(terms: tuple[Rows, Rows | None] | None) -> EndsForm:
    return "difference" if terms is None else "sum"


def terms_of_ends(weights: dict[str, Rows]) -> tuple[Rows, Rows | None]:
    """Return the product that makes both terms of a vertex, for a linear layer of [x_v | x_u - x_v], and its bias."""
    of_target, of_difference = np.split(weights["weight"], 2, axis=1)
    both = transposed(np.concatenate([of_difference, of_target - of_difference]))
    if "bias" not in weights:
        return both, None
    return both, np.concatenate([np.zeros_like(weights["bias"]), weights["bias"]])
