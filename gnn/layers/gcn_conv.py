"""GCNConv and Propagation: an aggregate scaled at both ends by the degrees, the self-loop kept in the context."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import DegreeScaledConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, transposed
from freshet.gnn.model import WeightedModel
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.by_name import synopsis_of
from freshet.gnn.synopses.of_messages import MomentsSynopsis, Synopsis
from freshet.gnn.synopses.own_message import deviation, extremum, variance

_SUMS = ("sum", "mean", "weighted_mean")


class GCNConvPlan(LayerPlan):
    """x_v' = d_v^-1/2 aggr(w_uv d_u^-1/2 W x_u, loop_v d_v^-1/2 W x_v) + b, or aggr_u(w_uv W x_u) + b un-normalised.

    A Propagation has neither W nor b.

    A source sends d_u^-1/2 x_u (times W where that does not widen, or the aggregate is not linear), so that a changed
    degree re-sends the source and not its edges. Where the layer adds self-loops, an existing one keeps its weight, as
    in PyG's gcn_norm, or is an edge beside that which is added (`existing_loops`); where it adds none, self-loops are
    edges like any other, or left out. Degrees of out-edges count edges, whatever they weigh.
    """

    def __init__(self, spec: DegreeScaledConv, model: WeightedModel, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        weights = model.weights_of(prefix)
        self._aggr: str = spec.aggr
        self.synopsis = _synopsis(spec)
        self._normalize = spec.normalize
        self._fill = spec.loop_weight
        self.source_scaled = spec.normalize
        self._degrees = spec.degrees
        self.reads_out_degrees = spec.degrees != "in"
        self.reads_context = spec.normalize or spec.add_self_loops or "mean" in spec.aggr
        self.reads_self = self.self_is_message = spec.add_self_loops
        self._keeps = spec.loops_there == "keep"
        self.one_loop = self.edge.skip_loops or self.reads_out_degrees  # the context does not count those of all types
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
        scale = self._scale_of_counts(self._out_count(ctx)) if self.reads_out_degrees else None
        scale = self._scale(ctx, self._loops(ctx)) if scale is None else scale
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
            out = np.array(agg, np.float32, order="C")
            out = out if mine is None else extremum(self._aggr, out, mine, ctx.in_edges(loops=not self.edge.skip_loops))
        else:
            out = self._variance(agg, mine)
            if scale is not None:  # what it is the root of has the square of the scale
                out *= scale * scale
                scale = None
            if self._aggr == "std":
                out = deviation(out)
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
        if self._aggr == "mean" or not self.edge.weighted:
            total = ctx.in_edges(loops=not self.edge.skip_loops).astype(np.float64)
            if loops is not None:
                total += 1 if self._aggr == "mean" else loops
        else:
            total = self._in_weight(ctx) if loops is None else self._in_weight(ctx) + loops
        made = np.zeros(out.shape, np.float64)
        np.divide(out, total[:, None], out=made, where=(total != 0)[:, None])
        out[:] = made

    def _variance(self, agg: Rows, mine: Rows | None) -> Rows:
        """Return the variance of the messages, the own one among them where there is one."""
        if mine is None:
            return np.array(agg[:, 1 + 2 * self.message_width :], np.float32, order="C")
        return variance(agg, mine)

    def _in_weight(self, ctx: Context) -> np.ndarray:
        """Return the sums of the weights of in-edges that are messages."""
        return ctx.degree if self.edge.skip_loops else ctx.in_weight

    def _loops(self, ctx: Context) -> Rows | None:
        """Return the weights of self-loops, those that the layer adds among them; None where it adds none."""
        if self._fill is None:
            return None
        fill = np.float32(self._fill)
        return np.where(np.isnan(ctx.loop) if self.edge.weighted and self._keeps else True, fill, ctx.loop)

    def _scale(self, ctx: Context, loops: Rows | None) -> Rows:
        """Return degree^-1/2 (0 for degree 0, NaN for negative ones, as torch)."""
        if self._degrees == "out":
            return self._scale_of_counts(self._out_count(ctx))
        count = ctx.in_edges(loops=not self.edge.skip_loops)
        if self._degrees == "both":
            return self._scale_of_counts(count + (self._fill is not None))
        degree = self._in_weight(ctx) if self.edge.weighted else count.astype(np.float64)
        degree = degree if loops is None else degree + loops
        scale = 1.0 / np.sqrt(degree)
        scale[np.isinf(scale)] = 0.0
        return scale.astype(np.float32)

    def _out_count(self, ctx: Context) -> np.ndarray:
        """Return the numbers of out-edges, with the self-loops that are messages and those that are added."""
        loops = 0 if self.edge.skip_loops else ~np.isnan(ctx.loop)
        count: np.ndarray = ctx.out_count + loops + (self._fill is not None)
        return count

    def _scale_of_counts(self, count: np.ndarray) -> Rows:
        """Return count^-1/2: 0 for 0 where degrees are those of out-edges, 1 where they are of both ways."""
        least = 1 if self._degrees == "both" else 0
        scale = 1 / np.sqrt(np.maximum(count, 1))
        scale[count < 1] = least
        return scale.astype(np.float32)


def _synopsis(spec: DegreeScaledConv) -> Synopsis:
    """Return what messages merge into; roots and quotients are taken of what `update` has scaled."""
    kind: str = spec.aggr
    if kind in ("std", "var"):
        return MomentsSynopsis("var", spec.edge_weights)
    return synopsis_of("sum" if kind == "weighted_mean" else kind, spec.edge_weights)
