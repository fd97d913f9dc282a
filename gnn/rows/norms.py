"""Declarations of norms: those of a row alone, and those of the whole graph with their statistics frozen."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from freshet.gnn.rows.functions import Positive
from freshet.gnn.rows.layer import ByChannel, ScaleAndShift, Shape

Frozen = Literal[
    "batch_norm",
    "graph_norm",
    "graph_size_norm",
    "instance_norm",
    "layer_norm",
    "mean_subtraction_norm",
    "pair_norm",
    "semantic_attention",
]


class BatchNorm(ScaleAndShift):
    """x * scale + shift: a BatchNorm with the statistics it was trained with, folded.

    Args:
        channels: Width of the rows.

    Weights: scale and shift, (channels,).
    """

    type: Literal["batch_norm"] = "batch_norm"


class LayerNorm(ByChannel):
    """(x - mean of the row) / sqrt(variance of the row + eps) * weight + bias.

    Args:
        channels: Width of the rows.
        eps: Number above 0 that is added to the variance.
        weight: Whether there is a factor.
        bias: Whether there is a term.

    Weights: weight and bias, (channels,).
    """

    type: Literal["layer_norm"] = "layer_norm"
    eps: Positive = 1e-5
    weight: bool = True
    bias: bool = True

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        given = {"weight": self.weight, "bias": self.bias}
        return {name: (self.channels,) for name, there in given.items() if there}


class RMSNorm(ByChannel):
    """x / sqrt(mean of the row's squares + eps) * weight.

    Args:
        channels: Width of the rows.
        eps: Number above 0 that is added to the mean square.
        weight: Whether there is a factor.

    Weights: weight, (channels,).
    """

    type: Literal["rms_norm"] = "rms_norm"
    eps: Positive
    weight: bool = True

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return {"weight": (self.channels,)} if self.weight else {}


class FrozenNorm(ScaleAndShift):
    """x * scale + shift: a norm over all vertices with the statistics that it had on the graph of the export.

    With a `length`, rows are then scaled to it: x * length / (eps + Euclidean norm of the row).

    Args:
        channels: Width of the rows.
        of: Norm that it stands for.
        length: Length of the rows, None to leave it.
        eps: Number from 0 on that is added to the norm of a row.

    Weights: scale and shift, (channels,).
    """

    type: Literal["frozen_norm"] = "frozen_norm"
    of: Frozen
    length: float | None = None
    eps: float = Field(1e-5, ge=0, description="of the scaling to a length")

    @property
    def is_approximate(self) -> bool:
        """Always: the module would take the statistics of the graph as it is now."""
        return True


AnyNorm = LayerNorm | RMSNorm | FrozenNorm
