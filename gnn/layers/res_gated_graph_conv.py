"""ResGatedGraphConv: a sum of source values, each channel through a gate that source and target open together."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import ResGatedGraphConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, linear, transposed
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.of_messages import GatedSynopsis


class ResGatedGraphConvPlan(LayerPlan):
    """x_v' = sum_u sigmoid(k_v + q_u) v_u + W_skip x_v + b; a row is [v | q | k]."""

    def __init__(self, spec: ResGatedGraphConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(before, after, spec.in_channels, spec.out_channels)
        weights, names = model.weights_of(prefix), ("lin_value", "lin_query", "lin_key")
        self.name, self.weighted = spec.type, False
        self.synopsis = GatedSynopsis(spec.out_channels)
        self.message_width = 3 * spec.out_channels
        self.reads_self, self.self_width = spec.root_weight, spec.out_channels if spec.root_weight else 0
        self._all = transposed(np.concatenate([weights[f"{name}.weight"] for name in names]))
        self._biases = np.concatenate([weights[f"{name}.bias"] for name in names])
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
