"""Declarations of the functions of rows beyond the common activations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from freshet.gnn.rows.layer import Layer, ScaleAndShift

Positive = Annotated[float, Field(gt=0)]


class Clamp(Layer):
    """Values below `low` become low, those above `high` high: relu6 and hardtanh; null is no bound."""

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
    """log(1 + exp(beta x)) / beta; the value itself where beta x > threshold."""

    type: Literal["softplus"] = "softplus"
    beta: Positive = 1.0
    threshold: float = 20.0


class Celu(Layer):
    """The value where x > 0, else alpha * (exp(x / alpha) - 1)."""

    type: Literal["celu"] = "celu"
    alpha: Positive = 1.0


class Mish(Layer):
    """x * tanh(log(1 + exp(x)))."""

    type: Literal["mish"] = "mish"


class LogSigmoid(Layer):
    """log(1 / (1 + exp(-x)))."""

    type: Literal["log_sigmoid"] = "log_sigmoid"


class Scale(Layer):
    """x * factor + offset, both of them numbers."""

    type: Literal["scale"] = "scale"
    factor: float = 1.0
    offset: float = 0.0


class Affine(ScaleAndShift):
    """x * scale + shift, channel by channel."""

    type: Literal["affine"] = "affine"


class Softmax(Layer):
    """exp(x_c) / sum of exp(x) over the row."""

    type: Literal["softmax"] = "softmax"


class LogSoftmax(Layer):
    """The logarithm of softmax."""

    type: Literal["log_softmax"] = "log_softmax"


class Normalize(Layer):
    """x / max(Euclidean norm of the row, eps)."""

    type: Literal["normalize"] = "normalize"
    eps: Positive = 1e-12


AnyFunction = Clamp | Softplus | Celu | Mish | LogSigmoid | Scale | Affine | Softmax | LogSoftmax | Normalize
