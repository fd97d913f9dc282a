"""Declarations of the layers whose messages are rows of sources, scaled, gated or as they are."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from freshet.gnn.convs.base import AggregatingConv, Aggregator, Conv, check_nn
from freshet.gnn.rows.chains import chain_tensors
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

    BETWEEN_KINDS: ClassVar[bool] = True
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

    BETWEEN_KINDS: ClassVar[bool] = True
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

    BETWEEN_KINDS: ClassVar[bool] = True
    type: Literal["gin_conv"] = "gin_conv"
    eps: float = 0.0
    nn: list[DenseLayer]

    @model_validator(mode="after")
    def _widths_fit(self) -> GINConv:
        check_nn(self, self.nn, self.in_channels)
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

    LATER: ClassVar[dict[str, Any]] = {"edge_channels": 0}

    type: Literal["res_gated_graph_conv"] = "res_gated_graph_conv"
    root_weight: bool = True
    bias: bool = True
    edge_channels: Annotated[int, Field(ge=0)] = 0

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        shapes: dict[str, Shape] = {"bias": (self.out_channels,)} if self.bias else {}
        for name in ("lin_key.", "lin_query.", "lin_value."):
            shapes |= linear_shapes(name, self.in_channels + self.edge_channels, self.out_channels, bias=True)
        if self.root_weight:
            shapes |= linear_shapes("lin_skip.", self.in_channels, self.out_channels, bias=False)
        return shapes
