"""GCNConv and Propagation: a sum scaled at both ends by the degrees, the vertex's self-loop kept in the context."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import DegreeScaledConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, transposed
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.of_messages import InvertibleSynopsis


class GCNConvPlan(LayerPlan):
    """x_v' = W d_v^-1/2 (sum_u w_uv d_u^-1/2 x_u + loop_v d_v^-1/2 x_v) + b, or W sum_u w_uv x_u + b un-normalised.

    A Propagation has neither W nor b.

    A source sends d_u^-1/2 x_u (times W where that does not widen), so that a changed degree re-sends the source
    and not its edges. Where the layer adds self-loops, an existing one keeps its weight, as in PyG's gcn_norm; where it
    adds none, self-loops are edges like any other.
    """

    def __init__(self, spec: DegreeScaledConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(before, after, spec.in_channels, spec.out_channels)
        weights = model.weights_of(prefix)
        self.name = spec.type
        self.weighted = spec.edge_weights
        self.synopsis = InvertibleSynopsis("sum", self.weighted)
        self._normalize = spec.normalize
        self._fill = spec.loop_weight
        self.source_scaled = self.reads_context = spec.normalize
        self.skip_loops = self.one_loop = self.reads_self = self.self_is_message = spec.add_self_loops
        self._weight = transposed(weights["lin.weight"]) if "lin.weight" in weights else None
        self._bias = weights.get("bias")
        self._transform_first = self._weight is not None and spec.out_channels <= spec.in_channels
        self.message_width = spec.out_channels if self._transform_first else spec.in_channels
        self.self_width = 0

    def _send(self, x: Rows, ctx: Context) -> Rows:
        if self._transform_first and self._weight is not None:
            x = matmul(x, self._weight)
        if not self._normalize:
            return x
        scale, _ = self._scale(ctx)
        return x * scale[:, None]

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        out = np.array(agg, np.float32, order="C")
        if self._normalize:
            scale, loop = self._scale(ctx)
            if self._fill is not None:
                out += own * loop[:, None]
            out *= scale[:, None]
        if not self._transform_first and self._weight is not None:
            out = matmul(out, self._weight)
        if self._bias is not None:
            out += self._bias
        return out

    def _scale(self, ctx: Context) -> tuple[Rows, Rows]:
        """Return degree^-1/2 (0 for degree 0, NaN for negative ones, as torch) and the weights of added self-loops."""
        loop, has_loop = ctx.loop, ~np.isnan(ctx.loop)
        if self._fill is not None:
            kept = loop if self.weighted else np.float32(1.0)
            loop = np.where(has_loop, kept, np.float32(self._fill))
            degree = (ctx.degree if self.weighted else ctx.count - has_loop) + loop.astype(np.float64)
        else:
            degree = ctx.in_weight if self.weighted else ctx.count.astype(np.float64)
        scale = 1.0 / np.sqrt(degree)
        scale[np.isinf(scale)] = 0.0
        return scale.astype(np.float32), loop
