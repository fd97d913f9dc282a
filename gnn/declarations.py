"""What a model's layers are: one declarative class per layer type, with its sizes, options and weight shapes."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from gnn.rows.chains import chain_tensors, chain_width
from gnn.rows.dense import AnyDense, linear_shapes
from gnn.rows.dense import DenseLayer as DenseLayer
from gnn.rows.dense import Elu as Elu
from gnn.rows.dense import Gelu as Gelu
from gnn.rows.dense import Identity as Identity
from gnn.rows.dense import LeakyRelu as LeakyRelu
from gnn.rows.dense import Linear as Linear
from gnn.rows.dense import PRelu as PRelu
from gnn.rows.dense import Relu as Relu
from gnn.rows.dense import Selu as Selu
from gnn.rows.dense import Sigmoid as Sigmoid
from gnn.rows.dense import Silu as Silu
from gnn.rows.dense import Tanh as Tanh
from gnn.rows.jumps import Join, Keep
from gnn.rows.layer import Layer as Layer
from gnn.rows.layer import Shape as Shape
from gnn.rows.layer import Width
from gnn.rows.norms import BatchNorm as BatchNorm


class Conv(Layer):
    """Base of the layers that read neighbours."""

    in_channels: Width
    out_channels: Width

    @property
    def in_width(self) -> int:
        """Width of the rows it reads."""
        return self.in_channels

    @property
    def out_width(self) -> int:
        """Width of the rows it makes."""
        return self.out_channels


Aggregator = Literal["sum", "mean", "max", "min", "std", "var"]


class GraphConv(Conv):
    """W_root x_v + W_rel aggr(w_uv x_u) + b."""

    type: Literal["graph_conv"] = "graph_conv"
    aggr: Aggregator = "sum"
    bias: bool = True
    edge_weights: bool = Field(True, description="false where the module does not hand edge weights to the layer")

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        relation = linear_shapes("lin_rel.", self.in_channels, self.out_channels, bias=self.bias)
        return relation | linear_shapes("lin_root.", self.in_channels, self.out_channels, bias=False)


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
        _check_same_width(self)
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


Scaler = Literal["identity", "amplification", "attenuation", "linear", "inverse_linear"]


class PNAConv(Conv):
    """W [post_t([x_v | scaler(aggr_u(pre_t [x_v | x_u])) ...]) of each tower t] + b; reads no edge weights.

    pre_t and the first layer of post_t are linear; `post` is what follows in each tower, each with weights of its own.
    The scalers read the in-degree beside its averages over the training graph, which are weights.
    """

    type: Literal["pna_conv"] = "pna_conv"
    aggregators: Annotated[tuple[Aggregator, ...], Field(min_length=1)]
    scalers: Annotated[tuple[Scaler, ...], Field(min_length=1)] = ("identity",)
    towers: Width = 1
    divide_input: bool = Field(False, description="each tower reads its share of the channels, else all of them")
    post: list[DenseLayer] = Field(default_factory=list)

    @model_validator(mode="after")
    def _towers_fit(self) -> PNAConv:
        for name, width, divided in (
            ("out_channels", self.out_channels, True),
            ("in_channels", self.in_channels, self.divide_input),
        ):
            if divided and width % self.towers:
                msg = f"pna_conv: {name} {width} is no multiple of towers {self.towers}"
                raise ValueError(msg)
        made = chain_width(self.post, self.tower_out, "pna_conv.post")
        if made != self.tower_out:
            msg = f"pna_conv: post makes rows of width {made}, expected out_channels / towers {self.tower_out}"
            raise ValueError(msg)
        return self

    @property
    def tower_in(self) -> int:
        """Channels that a tower reads."""
        return self.in_channels // self.towers if self.divide_input else self.in_channels

    @property
    def tower_out(self) -> int:
        """Channels that a tower makes."""
        return self.out_channels // self.towers

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        read = self.tower_in * (1 + len(self.aggregators) * len(self.scalers))
        shapes: dict[str, Shape] = {"average_degree": (1,), "average_log_degree": (1,)}
        for t in range(self.towers):
            shapes |= linear_shapes(f"pre.{t}.", 2 * self.tower_in, self.tower_in, bias=True)
            shapes |= linear_shapes(f"post.{t}.first.", read, self.tower_out, bias=True)
            shapes |= chain_tensors(self.post, f"post.{t}")
        return shapes | linear_shapes("lin.", self.out_channels, self.out_channels, bias=True)


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


class AttentionConv(Conv):
    """Base of the layers that weigh their sources by a softmax; they read no edge weights.

    `out_channels` is that of the layer: heads times the channels of one where they stand side by side (`concat`).
    """

    type: str
    heads: Width = 1
    concat: bool = True
    add_self_loops: bool = True

    @model_validator(mode="after")
    def _heads_fit(self) -> AttentionConv:
        if self.concat and self.out_channels % self.heads:
            msg = f"{self.type}: out_channels {self.out_channels} is no multiple of heads {self.heads}"
            raise ValueError(msg)
        return self

    @property
    def channels(self) -> int:
        """Channels of one head."""
        return self.out_channels // self.heads if self.concat else self.out_channels


class GATConv(AttentionConv):
    """softmax_u(LeakyReLU(att_src . W x_u + att_dst . W x_v)) W x_u per head, + b."""

    type: Literal["gat_conv"] = "gat_conv"
    negative_slope: float = 0.2
    residual: bool = False
    bias: bool = True

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        heads = self.heads, self.channels
        shapes = linear_shapes("lin.", self.in_channels, self.heads * self.channels, bias=False)
        shapes |= {"att_src": heads, "att_dst": heads}
        if self.residual:
            shapes |= linear_shapes("res.", self.in_channels, self.out_channels, bias=False)
        return shapes | ({"bias": (self.out_channels,)} if self.bias else {})


class GATv2Conv(AttentionConv):
    """softmax_u(att . LeakyReLU(l_u + r_v)) l_u per head, + b, with l = W_l x + b_l and r = W_r x + b_r."""

    type: Literal["gatv2_conv"] = "gatv2_conv"
    negative_slope: float = 0.2
    residual: bool = False
    share_weights: bool = False
    bias: bool = True

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        size = self.heads * self.channels
        shapes = linear_shapes("lin_l.", self.in_channels, size, bias=self.bias)
        if not self.share_weights:
            shapes |= linear_shapes("lin_r.", self.in_channels, size, bias=self.bias)
        if self.residual:
            shapes |= linear_shapes("res.", self.in_channels, self.out_channels, bias=False)
        shapes["att"] = (self.heads, self.channels)
        return shapes | ({"bias": (self.out_channels,)} if self.bias else {})


class TransformerConv(AttentionConv):
    """softmax_u(q_v . k_u / sqrt(channels)) v_u per head, plus W_skip x_v, or mixed with it by a gate (`beta`)."""

    type: Literal["transformer_conv"] = "transformer_conv"
    add_self_loops: Literal[False] = False
    root_weight: bool = True
    beta: bool = False
    bias: bool = True

    @model_validator(mode="after")
    def _beta_needs_root(self) -> TransformerConv:
        if self.beta and not self.root_weight:
            msg = "transformer_conv: beta needs root_weight"
            raise ValueError(msg)
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        size, shapes = self.heads * self.channels, dict[str, Shape]()
        for name in ("lin_key.", "lin_query.", "lin_value."):
            shapes |= linear_shapes(name, self.in_channels, size, bias=self.bias)
        if self.root_weight:
            shapes |= linear_shapes("lin_skip.", self.in_channels, self.out_channels, bias=self.bias)
        if self.beta:
            shapes |= linear_shapes("lin_beta.", 3 * self.out_channels, 1, bias=False)
        return shapes


class SuperGATConv(AttentionConv):
    """softmax_u(LeakyReLU(score(u, v))) W x_u per head, + b, by dot products of W x_u and W x_v.

    MX: (att_l . W x_u + att_r . W x_v) sigmoid(dot); SD: dot / sqrt(channels).
    """

    type: Literal["super_gat_conv"] = "super_gat_conv"
    attention_type: Literal["MX", "SD"] = "MX"
    negative_slope: float = 0.2
    bias: bool = True

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        heads = self.heads, self.channels
        shapes = linear_shapes("lin.", self.in_channels, self.heads * self.channels, bias=False)
        if self.attention_type == "MX":
            shapes |= {"att_l": heads, "att_r": heads}
        return shapes | ({"bias": (self.out_channels,)} if self.bias else {})


class AGNNConv(AttentionConv):
    """softmax_u(beta cos(x_u, x_v)) x_u."""

    type: Literal["agnn_conv"] = "agnn_conv"
    heads: Literal[1] = 1
    concat: Literal[True] = True

    @model_validator(mode="after")
    def _keeps_its_width(self) -> AGNNConv:
        _check_same_width(self)
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return {"beta": (1,)}


AnySum = GraphConv | SAGEConv | GCNConv | Propagation | GINConv | PNAConv | ResGatedGraphConv
AnyAttention = GATConv | GATv2Conv | SuperGATConv | TransformerConv | AGNNConv
AnyConv = AnySum | AnyAttention
AnyJump = Keep | Join
AnyLayer = Annotated[AnyConv | AnyDense | AnyJump, Field(discriminator="type")]


def _types_of(layers: object) -> tuple[str, ...]:
    return tuple(layer.model_fields["type"].default for layer in get_args(layers))


CONV_TYPES, DENSE_TYPES, JUMP_TYPES = _types_of(AnyConv), _types_of(AnyDense), _types_of(AnyJump)


def _check_same_width(conv: Conv) -> None:
    if conv.out_channels != conv.in_channels:
        kind = conv.model_fields["type"].default
        msg = f"{kind}: out_channels {conv.out_channels} differs from in_channels {conv.in_channels}"
        raise ValueError(msg)
