"""What a model's layers are: one declarative class per layer type, with its sizes, options and weight shapes."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from freshet.gnn.convs.attention import AGNNConv as AGNNConv
from freshet.gnn.convs.attention import AttentionConv as AttentionConv
from freshet.gnn.convs.attention import GATConv as GATConv
from freshet.gnn.convs.attention import GATv2Conv as GATv2Conv
from freshet.gnn.convs.attention import SuperGATConv as SuperGATConv
from freshet.gnn.convs.attention import TransformerConv as TransformerConv
from freshet.gnn.convs.base import Aggregator as Aggregator
from freshet.gnn.convs.base import Conv as Conv
from freshet.gnn.convs.base import check_same_width
from freshet.gnn.convs.edge_networks import EdgeConv as EdgeConv
from freshet.gnn.convs.edge_networks import PNAConv as PNAConv
from freshet.gnn.rows.chains import chain_tensors, chain_width
from freshet.gnn.rows.dense import AnyDense, linear_shapes
from freshet.gnn.rows.dense import DenseLayer as DenseLayer
from freshet.gnn.rows.dense import Elu as Elu
from freshet.gnn.rows.dense import Gelu as Gelu
from freshet.gnn.rows.dense import Identity as Identity
from freshet.gnn.rows.dense import LeakyRelu as LeakyRelu
from freshet.gnn.rows.dense import Linear as Linear
from freshet.gnn.rows.dense import PRelu as PRelu
from freshet.gnn.rows.dense import Relu as Relu
from freshet.gnn.rows.dense import Selu as Selu
from freshet.gnn.rows.dense import Sigmoid as Sigmoid
from freshet.gnn.rows.dense import Silu as Silu
from freshet.gnn.rows.dense import Tanh as Tanh
from freshet.gnn.rows.jumps import Join, Keep
from freshet.gnn.rows.layer import Layer as Layer
from freshet.gnn.rows.layer import Shape as Shape
from freshet.gnn.rows.layer import Width
from freshet.gnn.rows.norms import BatchNorm as BatchNorm


class RootedConv(Conv):
    """Base of W_root x_v + W_rel aggr(w_uv x_u) + b."""

    type: str
    aggr: Aggregator = "sum"
    bias: bool = True
    edge_weights: bool = Field(True, description="false where the module does not hand edge weights to the layer")

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        relation = linear_shapes("lin_rel.", self.in_channels, self.out_channels, bias=self.bias)
        return relation | linear_shapes("lin_root.", self.in_channels, self.out_channels, bias=False)


class GraphConv(RootedConv):
    """W_root x_v + W_rel aggr(w_uv x_u) + b."""

    type: Literal["graph_conv"] = "graph_conv"


class CommNetConv(RootedConv):
    """W_root x_v + W_rel sum x_u: CommNet as NeutronRT has it (table II); PyG's GraphConv without bias and weights."""

    type: Literal["comm_net_conv"] = "comm_net_conv"
    aggr: Literal["sum"] = "sum"
    bias: Literal[False] = False
    edge_weights: Literal[False] = False


class PinSAGEConv(Conv):
    """W [x_v | sum w_uv relu(Q x_u + q) / sum w_uv] + b: PinSAGE as NeutronRT has it (table II).

    The weights of edges are how important a neighbour is; where they add up to 0, as without neighbours, the mean is 0.
    What follows in PinSAGE, a relu and rows of length 1, are layers of their own.
    """

    type: Literal["pin_sage_conv"] = "pin_sage_conv"
    hidden_channels: Width
    edge_weights: bool = Field(True, description="false where all neighbours are equally important")

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        shapes = linear_shapes("lin_neighbour.", self.in_channels, self.hidden_channels, bias=True)
        return shapes | linear_shapes("lin.", self.in_channels + self.hidden_channels, self.out_channels, bias=True)


