"""Declarations of the functions of rows beyond the common activations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, model_validator

from freshet.gnn.rows.layer import Layer, ScaleAndShift

Positive = Annotated[float, Field(gt=0)]


class Clamp(Layer):
    """min(max(x, low), high): relu6 and hardtanh.

    Args:
        low: Lower bound, None for none.
        high: Upper bound, None for none; not below `low`.
    """

    type: Literal["clamp"] = "clamp"
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Clamp:
        if self.low is not None and self.high is not None and self.low > self.high:
            msg = f"clamp: got low {self.low} above high {self.high}"
            raise ValueError(msg)
        return self


class Softplus(Layer):
    """log(1 + exp(beta x)) / beta; x where beta x > threshold.

    Args:
        beta: Number above 0.
        threshold: Bound from which on the result is x.
    """

    type: Literal["softplus"] = "softplus"
    beta: Positive = 1.0
    threshold: float = 20.0


class Celu(Layer):
    """x where x > 0, else alpha * (exp(x / alpha) - 1).

    Args:
        alpha: Number above 0.
    """

    type: Literal["celu"] = "celu"
    alpha: Positive = 1.0


class Mish(Layer):
    """x * tanh(log(1 + exp(x)))."""

    type: Literal["mish"] = "mish"


class LogSigmoid(Layer):
    """log(1 / (1 + exp(-x)))."""

    type: Literal["log_sigmoid"] = "log_sigmoid"


class Exponential(Layer):
    """e^x."""

    type: Literal["exp"] = "exp"


class Logarithm(Layer):
    """The natural logarithm of x: NaN below 0."""

    type: Literal["log"] = "log"


class SquareRoot(Layer):
    """The square root of x: NaN below 0."""

    type: Literal["sqrt"] = "sqrt"


class Sine(Layer):
    """sin(x)."""

    type: Literal["sin"] = "sin"


class Cosine(Layer):
    """cos(x)."""

    type: Literal["cos"] = "cos"


class Power(Layer):
    """x^exponent: NaN below 0 where the exponent is no whole number.

    Args:
        exponent: Finite number; 2 by default.
    """

    type: Literal["power"] = "power"
    exponent: FiniteFloat = 2.0


class DegreePower(Layer):
    """x^exponent, and 0 where x is 0: of degrees, of which vertices without edges have 0.

    Args:
        exponent: Number below 0.
    """

    type: Literal["degree_power"] = "degree_power"
    exponent: Annotated[FiniteFloat, Field(lt=0)] = -0.5


class Scale(Layer):
    """x * factor + offset.

    Args:
        factor: Number that all values are multiplied by.
        offset: Number that is added to all values.
    """

    type: Literal["scale"] = "scale"
    factor: float = 1.0
    offset: float = 0.0


class Affine(ScaleAndShift):
    """x * scale + shift, channel by channel.

    Args:
        channels: Width of the rows.

    Weights: scale and shift, (channels,).
    """

    type: Literal["affine"] = "affine"


class Softmax(Layer):
    """exp(x_c) / (sum of exp(x) over the row), in each channel c."""

    type: Literal["softmax"] = "softmax"


class LogSoftmax(Layer):
    """x_c - log(sum of exp(x) over the row), in each channel c."""

    type: Literal["log_softmax"] = "log_softmax"


class Normalize(Layer):
    """x / max(Euclidean norm of the row, eps).

    Args:
        eps: Number above 0, the least divisor.
    """

    type: Literal["normalize"] = "normalize"
    eps: Positive = 1e-12


AnyFunction = (
    Clamp
    | Softplus
    | Celu
    | Mish
    | LogSigmoid
    | Exponential
    | Logarithm
    | SquareRoot
    | Sine
    | Cosine
    | Power
    | DegreePower
    | Scale
    | Affine
    | Softmax
    | LogSoftmax
    | Normalize
)
