"""Declarations of the layers whose messages read attributes of edges."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from freshet.gnn.convs.base import Conv
from freshet.gnn.rows.chains import chain_tensors, chain_width
from freshet.gnn.rows.dense import DenseLayer, linear_shapes
from freshet.gnn.rows.layer import Shape, Width


class GINEConv(Conv):
    """x_v' = nn((1 + eps) x_v + sum_u relu(x_u + W e_uv + b)), PyG's GINEConv; reads no edge weights.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        edge_channels: Width of the attributes e_uv of an edge, at least 1.
        edge_linear: Whether W e_uv + b is added; else e_uv itself, which is then as wide as the rows.
        eps: Factor of the own row beside 1; a learned one has its value at the export.
        nn: Chain of dense layers, from rows of in_channels to rows of out_channels.

    Weights: those of layer i of the chain, as nn.i.NAME with that layer's names and shapes; with edge_linear
    lin.weight (W), (in_channels, edge_channels), and lin.bias (b), (in_channels,). All float32.

    Shapes: x (n, in_channels) float32, e (edges, edge_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where nn does not fit the two widths, where attributes that are added as they are have another
        width than the rows, or for an unknown option or value.
    Source: Hu et al., Strategies for pre-training graph neural networks (2020).
    """

    type: Literal["gine_conv"] = "gine_conv"
    edge_channels: Width
    edge_linear: bool = True
    eps: float = 0.0
    nn: list[DenseLayer]

    @model_validator(mode="after")
    def _widths_fit(self) -> GINEConv:
        out = chain_width(self.nn, self.in_channels, "gine_conv.nn")
        if out != self.out_channels:
            msg = f"gine_conv: nn makes rows of width {out}, expected out_channels {self.out_channels}"
            raise ValueError(msg)
        if not self.edge_linear and self.edge_channels != self.in_channels:
            msg = f"gine_conv: edge_channels {self.edge_channels} without edge_linear, expected in_channels "
            raise ValueError(msg + str(self.in_channels))
        return self

    @property
    def edge_width(self) -> int:
        """Width of the attributes of edges that it reads."""
        return self.edge_channels

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        of_edges = linear_shapes("lin.", self.edge_channels, self.in_channels, bias=True) if self.edge_linear else {}
        return of_edges | chain_tensors(self.nn, "nn")