class SAGEConv(Conv):
    """W_r x_v + W_l aggr(x_u) + b, optionally projected before and normalised after; reads no edge weights.

    Several aggregators stand beside each other: W_l [aggr_1(x_u) | aggr_2(x_u) | ...].
    """

    type: Literal["sage_conv"] = "sage_conv"
    aggr: Aggregator | Annotated[tuple[Aggregator, ...], Field(min_length=1)] = "mean"
    normalize: bool = False
    root_weight: bool = True
    project: bool = False
    bias: bool = True

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        aggregators = 1 if isinstance(self.aggr, str) else len(self.aggr)
        shapes = linear_shapes("lin_l.", self.in_channels * aggregators, self.out_channels, bias=self.bias)
        if self.root_weight:
            shapes |= linear_shapes("lin_r.", self.in_channels, self.out_channels, bias=False)
        if self.project:
            shapes |= linear_shapes("lin.", self.in_channels, self.in_channels, bias=True)
        return shapes


class DegreeScaledConv(Conv):
    """Base of the weighted sums that are scaled by the degrees at both ends; plain ones where normalize is false."""

    type: str
    add_self_loops: bool = True
    normalize: bool = True
    edge_weights: bool = Field(True, description="false where the module does not hand edge weights to the layer")

    @model_validator(mode="after")
    def _loops_need_normalize(self) -> DegreeScaledConv:
        if self.add_self_loops and not self.normalize:
            msg = f"{self.type}: add_self_loops needs normalize (as in PyG); set add_self_loops to false"
            raise ValueError(msg)
        return self

    @property
    def loop_weight(self) -> float | None:
        """Weight of the self-loop that a vertex without one gets; None where it gets none."""
        return 1.0 if self.add_self_loops else None


class GCNConv(DegreeScaledConv):
    """W sum(d_u^-1/2 w_uv d_v^-1/2 x_u) + b with self-loops."""

    type: Literal["gcn_conv"] = "gcn_conv"
    improved: bool = False
    bias: bool = True

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
    """sum(d_u^-1/2 w_uv d_v^-1/2 x_u), without weights of its own: one hop of SGC, APPNP, TAGConv, LightGCN and others.

    Its rows keep their width.
    """

    type: Literal["propagation"] = "propagation"

    @model_validator(mode="after")
    def _keeps_its_width(self) -> Propagation:
        check_same_width(self)
        return self


class GINConv(Conv):
    """nn((1 + eps) x_v + sum x_u), nn being a chain of dense layers; reads no edge weights."""

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
    """sum_u sigmoid(W_key x_v + W_query x_u) (W_value x_u), + W_skip x_v + b; reads no edge weights."""

    type: Literal["res_gated_graph_conv"] = "res_gated_graph_conv"
    root_weight: bool = True
    bias: bool = True

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        shapes: dict[str, Shape] = {"bias": (self.out_channels,)} if self.bias else {}
        for name in ("lin_key.", "lin_query.", "lin_value."):
            shapes |= linear_shapes(name, self.in_channels, self.out_channels, bias=True)
        if self.root_weight:
            shapes |= linear_shapes("lin_skip.", self.in_channels, self.out_channels, bias=False)
        return shapes


AnySum = GraphConv | SAGEConv | GCNConv | Propagation | GINConv | ResGatedGraphConv | CommNetConv | PinSAGEConv
AnyNetwork = PNAConv | EdgeConv
AnyAttention = GATConv | GATv2Conv | SuperGATConv | TransformerConv | AGNNConv
AnyConv = AnySum | AnyNetwork | AnyAttention
AnyJump = Keep | Join
AnyLayer = Annotated[AnyConv | AnyDense | AnyJump, Field(discriminator="type")]


def _types_of(layers: object) -> tuple[str, ...]:
    return tuple(layer.model_fields["type"].default for layer in get_args(layers))


CONV_TYPES, DENSE_TYPES, JUMP_TYPES = _types_of(AnyConv), _types_of(AnyDense), _types_of(AnyJump)
