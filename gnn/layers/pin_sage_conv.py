"""PinSAGE: the mean of its neighbours' projections, weighed by how important they are, beside the vertex itself."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import PinSAGEConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, linear, transposed
from freshet.gnn.model import Model
from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.of_messages import InvertibleSynopsis


class PinSAGEConvPlan(LayerPlan):
    """x_v' = W [x_v | sum w_uv relu(Q x_u + q) / sum w_uv] + b; the sum of weights is the context's, loops included.

    Where the layer does not widen the projection, its product is taken before sending.
    """

    def __init__(self, spec: PinSAGEConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        weights = model.weights_of(prefix)
        self.synopsis = InvertibleSynopsis("sum", self.edge.weighted)
        self.reads_context = True
        self.reads_self, self.self_width = True, spec.out_channels
        self._project = transposed(weights["lin_neighbour.weight"]), weights["lin_neighbour.bias"]
        of_self, of_mean = np.split(weights["lin.weight"], [spec.in_channels], axis=1)
        self._of_self, self._of_mean, self._bias = transposed(of_self), transposed(of_mean), weights["lin.bias"]
        self._transform_first = spec.out_channels <= spec.hidden_channels
        self.message_width = min(spec.out_channels, spec.hidden_channels)

    def _send(self, x: Rows, ctx: Context) -> Rows:
        message = linear(x, *self._project)
        elementwise.relu(message.reshape(-1))
        if self._transform_first:
            message = matmul(message, self._of_mean)
        return np.concatenate([message, matmul(x, self._of_self)], axis=1)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        total = ctx.in_weight if self.edge.weighted else ctx.count
        out = np.zeros(agg.shape, np.float64)
        np.divide(agg, total[:, None], out=out, where=(total != 0)[:, None])
        mean = out.astype(np.float32)
        if not self._transform_first:
            mean = matmul(mean, self._of_mean)
        mean += own
        mean += self._bias
        return mean
