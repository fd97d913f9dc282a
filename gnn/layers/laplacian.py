"""A hop of ChebConv: a sum scaled by the degrees of sources over their out-edges, and the vertex itself."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import Laplacian
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.of_messages import InvertibleSynopsis


class LaplacianPlan(LayerPlan):
    """x_v' = (t L_vv - 1) x_v - t s_v sum_u(w_uv s_u x_u), with t = 2 / lambda; s is degree^-1/2 for sym.

    For rw a source is divided by its degree, and for none L_vv is the degree. At lambda 2 a scaled x_v is not needed.
    """

    def __init__(self, spec: Laplacian, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration; there are no weights."""
        super().__init__(spec, before, after)
        self.synopsis = InvertibleSynopsis("sum", self.edge.weighted)
        self._kind, self._times = spec.normalization, np.float32(2 / spec.lambda_max)
        self.reads_out_degrees = True
        self.source_scaled = spec.normalization != "none"
        self.reads_context = spec.normalization != "rw"
        self.reads_self = spec.normalization == "none" or spec.lambda_max != 2
        self.message_width = spec.in_channels
        self.self_is_message = self.reads_self and not self.source_scaled
        self.self_width = self.message_width if self.reads_self and self.source_scaled else 0

    def _send(self, x: Rows, ctx: Context) -> Rows:
        if not self.source_scaled:
            return x
        message = x * self._scale(ctx)
        return np.concatenate([message, x], axis=1) if self.reads_self else message

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        out = agg * -self._times
        if self._kind == "sym":
            out *= self._scale(ctx)
        if self._kind == "none":
            out += own * (self._times * self._degree(ctx) - 1).astype(np.float32)[:, None]
        elif self.reads_self:
            out += own * (self._times - np.float32(1))
        return out

    def _degree(self, ctx: Context) -> np.ndarray:
        degree: np.ndarray = ctx.out_degree if self.edge.weighted else ctx.out_count.astype(np.float64)
        return degree

    def _scale(self, ctx: Context) -> Rows:
        """Return degree^-1/2, or degree^-1 for rw: 0 for degree 0, NaN for negative roots, as torch."""
        degree = self._degree(ctx)
        scale = 1.0 / (np.sqrt(degree) if self._kind == "sym" else degree)
        scale[np.isinf(scale)] = 0.0
        return scale.astype(np.float32)[:, None]
