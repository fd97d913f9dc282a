"""Declarations of the layers that weigh their sources by a softmax."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from freshet.gnn.convs.base import Conv, check_same_width
from freshet.gnn.rows.dense import linear_shapes
from freshet.gnn.rows.layer import Shape, Width


class AttentionConv(Conv):
    """Base of the layers that weigh their sources by a softmax; they read no edge weights.

    The softmax of v is over its in-edges (u, v), head by head; without in-edges a head gives 0. `channels` are those of
    one head: out_channels / heads where the heads stand side by side (`concat`), else out_channels.
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


class EdgeAttentionConv(AttentionConv):
    """Base of the attention layers that may read attributes of edges, and rows of two kinds."""

    LATER: ClassVar[dict[str, Any]] = {"target_channels": None}

    edge_channels: Annotated[int, Field(ge=0)] = 0
    target_channels: Width | None = None

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out that it reads no attributes: models of before there were any keep their identity."""
        fields: dict[str, Any] = serialize(self)
        unread = () if self.edge_channels else ("edge_channels", "fill_value")
        later = self.LATER
        return {name: value for name, value in fields.items() if name not in unread and later.get(name, ...) != value}

    def _of_edges(self) -> dict[str, Shape]:
        if not self.edge_channels:
            return {}
        return linear_shapes("lin_edge.", self.edge_channels, self.heads * self.channels, bias=False)


class GATConv(EdgeAttentionConv):
    """x_v' = sum_u softmax_u(LeakyReLU(att_src . W x_u + att_dst . W x_v)) W x_u + b, per head: PyG's GATConv.

    With attributes e_uv of edges att_edge . W_e e_uv is added before the LeakyReLU.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        heads: Number of heads, each with weights and scores of its own.
        concat: Whether the heads stand side by side, so that out_channels = heads * channels; else their mean is taken,
            and out_channels = channels.
        add_self_loops: Whether each vertex attends to itself; self-loops of the graph are then left out.
        negative_slope: Slope of LeakyReLU below 0.
        residual: Whether W_res x_v is added.
        bias: Whether b is added.
        edge_channels: Width of the attributes of an edge; 0: it reads none.
        fill_value: Attributes of the self-loops that it adds: a number; or mean, that of the attributes of the in-edges
            without self-loops, 0 where there are none.
        target_channels: Width of the rows of targets in a relation whose ends are given as two; W x_v is then made by a
            matrix of its own. Else left out.
        mixed_heads: Whether the scores of a head read W x of all heads, in a relation: PyG's RGATConv.

    Weights: lin.weight (W), (heads * channels, in_channels); att_src and att_dst, (heads, channels), with mixed_heads
    (heads, heads * channels); res.weight
    (W_res), (out_channels, in_channels or target_channels); bias (b), (out_channels,); with target_channels
    lin_dst.weight, (heads * channels, target_channels); with attributes lin_edge.weight (W_e), (heads * channels,
    edge_channels), and att_edge, (heads, channels). All float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where out_channels is no multiple of heads with `concat`, or for an unknown option or value.
    Source: Velickovic et al., Graph attention networks (2018).
    """

    BETWEEN_KINDS: ClassVar[bool] = True
    type: Literal["gat_conv"] = "gat_conv"
    negative_slope: float = 0.2
    residual: bool = False
    bias: bool = True
    fill_value: float | Literal["mean"] = "mean"
    mixed_heads: bool = False

    LATER: ClassVar[dict[str, Any]] = {**EdgeAttentionConv.LATER, "mixed_heads": False}

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        heads, size = (self.heads, self.channels), self.heads * self.channels
        shapes = linear_shapes("lin.", self.in_channels, size, bias=False)
        shapes |= dict.fromkeys(("att_src", "att_dst"), (self.heads, size) if self.mixed_heads else heads)
        if self.target_channels is not None:
            shapes |= linear_shapes("lin_dst.", self.target_channels, self.heads * self.channels, bias=False)
        if self.residual:
            shapes |= linear_shapes("res.", self.target_width, self.out_channels, bias=False)
        if self.edge_channels:
            shapes |= self._of_edges() | {"att_edge": heads}
        return shapes | ({"bias": (self.out_channels,)} if self.bias else {})


class GATv2Conv(EdgeAttentionConv):
    """x_v' = sum_u softmax_u(att . LeakyReLU(l_u + r_v)) l_u + b, per head: PyG's GATv2Conv.

    l_u = W_l x_u + b_l and r_v = W_r x_v + b_r. With attributes e_uv of edges W_e e_uv is added before the LeakyReLU.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        heads: Number of heads, each with weights and scores of its own.
        concat: Whether the heads stand side by side, so that out_channels = heads * channels; else their mean is taken,
            and out_channels = channels.
        add_self_loops: Whether each vertex attends to itself; self-loops of the graph are then left out.
        negative_slope: Slope of LeakyReLU below 0.
        residual: Whether W_res x_v is added.
        share_weights: Whether r is made by the weights of l.
        bias: Whether b, b_l and b_r are added.
        edge_channels: Width of the attributes of an edge; 0: it reads none.
        fill_value: Attributes of the self-loops that it adds, as GATConv's.
        target_channels: Width of the rows of targets in a relation whose ends are given as two; else left out.

    Weights: lin_l.weight (W_l), (heads * channels, in_channels), and lin_r.weight (W_r), (heads * channels, in_channels
    or target_channels); lin_l.bias (b_l) and lin_r.bias (b_r), (heads * channels,); att, (heads, channels); res.weight
    (W_res), (out_channels, in_channels or target_channels); bias (b), (out_channels,); with attributes lin_edge.weight
    (W_e), (heads * channels, edge_channels). All float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where out_channels is no multiple of heads with `concat`, or for an unknown option or value.
    Source: Brody et al., How attentive are graph attention networks? (2022).
    """

    BETWEEN_KINDS: ClassVar[bool] = True
    type: Literal["gatv2_conv"] = "gatv2_conv"
    negative_slope: float = 0.2
    residual: bool = False
    share_weights: bool = False
    bias: bool = True
    fill_value: float | Literal["mean"] = "mean"

    @model_validator(mode="after")
    def _shared_weights_fit(self) -> GATv2Conv:
        if self.share_weights and self.target_width != self.in_channels:
            msg = f"{self.type}: share_weights with in_channels {self.in_channels} and target_channels "
            raise ValueError(msg + f"{self.target_width}, expected the same")
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        size = self.heads * self.channels
        shapes = linear_shapes("lin_l.", self.in_channels, size, bias=self.bias)
        if not self.share_weights:
            shapes |= linear_shapes("lin_r.", self.target_width, size, bias=self.bias)
        if self.residual:
            shapes |= linear_shapes("res.", self.target_width, self.out_channels, bias=False)
        shapes |= {"att": (self.heads, self.channels)} | self._of_edges()
        return shapes | ({"bias": (self.out_channels,)} if self.bias else {})


class TransformerConv(EdgeAttentionConv):
    """x_v' = sum_u softmax_u(q_v . k_u / sqrt(channels)) v_u + r_v, per head: PyG's TransformerConv.

    k, q, v and r are linear functions of x: W_key x + b_key, and so on; r by W_skip. With attributes e_uv of edges
    W_e e_uv is added to k_u and to v_u. With `beta` aggregate a_v and r_v are mixed: x_v' = g r_v + (1 - g) a_v, with
    g = sigmoid(W_beta [a_v | r_v | a_v - r_v]).

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        heads: Number of heads, each with weights and scores of its own.
        concat: Whether the heads stand side by side, so that out_channels = heads * channels; else their mean is taken,
            and out_channels = channels.
        add_self_loops: False; a self-loop that is there is an edge like any other.
        root_weight: Whether there is r_v.
        beta: Whether a_v and r_v are mixed by a gate; needs `root_weight`.
        bias: Whether the linear functions of x have a bias.
        edge_channels: Width of the attributes of an edge; 0: it reads none.
        target_channels: Width of the rows of targets in a relation whose ends are given as two; else left out.

    Weights: lin_key.weight, lin_query.weight, lin_value.weight, (heads * channels, in_channels; of the query
    target_channels where given), each with a bias lin_key.bias, lin_query.bias, lin_value.bias, (heads * channels,);
    lin_skip.weight, (out_channels, in_channels or target_channels), and lin_skip.bias, (out_channels,);
    lin_beta.weight, (1, 3 * out_channels); with attributes lin_edge.weight (W_e), (heads * channels, edge_channels).
    All float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where out_channels is no multiple of heads with `concat`, for `beta` without `root_weight`, or
        for an unknown option or value.
    Source: Shi et al., Masked label prediction (2021).
    """

    BETWEEN_KINDS: ClassVar[bool] = True
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
        widths = {"lin_key.": self.in_channels, "lin_query.": self.target_width, "lin_value.": self.in_channels}
        for name, width in widths.items():
            shapes |= linear_shapes(name, width, size, bias=self.bias)
        if self.root_weight:
            shapes |= linear_shapes("lin_skip.", self.target_width, self.out_channels, bias=self.bias)
        if self.beta:
            shapes |= linear_shapes("lin_beta.", 3 * self.out_channels, 1, bias=False)
        return shapes | self._of_edges()


class SuperGATConv(AttentionConv):
    """x_v' = sum_u softmax_u(LeakyReLU(score(u, v))) W x_u + b, per head: PyG's SuperGATConv in inference.

    With dot = W x_u . W x_v of a head, the score is (att_l . W x_u + att_r . W x_v) sigmoid(dot) for MX, and
    dot / sqrt(channels) for SD.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        heads: Number of heads, each with weights and scores of its own.
        concat: Whether the heads stand side by side, so that out_channels = heads * channels; else their mean is taken,
            and out_channels = channels.
        add_self_loops: Whether each vertex attends to itself; self-loops of the graph are then left out.
        attention_type: MX or SD.
        negative_slope: Slope of LeakyReLU below 0.
        bias: Whether b is added.

    Weights: lin.weight (W), (heads * channels, in_channels); att_l and att_r of MX, (heads, channels); bias (b),
    (out_channels,). All float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where out_channels is no multiple of heads with `concat`, or for an unknown option or value.
    Source: Kim and Oh, How to find your friendly neighborhood (2021).
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
    """x_v' = sum_u softmax_u(beta cos(x_u, x_v)) x_u, PyG's AGNNConv.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: The same width.
        heads: 1.
        concat: True.
        add_self_loops: Whether each vertex attends to itself; self-loops of the graph are then left out.

    Weights: beta, (1,) float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError for two different widths, or for an unknown option or value.
    Source: Thekumparampil et al., Attention-based graph neural network (2018); NeutronRT, table II (A-GNN).
    """

    type: Literal["agnn_conv"] = "agnn_conv"
    heads: Literal[1] = 1
    concat: Literal[True] = True

    @model_validator(mode="after")
    def _keeps_its_width(self) -> AGNNConv:
        check_same_width(self)
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return {"beta": (1,)}
