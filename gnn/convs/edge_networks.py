"""Declarations of the layers whose messages are made of both ends: EdgeConv and PNAConv."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from freshet.gnn.convs.base import Aggregator, Conv
from freshet.gnn.rows.chains import chain_tensors, chain_width
from freshet.gnn.rows.dense import DenseLayer, linear_shapes
from freshet.gnn.rows.layer import Shape, Width


class EdgeConv(Conv):
    """aggr_u nn([x_v | x_u - x_v]), nn being a chain of dense layers; reads no edge weights.

    Several aggregators stand beside each other, each as wide as what nn makes.
    """

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
        """How many aggregators there are."""
        return 1 if isinstance(self.aggr, str) else len(self.aggr)

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return chain_tensors(self.nn, "nn")


Scaler = Literal["identity", "amplification", "attenuation", "linear", "inverse_linear"]


class PNAConv(Conv):
    """W [post_t([x_v | scaler(aggr_u(pre_t [x_v | x_u])) ...]) of each tower t] + b; reads no edge weights.

    pre_t and the first layer of post_t are linear; `post` is what follows in each tower, each with weights of its own.
    The scalers read the in-degree beside its averages over the training graph, which are weights. `pre` is what follows
    the first layer of pre_t in each tower: with it a message is no linear function of its ends.
    """

    type: Literal["pna_conv"] = "pna_conv"
    aggregators: Annotated[tuple[Aggregator, ...], Field(min_length=1)]
    scalers: Annotated[tuple[Scaler, ...], Field(min_length=1)] = ("identity",)
    towers: Width = 1
    divide_input: bool = Field(False, description="each tower reads its share of the channels, else all of them")
    pre: list[DenseLayer] = Field(default_factory=list)
    post: list[DenseLayer] = Field(default_factory=list)

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave an empty `pre` out: models of before it was there keep their identity."""
        fields: dict[str, Any] = serialize(self)
        return {name: value for name, value in fields.items() if name != "pre" or value}

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
        for t in range(self.towers):
            shapes |= linear_shapes(f"pre.{t}.", 2 * self.tower_in, self.tower_in, bias=True)
            shapes |= chain_tensors(self.pre, f"pre.{t}")
            shapes |= linear_shapes(f"post.{t}.first.", read, self.tower_out, bias=True)
            shapes |= chain_tensors(self.post, f"post.{t}")
        return shapes | linear_shapes("lin.", self.out_channels, self.out_channels, bias=True)
