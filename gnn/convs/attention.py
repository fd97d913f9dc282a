"""Declarations of the layers that weigh their sources by a softmax."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from freshet.gnn.convs.base import Conv, check_same_width
from freshet.gnn.rows.dense import linear_shapes
from freshet.gnn.rows.layer import Shape, Width


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
        check_same_width(self)
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return {"beta": (1,)}
