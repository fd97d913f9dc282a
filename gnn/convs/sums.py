"""Declarations of the layers whose messages are rows of sources, scaled, gated or as they are."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from freshet.gnn.convs.base import AggregatingConv, Aggregator, Conv, check_same_width
from freshet.gnn.rows.chains import chain_tensors, chain_width
from freshet.gnn.rows.dense import DenseLayer, linear_shapes
from freshet.gnn.rows.layer import Shape, Width


class RootedConv(Conv):
    """Base of x_v' = W_root x_v + W_rel aggr_u(w_uv x_u) + b."""

    type: str
    aggr: Aggregator = "sum"
    bias: bool = True
    edge_weights: bool = Field(True, description="false where the module does not hand edge weights to the layer")

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        relation = linear_shapes("lin_rel.", self.in_channels, self.out_channels, bias=self.bias)
        return relation | linear_shapes("lin_root.", self.target_width, self.out_channels, bias=False)


class GraphConv(RootedConv):
    """x_v' = W_root x_v + W_rel aggr_u(w_uv x_u) + b, PyG's GraphConv; an empty neighbourhood gives 0.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        aggr: Aggregate of the messages: sum, mean, max, min, std or var.
        bias: Whether b is added.
        edge_weights: Whether messages are multiplied by w_uv; without, w_uv is 1.
        target_channels: Width of the rows of targets in a relation whose ends are given as two; else left out.

    Weights: lin_rel.weight (W_rel), (out_channels, in_channels), and lin_root.weight (W_root), (out_channels,
    in_channels or target_channels); lin_rel.bias (b), (out_channels,). All float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError for a width below 1, or an unknown option or value.
    Source: Morris et al., Weisfeiler and Leman go neural (2019).
    """

    LATER: ClassVar[dict[str, Any]] = {"target_channels": None}

    type: Literal["graph_conv"] = "graph_conv"
    target_channels: Width | None = None


class CommNetConv(RootedConv):
    """x_v' = W_root x_v + W_rel sum_u x_u: CommNet; PyG's GraphConv without bias and weights.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        aggr: sum.
        bias: False.
        edge_weights: False.

    Weights: lin_rel.weight (W_rel) and lin_root.weight (W_root), (out_channels, in_channels) float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError for a width below 1, or an unknown option or value.
    Source: NeutronRT, table II.
    """

    type: Literal["comm_net_conv"] = "comm_net_conv"
    aggr: Literal["sum"] = "sum"
    bias: Literal[False] = False
    edge_weights: Literal[False] = False


class PinSAGEConv(Conv):
    """x_v' = W [x_v | sum_u w_uv relu(Q x_u + q) / sum_u w_uv] + b: PinSAGE.

    w_uv is the importance of the neighbour. Where the sum of w_uv is 0, as without neighbours, the mean is 0. The relu
    and the rows of length 1 that follow in PinSAGE are layers of their own.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        hidden_channels: Width of Q x_u + q, at least 1.
        edge_weights: Whether messages are multiplied by w_uv; without, w_uv is 1.

    Weights: lin_neighbour.weight (Q), (hidden_channels, in_channels); lin_neighbour.bias (q), (hidden_channels,);
    lin.weight (W), (out_channels, in_channels + hidden_channels); lin.bias (b), (out_channels,). All float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError for a width below 1, or an unknown option or value.
    Source: NeutronRT, table II.
    """

    type: Literal["pin_sage_conv"] = "pin_sage_conv"
    hidden_channels: Width
    edge_weights: bool = Field(True, description="false where all neighbours are equally important")

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        shapes = linear_shapes("lin_neighbour.", self.in_channels, self.hidden_channels, bias=True)
        return shapes | linear_shapes("lin.", self.in_channels + self.hidden_channels, self.out_channels, bias=True)


class SAGEConv(Conv):
    """x_v' = W_r x_v + W_l aggr_u(x_u) + b: GraphSAGE, PyG's SAGEConv; reads no edge weights.

    With `project`, relu(W x_u + p) is aggregated in the place of x_u. With `normalize`, x_v' is divided by its length.
    Several aggregators stand beside each other: W_l [aggr_1(x_u) | aggr_2(x_u) | ...].

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        aggr: Aggregate of the messages: sum, mean, max, min, std or var; or several of them.
        normalize: Whether rows are divided by their Euclidean length.
        root_weight: Whether W_r x_v is added.
        project: Whether sources are projected before they are aggregated.
        bias: Whether b is added.
        target_channels: Width of the rows of targets in a relation whose ends are given as two; else left out.

    Weights: lin_l.weight (W_l), (out_channels, in_channels * aggregators); lin_l.bias (b), (out_channels,);
    lin_r.weight (W_r), (out_channels, in_channels or target_channels); lin.weight (W), (in_channels, in_channels);
    lin.bias (p), (in_channels,). All float32; those of an option that is off are absent.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError for a width below 1, no aggregator, or an unknown option or value.
    Source: Hamilton et al., Inductive representation learning on large graphs (2017).
    """

    LATER: ClassVar[dict[str, Any]] = {"target_channels": None}

    type: Literal["sage_conv"] = "sage_conv"
    aggr: Aggregator | Annotated[tuple[Aggregator, ...], Field(min_length=1)] = "mean"
    normalize: bool = False
    root_weight: bool = True
    project: bool = False
    bias: bool = True
    target_channels: Width | None = None

    @property
    def reads_own(self) -> bool:
        """True if the result for a vertex depends on its own row."""
        return self.root_weight

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        aggregators = 1 if isinstance(self.aggr, str) else len(self.aggr)
        shapes = linear_shapes("lin_l.", self.in_channels * aggregators, self.out_channels, bias=self.bias)
        if self.root_weight:
            shapes |= linear_shapes("lin_r.", self.target_width, self.out_channels, bias=False)
        if self.project:
            shapes |= linear_shapes("lin.", self.in_channels, self.in_channels, bias=True)
        return shapes


