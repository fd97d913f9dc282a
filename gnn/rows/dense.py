"""Linear layers and activations: layers that read the row of one vertex alone."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from freshet.gnn.rows.functions import AnyFunction
from freshet.gnn.rows.layer import Layer, Shape, Width
from freshet.gnn.rows.norms import AnyNorm, BatchNorm


class Linear(Layer):
    """y = x W^T + b.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        bias: Whether b is added.

    Weights: weight (W), (out_channels, in_channels); bias (b), (out_channels,).

    Shapes: x (n, in_channels) float32, result (n, out_channels) float32.
    """

    type: Literal["linear"] = "linear"
    in_channels: Width
    out_channels: Width
    bias: bool = True

    @property
    def in_width(self) -> int:
        """Width of the rows it reads."""
        return self.in_channels

    @property
    def out_width(self) -> int:
        """Width of the rows it makes."""
        return self.out_channels

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return linear_shapes("", self.in_channels, self.out_channels, bias=self.bias)


class Relu(Layer):
    """max(x, 0)."""

    type: Literal["relu"] = "relu"


class LeakyRelu(Layer):
    """x where x > 0, else slope * x.

    Args:
        slope: Factor of values below 0.
    """

    type: Literal["leaky_relu"] = "leaky_relu"
    slope: float = 0.01


class PRelu(Layer):
    """x where x > 0, else weight * x, with learned slopes: one, or one per channel.

    Args:
        channels: 1, or the width of the rows.

    Weights: weight, (channels,).
    """

    type: Literal["prelu"] = "prelu"
    channels: Width = 1

    @property
    def in_width(self) -> int | None:
        """Width of the rows it reads, None if any."""
        return None if self.channels == 1 else self.channels

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return {"weight": (self.channels,)}


class Elu(Layer):
    """x where x > 0, else alpha * (exp(x) - 1).

    Args:
        alpha: Factor of exp(x) - 1.
    """

    type: Literal["elu"] = "elu"
    alpha: float = 1.0


class Selu(Layer):
    """s x where x > 0, else s a (exp(x) - 1), with s = 1.0507 and a = 1.6733 as in torch (SELU)."""

    type: Literal["selu"] = "selu"


class Gelu(Layer):
    """x (1 + erf(x / sqrt(2))) / 2, or x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.

    Args:
        approximate: none or tanh, which of the two.
    """

    type: Literal["gelu"] = "gelu"
    approximate: Literal["none", "tanh"] = "none"


class Tanh(Layer):
    """tanh(x)."""

    type: Literal["tanh"] = "tanh"


class Sigmoid(Layer):
    """1 / (1 + exp(-x))."""

    type: Literal["sigmoid"] = "sigmoid"


class Silu(Layer):
    """x * sigmoid(x)."""

    type: Literal["silu"] = "silu"


class Identity(Layer):
    """x, as it is."""

    type: Literal["identity"] = "identity"


AnyActivation = Relu | LeakyRelu | PRelu | Elu | Selu | Gelu | Tanh | Sigmoid | Silu | Identity
AnyDense = Linear | BatchNorm | AnyActivation | AnyFunction | AnyNorm
DenseLayer = Annotated[AnyDense, Field(discriminator="type")]


def linear_shapes(prefix: str, in_width: int, out_width: int, *, bias: bool) -> dict[str, Shape]:
    """Names and shapes of the weights of a linear layer, behind the prefix."""
    shapes: dict[str, Shape] = {prefix + "weight": (out_width, in_width)}
    if bias:
        shapes[prefix + "bias"] = (out_width,)
    return shapes
