"""GCNConv and Propagation: an aggregate scaled at both ends by the degrees, the self-loop kept in the context."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import DegreeScaledConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, transposed
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.by_name import synopsis_of
from freshet.gnn.synopses.of_messages import LEAST_VARIANCE, MomentsSynopsis, Synopsis

_SUMS = ("sum", "mean", "weighted_mean")


class GCNConvPlan(LayerPlan):
    """x_v' = d_v^-1/2 aggr(w_uv d_u^-1/2 W x_u, loop_v d_v^-1/2 W x_v) + b, or aggr_u(w_uv W x_u) + b un-normalised.

    A Propagation has neither W nor b.

    A source sends d_u^-1/2 x_u (times W where that does not widen, or the aggregate is not linear), so that a changed
    degree re-sends the source and not its edges. Where the layer adds self-loops, an existing one keeps its weight, as
    in PyG's gcn_norm; where it adds none, self-loops are edges like any other.
    """

    def __init__(self, spec: DegreeScaledConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(before, after, spec.in_channels, spec.out_channels)
        weights = model.weights_of(prefix)
        self.name = spec.type
        self.weighted = spec.edge_weights
        self._aggr: str = spec.aggr
        self.synopsis = _synopsis(spec)
        self._normalize = spec.normalize
        self._fill = spec.loop_weight
        self.source_scaled = spec.normalize
        self._by_out_edges = self.reads_out_degrees = spec.degrees == "both"
        self.reads_context = spec.normalize or spec.add_self_loops or "mean" in spec.aggr
        self.one_loop = spec.add_self_loops or self._by_out_edges  # a count of those of all types is not in the context
        self.skip_loops = self.reads_self = self.self_is_message = spec.add_self_loops
        self._weight = transposed(weights["lin.weight"]) if "lin.weight" in weights else None
        self._bias = weights.get("bias")
        narrows = spec.out_channels <= spec.in_channels or not self.synopsis.is_linear
        self._transform_first = self._weight is not None and narrows
        self.message_width = spec.out_channels if self._transform_first else spec.in_channels
        self.self_width = 0

    def _send(self, x: Rows, ctx: Context) -> Rows:
        if self._transform_first and self._weight is not None:
            x = matmul(x, self._weight)
        if not self._normalize:
            return x
        if self._by_out_edges:
            count = ctx.out_count + ~np.isnan(ctx.loop)
            return x * (1 / np.sqrt(np.maximum(count, 1))).astype(np.float32)[:, None]
        scale = self._scale(ctx, self._loops(ctx))
        return x * scale[:, None]

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        loops = self._loops(ctx)
        mine = None if loops is None else own * loops[:, None]
        scale = self._scale(ctx, loops)[:, None] if self._normalize else None
        if self._aggr in _SUMS:
            out = np.array(agg, np.float32, order="C")
            if mine is not None:
                out += mine
            self._divide(out, ctx, loops)
        elif self._aggr in ("max", "min"):
            out = self._extremum(agg, mine, ctx)
        else:
            out = self._variance(agg, mine)
            if scale is not None:  # what it is the root of has the square of the scale
                out *= scale * scale
                scale = None
            if self._aggr == "std":
                least = np.float32(LEAST_VARIANCE)
                out = np.where(out <= least, np.float32(0), np.sqrt(np.maximum(out, least)))
        if scale is not None:
            out *= scale
        if not self._transform_first and self._weight is not None:
            out = matmul(out, self._weight)
        if self._bias is not None:
            out += self._bias
        return out

    def _divide(self, out: Rows, ctx: Context, loops: Rows | None) -> None:
        """Make a mean of sums in place."""
        if self._aggr == "sum":
            return
        if self._aggr == "mean" or not self.weighted:
            total = self._others(ctx).astype(np.float64)
            if loops is not None:
                total += 1 if self._aggr == "mean" else loops
        else:
            total = ctx.in_weight if loops is None else ctx.degree + loops
        made = np.zeros(out.shape, np.float64)
        np.divide(out, total[:, None], out=made, where=(total != 0)[:, None])
        out[:] = made

    def _extremum(self, agg: Rows, mine: Rows | None, ctx: Context) -> Rows:
        out = np.array(agg, np.float32, order="C")
        if mine is not None:
            pair = np.maximum if self._aggr == "max" else np.minimum
            pair(out, mine, out=out, where=(self._others(ctx) > 0)[:, None])
            np.copyto(out, mine, where=(self._others(ctx) == 0)[:, None])
            out += np.float32(0)  # -0.0 and 0.0 are equal, and which of them wins may depend on the place in the array
        return out

    def _variance(self, agg: Rows, mine: Rows | None) -> Rows:
        """Return the variance of the messages, the own one among them where there is one."""
        count, mean, rest, variance = np.split(agg, [1, 1 + self.message_width, 1 + 2 * self.message_width], axis=1)
        if mine is None:
            return np.array(variance, np.float32, order="C")
        count = count.astype(np.float64)
        away = mine.astype(np.float64) - mean - rest
        return ((count * variance + count / (count + 1) * away * away) / (count + 1)).astype(np.float32)

    def _others(self, ctx: Context) -> np.ndarray:
        """Return the numbers of in-edges that are messages."""
        count: np.ndarray = ctx.count - ~np.isnan(ctx.loop) if self.skip_loops else ctx.count
        return count

    def _loops(self, ctx: Context) -> Rows | None:
        """Return the weights of self-loops, those that the layer adds among them; None where it adds none."""
        if self._fill is None:
            return None
        fill = np.float32(self._fill)
        return np.where(np.isnan(ctx.loop) if self.weighted else True, fill, ctx.loop)

    def _scale(self, ctx: Context, loops: Rows | None) -> Rows:
        """Return degree^-1/2 (0 for degree 0, NaN for negative ones, as torch)."""
        if self._by_out_edges:
            degree = np.maximum(ctx.count, 1).astype(np.float64)
        elif loops is not None:
            degree = (ctx.degree if self.weighted else self._others(ctx)) + loops.astype(np.float64)
        else:
            degree = ctx.in_weight if self.weighted else ctx.count.astype(np.float64)
        scale = 1.0 / np.sqrt(degree)
        scale[np.isinf(scale)] = 0.0
        return scale.astype(np.float32)


def _synopsis(spec: DegreeScaledConv) -> Synopsis:
    """Return what messages merge into; roots and quotients are taken of what `update` has scaled."""
    kind: str = spec.aggr
    if kind in ("std", "var"):
        return MomentsSynopsis("var", spec.edge_weights)
    return synopsis_of("sum" if kind == "weighted_mean" else kind, spec.edge_weights)