class DegreeScaledConv(AggregatingConv):
    """Base of aggregates of weighted rows that are scaled by the degrees of both ends; not scaled without `normalize`.

    d_v is the sum of the weights w_uv of the in-edges of v, with the self-loop. A vertex that has a self-loop keeps its
    weight; one without gets a loop of `loop_weight` where `add_self_loops`.
    """

    LATER: ClassVar[dict[str, Any]] = AggregatingConv.LATER | {"degrees": "in"}

    type: str
    add_self_loops: bool = True
    normalize: bool = True
    degrees: Literal["in", "both"] = "in"
    edge_weights: bool = Field(True, description="false where the module does not hand edge weights to the layer")

    @model_validator(mode="after")
    def _degrees_of_edges(self) -> DegreeScaledConv:
        if self.degrees == "both" and (self.add_self_loops or not self.normalize):
            msg = f"{self.type}: degrees of both ways need normalize, and add_self_loops false: they count edges"
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
        degrees: "in", or "both" for DGL's norm of that name: d_u counts the out-edges of a source, d_v the in-edges of
            a destination, each at least 1, whatever they weigh.
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

    Degrees and self-loops are those of GCNConv.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: The same width.
        aggr: Aggregate of the messages: sum, mean, max, min, std, var, or weighted_mean, the sum divided by the sum of
            the weights (0 where that is 0).
        add_self_loops: Whether vertices without a self-loop get one, of weight `self_weight`.
        normalize: Whether messages are scaled by degrees; without, x_v' = aggr_u(w_uv x_u).
        degrees: "in", or "both" for DGL's norm of that name: d_u counts the out-edges of a source, d_v the in-edges of
            a destination, each at least 1, whatever they weigh.
        edge_weights: Whether messages are multiplied by w_uv; without, w_uv is 1, and self_weight in every self-loop
            if they are added.
        self_weight: Weight of added self-loops.

    Weights: none.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError for two different widths, weighted_mean with `normalize`, or an unknown option or value.
    Source: Wu et al., Simplifying graph convolutional networks (2019).
    """

    LATER: ClassVar[dict[str, Any]] = DegreeScaledConv.LATER | {"self_weight": 1.0}

    type: Literal["propagation"] = "propagation"
    aggr: Aggregator | Literal["weighted_mean"] = "sum"  # type: ignore[assignment]
    self_weight: float = 1.0

    @model_validator(mode="after")
    def _fits(self) -> Propagation:
        check_same_width(self)
        if self.aggr == "weighted_mean" and self.normalize:
            msg = "propagation: aggr weighted_mean needs normalize false, since it divides by the weights itself"
            raise ValueError(msg)
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


class GINConv(AggregatingConv):
    """x_v' = nn((1 + eps) x_v + aggr_u(x_u)), PyG's GINConv; reads no edge weights.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        aggr: Aggregate of the messages: sum, mean, max, min, std or var.
        eps: Factor of the own row beside 1; a learned one has its value at the export.
        nn: Chain of dense layers, from rows of in_channels to rows of out_channels.

    Weights: those of layer i of the chain, as nn.i.NAME with that layer's names and shapes. All float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where nn does not fit the two widths, or for an unknown option or value.
    Source: Xu et al., How powerful are graph neural networks? (2019).
    """

    type: Literal["gin_conv"] = "gin_conv"
    eps: float = 0.0
    nn: list[DenseLayer]

    @model_validator(mode="after")
    def _widths_fit(self) -> GINConv:
        out = chain_width(self.nn, self.in_channels, "gin_conv.nn")
        if out != self.out_channels:
            msg = f"gin_conv: nn makes rows of width {out}, expected out_channels {self.out_channels}"
            raise ValueError(msg)
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return chain_tensors(self.nn, "nn")


class ResGatedGraphConv(Conv):
    """x_v' = sum_u(sigmoid(W_key x_v + k + W_query x_u + q) (W_value x_u + v)) + W_skip x_v + b, by channel.

    PyG's ResGatedGraphConv; reads no edge weights. Sigmoid and product are by channel. With attributes e_uv each of
    W_key, W_query and W_value reads [x | e_uv] in place of x.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        root_weight: Whether W_skip x_v is added.
        bias: Whether b is added.
        edge_channels: Width of the attributes e_uv of an edge; 0: it reads none.

    Weights: lin_key.weight, lin_query.weight, lin_value.weight, (out_channels, in_channels + edge_channels);
    lin_skip.weight, (out_channels, in_channels); lin_key.bias (k), lin_query.bias (q), lin_value.bias (v), bias (b),
    (out_channels,). All float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError for a width below 1, or an unknown option or value.
    Source: Bresson and Laurent, Residual gated graph ConvNets (2017); NeutronRT, table II (G-GCN).
    """

    type: Literal["res_gated_graph_conv"] = "res_gated_graph_conv"
    root_weight: bool = True
    bias: bool = True
    edge_channels: Annotated[int, Field(ge=0)] = 0

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave no attributes out: models of before they were there keep their identity."""
        fields: dict[str, Any] = serialize(self)
        return {name: value for name, value in fields.items() if name != "edge_channels" or value}

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        shapes: dict[str, Shape] = {"bias": (self.out_channels,)} if self.bias else {}
        for name in ("lin_key.", "lin_query.", "lin_value."):
            shapes |= linear_shapes(name, self.in_channels + self.edge_channels, self.out_channels, bias=True)
        if self.root_weight:
            shapes |= linear_shapes("lin_skip.", self.in_channels, self.out_channels, bias=False)
        return shapes
