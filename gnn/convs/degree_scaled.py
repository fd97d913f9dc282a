"""Declarations of the layers whose messages are scaled by the degrees of both ends of an edge."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from freshet.gnn.convs.base import (
    AggregatingConv,
    Aggregator,
    Conv,
    ExistingLoops,
    check_existing_loops,
    check_same_width,
)
from freshet.gnn.rows.dense import linear_shapes
from freshet.gnn.rows.layer import Shape


class DegreeScaledConv(AggregatingConv):
    """Base of aggregates of weighted rows that are scaled by the degrees of both ends; not scaled without `normalize`.

    d_v is the sum of the weights w_uv of the in-edges of v, with the self-loop. A vertex that has a self-loop keeps its
    weight; one without gets a loop of `loop_weight` where `add_self_loops`.
    """

    LATER: ClassVar[dict[str, Any]] = AggregatingConv.LATER | {"degrees": "in"}

    type: str
    add_self_loops: bool = True
    normalize: bool = True
    degrees: Literal["in", "out", "both"] = "in"
    edge_weights: bool = Field(True, description="false where the module does not hand edge weights to the layer")

    @model_validator(mode="after")
    def _degrees_of_edges(self) -> DegreeScaledConv:
        if self.degrees != "in" and not self.normalize:
            msg = f"{self.type}: degrees {self.degrees} need normalize, which scales by them"
            raise ValueError(msg)
        return self

    @property
    def loop_weight(self) -> float | None:
        """Weight of the self-loop that a vertex without one gets; None where it gets none."""
        return 1.0 if self.add_self_loops else None


class GCNConv(DegreeScaledConv):
    """x_v' = aggr_u(d_u^-1/2 w_uv d_v^-1/2 W x_u) + b, PyG's GCNConv; the self-loop of v is among the messages.

    d_v is the sum of the weights w_uv of the in-edges of v, with its self-loop. A vertex that has a self-loop keeps its
    weight. A degree of 0 scales by 0.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        aggr: Aggregate of the messages: sum, mean, max, min, std or var.
        add_self_loops: Whether vertices without a self-loop get one; needs `normalize`.
        normalize: Whether messages are scaled by degrees; without, x_v' = aggr_u(w_uv W x_u) + b.
        degrees: "in"; or "out", for d_u and d_v that count the out-edges of source and destination, 0 scaling by 0; or
            "both" for DGL's norm of that name: d_u counts the out-edges of a source, d_v the in-edges of a destination,
            each at least 1. Both count edges whatever they weigh, with the self-loops that there are then.
        edge_weights: Whether messages are multiplied by w_uv; without, w_uv is 1.
        improved: Whether added self-loops have the weight 2, else 1. Without edge weights they have 1, as in PyG.
        bias: Whether b is added.

    Weights: lin.weight (W), (out_channels, in_channels); bias (b), (out_channels,). All float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError for `add_self_loops` without `normalize`, a width below 1, or an unknown option or value.
    Source: Kipf and Welling, Semi-supervised classification with graph convolutional networks (2017).
    """

    type: Literal["gcn_conv"] = "gcn_conv"
    improved: bool = False
    bias: bool = True

    @model_validator(mode="after")
    def _loops_need_normalize(self) -> GCNConv:
        if self.add_self_loops and not self.normalize:
            msg = f"{self.type}: add_self_loops needs normalize (as in PyG); set add_self_loops to false"
            raise ValueError(msg)
        return self

    @property
    def loop_weight(self) -> float | None:
        """Weight of the self-loop that a vertex without one gets: 2 where `improved`, as PyG does it."""
        # without edge weights all weights are 1 in PyG, loops included
        return 2.0 if self.add_self_loops and self.improved and self.edge_weights else super().loop_weight

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        shapes = linear_shapes("lin.", self.in_channels, self.out_channels, bias=False)
        return shapes | ({"bias": (self.out_channels,)} if self.bias else {})


class Propagation(DegreeScaledConv):
    """x_v' = aggr_u(d_u^-1/2 w_uv d_v^-1/2 x_u), one hop of SGC, APPNP, TAGConv, LightGCN, ClusterGCN and others.

    Degrees and self-loops are those of GCNConv; of `existing_loops` those of PyG's functions that change edges.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: The same width.
        aggr: Aggregate of the messages: sum, mean, max, min, std, var, or weighted_mean, the sum divided by the sum of
            the weights (0 where that is 0).
        add_self_loops: Whether vertices without a self-loop get one, of weight `self_weight`.
        normalize: Whether messages are scaled by degrees; without, x_v' = aggr_u(w_uv x_u).
        degrees: "in"; or "out", for d_u and d_v that count the out-edges of source and destination, 0 scaling by 0; or
            "both" for DGL's norm of that name: d_u counts the out-edges of a source, d_v the in-edges of a destination,
            each at least 1. Both count edges whatever they weigh, with the self-loops that there are then.
        edge_weights: Whether messages are multiplied by w_uv; without, w_uv is 1, and self_weight in every self-loop
            if they are added.
        self_weight: Weight of added self-loops.
        existing_loops: Treatment of self-loops that the graph has: keep, as in GCNConv; beside, they are edges in
            addition to the added ones (add_self_loops); drop, they are left out (remove_self_loops).

    Weights: none.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError for two different widths, weighted_mean with `normalize`, `existing_loops` beside where none are
        added, or an unknown option or value.
    Source: Wu et al., Simplifying graph convolutional networks (2019).
    """

    LATER: ClassVar[dict[str, Any]] = DegreeScaledConv.LATER | {"self_weight": 1.0, "existing_loops": "keep"}

    type: Literal["propagation"] = "propagation"
    aggr: Aggregator | Literal["weighted_mean"] = "sum"  # type: ignore[assignment]
    self_weight: float = 1.0
    existing_loops: ExistingLoops = "keep"

    @model_validator(mode="after")
    def _fits(self) -> Propagation:
        check_same_width(self)
        if self.aggr == "weighted_mean" and self.normalize:
            msg = "propagation: aggr weighted_mean needs normalize false, since it divides by the weights itself"
            raise ValueError(msg)
        check_existing_loops(self.type, self.existing_loops, self.add_self_loops)
        return self

    @property
    def loop_weight(self) -> float | None:
        """Weight of the self-loop that a vertex without one gets; None where it gets none."""
        return self.self_weight if self.add_self_loops else None


class Laplacian(Conv):
    """x_v' = (2 / lambda) (L x)_v - x_v, a hop of PyG's ChebConv: L is the Laplacian, scaled by out-degrees.

    With d_u, the sum of the weights w_uv of the out-edges of u, and self-loops left out, (L x)_v is x_v minus
    sum_u(d_u^-1/2 w_uv d_v^-1/2 x_u) for sym, x_v - sum_u(w_uv x_u / d_u) for rw, d_v x_v - sum_u(w_uv x_u) for none.
    A degree of 0 scales by 0.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: The same width.
        normalization: sym, rw or none.
        lambda_max: The eigenvalue that L is scaled by, above 0.
        edge_weights: Whether messages are multiplied by w_uv; without, w_uv is 1.

    Weights: none.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError for two different widths, or an unknown option or value.
    Source: Defferrard et al., Convolutional neural networks on graphs with fast localized spectral filtering (2016).
    """

    type: Literal["laplacian"] = "laplacian"
    normalization: Literal["sym", "rw", "none"] = "sym"
    lambda_max: Annotated[float, Field(gt=0)] = 2.0
    edge_weights: bool = Field(True, description="false where the module does not hand edge weights to the layer")

    @model_validator(mode="after")
    def _keeps_its_width(self) -> Laplacian:
        check_same_width(self)
        return self

    @property
    def skips_loops(self) -> bool:
        """True: its diagonal is that of the Laplacian."""
        return True
