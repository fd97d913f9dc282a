"""GINConv: an MLP of the vertex plus an aggregate of its neighbours."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import GINConv, Linear
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, transposed
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.by_name import synopsis_of


class GINConvPlan(LayerPlan):
    """x_v' = nn((1 + eps) x_v + aggr_u(x_u)).

    Where the aggregate is linear, the first linear layer of nn is taken before sending if it does not widen, its bias
    after aggregating.
    """

    def __init__(self, spec: GINConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        layers = list(spec.nn)
        names = [f"{prefix}.nn.{i}" for i in range(len(layers))]
        self.synopsis = synopsis_of(spec.aggr, weighted=False)
        self.reads_context = spec.aggr == "mean"
        self.reads_self = self.self_is_message = True
        self.self_width = 0
        self._own_factor = np.float32(1.0 + spec.eps)
        self._first: Rows | None = None
        self._bias: Rows | None = None
        self.message_width = spec.in_channels
        first = layers[0] if layers and self.synopsis.is_linear else None
        if isinstance(first, Linear) and first.out_channels <= spec.in_channels:
            weights = model.weights_of(names[0])
            self._first, self._bias = transposed(weights["weight"]), weights.get("bias")
            self.message_width = first.out_channels
            layers, names = layers[1:], names[1:]
        self._nn = Chain(model, layers, names)

    def _send(self, x: Rows, ctx: Context) -> Rows:
        return x if self._first is None else matmul(x, self._first)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        out = own * self._own_factor
        out += self.synopsis.read(agg, ctx.count)
        if self._bias is not None:
            out += self._bias
        return self._nn.apply(out, own=True)
