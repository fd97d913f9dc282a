"""Declarations of the layers whose messages are made of both ends: EdgeConv, FiLMConv and PNAConv."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from freshet.gnn.convs.base import Aggregator, Conv
from freshet.gnn.rows.chains import chain_tensors, chain_width
from freshet.gnn.rows.dense import DenseLayer, linear_shapes
from freshet.gnn.rows.layer import Shape, Width


class EdgeConv(Conv):
    """x_v' = aggr_u nn([x_v | x_u - x_v]), PyG's EdgeConv; reads no edge weights.

    Several aggregators stand beside each other, each as wide as the rows of nn.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        aggr: Aggregate of the messages: sum, mean, max, min, std or var; or several of them.
        nn: Chain of dense layers, from rows of 2 * in_channels to rows of out_channels / aggregators.

    Weights: those of layer i of the chain, as nn.i.NAME with that layer's names and shapes. All float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where nn and aggr do not fit the two widths, or for an unknown option or value.
    Source: Wang et al., Dynamic graph CNN for learning on point clouds (2019).
    """

    BETWEEN_KINDS: ClassVar[bool] = True
    type: Literal["edge_conv"] = "edge_conv"
    aggr: Aggregator | Annotated[tuple[Aggregator, ...], Field(min_length=1)] = "max"
    nn: list[DenseLayer]

    @model_validator(mode="after")
    def _widths_fit(self) -> EdgeConv:
        out = chain_width(self.nn, 2 * self.in_channels, "edge_conv.nn") * self.aggregates
        if out != self.out_channels:
            msg = f"edge_conv: nn and aggr make rows of width {out}, expected out_channels {self.out_channels}"
            raise ValueError(msg)
        return self

    @property
    def aggregates(self) -> int:
        """Number of aggregators."""
        return 1 if isinstance(self.aggr, str) else len(self.aggr)

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return chain_tensors(self.nn, "nn")


class FiLMConv(Conv):
    """x_v' = aggr_u act(gamma_v z_u + beta_v), the messages of PyG's FiLMConv with one relation.

    A row that it reads is [z | beta | gamma]: the message of a vertex, and how it shifts and scales those of others.

    Args:
        in_channels: Width of the rows it reads, 3 * out_channels.
        out_channels: Width of the rows it makes, at least 1.
        aggr: Aggregate of the messages: sum, mean, max, min, std or var.
        act: Chain of dense layers that keeps the width.

    Weights: those of layer i of the chain, as act.i.NAME with that layer's names and shapes. All float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where the widths do not fit, or for an unknown option or value.
    Source: Brockschmidt, GNN-FiLM (2020).
    """

    type: Literal["film_conv"] = "film_conv"
    aggr: Aggregator = "mean"
    act: list[DenseLayer] = Field(default_factory=list)

    @model_validator(mode="after")
    def _widths_fit(self) -> FiLMConv:
        if self.in_channels != 3 * self.out_channels:
            msg = f"film_conv: in_channels {self.in_channels}, expected 3 * out_channels, {3 * self.out_channels}"
            raise ValueError(msg)
        if (made := chain_width(self.act, self.out_channels, "film_conv.act")) != self.out_channels:
            msg = f"film_conv: act makes rows of width {made}, expected out_channels {self.out_channels}"
            raise ValueError(msg)
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return chain_tensors(self.act, "act")


Scaler = Literal["identity", "amplification", "attenuation", "linear", "inverse_linear"]


class PNAConv(Conv):
    """x_v' = W [post_t([x_v | scaler(aggr_u(pre_t [x_v | x_u])) ...]) of each tower t] + b, PyG's PNAConv.

    pre_t and the first layer of post_t are linear; the layers of `pre` and `post` follow them, in each tower with
    weights of its own. Every scaler is applied to every aggregate. With D the in-degree of v, A the average in-degree
    of the training graph and L its average log(D + 1), the scalers are: identity 1, amplification log(D + 1) / L,
    attenuation L / log(max(D, 1) + 1), linear D / A, inverse_linear A / max(D, 1). Reads no edge weights.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        aggregators: One or more of sum, mean, max, min, std and var.
        scalers: One or more of the five.
        towers: Number of towers, each of which makes out_channels / towers channels.
        divide_input: Whether a tower reads its share of the channels, in_channels / towers; else all of them.
        pre: Dense layers behind the first one of pre_t. With any, a message is no linear function of its ends.
        post: Dense layers behind the first one of post_t.
        edge_channels: Width of the attributes e_uv of an edge; 0: it reads none. With them pre_t reads [x_v | x_u | E
            e_uv + d].

    Weights: of each tower t, with F channels read and G made, pre.t.weight, (F, 2 F), with attributes (F, 3 F), and
    pre.t.bias, (F,); with attributes edge_encoder.weight (E), (F, edge_channels), and edge_encoder.bias (d), (F,);
    post.t.first.weight, (G, F (1 + aggregators * scalers)), and post.t.first.bias, (G,); those of layer i of `pre` and
    `post` as pre.t.i.NAME and post.t.i.NAME; lin.weight (W), (out_channels, out_channels), and lin.bias (b),
    (out_channels,); average_degree (A) and average_log_degree (L), (1,). All float32.

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where the widths are no multiples of towers, `pre` or `post` does not keep its width, there is no
        aggregator or scaler, or for an unknown option or value.
    Source: Corso et al., Principal neighbourhood aggregation for graph nets (2020).
    """

    LATER: ClassVar[dict[str, Any]] = {"pre": [], "edge_channels": 0}

    type: Literal["pna_conv"] = "pna_conv"
    aggregators: Annotated[tuple[Aggregator, ...], Field(min_length=1)]
    scalers: Annotated[tuple[Scaler, ...], Field(min_length=1)] = ("identity",)
    towers: Width = 1
    divide_input: bool = Field(False, description="each tower reads its share of the channels, else all of them")
    pre: list[DenseLayer] = Field(default_factory=list)
    post: list[DenseLayer] = Field(default_factory=list)
    edge_channels: Annotated[int, Field(ge=0)] = 0

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
        made = chain_width(self.pre, self.tower_in, "pna_conv.pre")
        if made != self.tower_in:
            msg = f"pna_conv: pre makes messages of width {made}, expected what a tower reads, {self.tower_in}"
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
        if self.edge_channels:
            shapes |= linear_shapes("edge_encoder.", self.edge_channels, self.tower_in, bias=True)
        for t in range(self.towers):
            width = (3 if self.edge_channels else 2) * self.tower_in
            shapes |= linear_shapes(f"pre.{t}.", width, self.tower_in, bias=True)
            shapes |= chain_tensors(self.pre, f"pre.{t}")
            shapes |= linear_shapes(f"post.{t}.first.", read, self.tower_out, bias=True)
            shapes |= chain_tensors(self.post, f"post.{t}")
        return shapes | linear_shapes("lin.", self.out_channels, self.out_channels, bias=True)
