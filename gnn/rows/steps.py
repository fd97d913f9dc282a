"""The layers of rows that are no products, made ready to run in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from freshet.gnn.numerics import elementwise
from freshet.gnn.rows.dense import Elu, Gelu, LeakyRelu, PRelu, Relu, Selu, Sigmoid, Silu, Tanh
from freshet.gnn.rows.functions import (
    Affine,
    Celu,
    Clamp,
    Cosine,
    DegreePower,
    Exponential,
    Logarithm,
    LogSigmoid,
    LogSoftmax,
    Mish,
    Normalize,
    Power,
    Scale,
    Sine,
    Softmax,
    Softplus,
    SquareRoot,
)
from freshet.gnn.rows.layer import Layer, ScaleAndShift
from freshet.gnn.rows.norms import BatchNorm, FrozenNorm, LayerNorm, RMSNorm

Rows = NDArray[np.float32]
Weights = Mapping[str, Rows]
InPlace = Callable[[Rows], None]


def in_place(layer: Layer, weights: Weights) -> InPlace | None:
    """Return what the layer does to (n, d) C-contiguous rows, in place; None for a layer that is not of this room."""
    make = _STEPS.get(type(layer))
    return None if make is None else make(layer, weights)


def _flat(kernel: Callable[[Rows], None]) -> Callable[..., InPlace]:
    """Return what makes the step of a function that takes a flat array, and no option."""
    return lambda layer, weights: lambda x: kernel(x.reshape(-1))


def _leaky_relu(layer: LeakyRelu, weights: Weights) -> InPlace:
    slope = np.float32(layer.slope)
    return lambda x: elementwise.leaky_relu(x.reshape(-1), slope)


def _prelu(layer: PRelu, weights: Weights) -> InPlace:
    slopes = weights["weight"]
    return lambda x: elementwise.prelu(x, np.broadcast_to(slopes, (x.shape[1],)).copy())


def _gelu(layer: Gelu, weights: Weights) -> InPlace:
    gelu = elementwise.gelu if layer.approximate == "none" else elementwise.gelu_tanh
    return lambda x: gelu(x.reshape(-1))


def _affine(layer: ScaleAndShift, weights: Weights) -> InPlace:
    scale, shift = weights["scale"], weights["shift"]

    def step(x: Rows) -> None:
        x *= scale
        x += shift

    return step


def _clamp(layer: Clamp, weights: Weights) -> InPlace:
    low = -np.inf if layer.low is None else layer.low
    high = np.inf if layer.high is None else layer.high
    return lambda x: elementwise.clamp(x.reshape(-1), low, high)


def _softplus(layer: Softplus, weights: Weights) -> InPlace:
    return lambda x: elementwise.softplus(x.reshape(-1), layer.beta, layer.threshold)


def _scale(layer: Scale, weights: Weights) -> InPlace:
    # x + -0.0 is x, whatever its sign
    factor, offset = np.float32(layer.factor), np.float32(layer.offset or -0.0)
    return lambda x: elementwise.scale(x.reshape(-1), factor, offset)


def _degree_power(layer: DegreePower, weights: Weights) -> InPlace:
    def step(x: Rows) -> None:
        none = x == 0
        elementwise.power(x.reshape(-1), layer.exponent)
        x[none] = 0

    return step


def _layer_norm(layer: LayerNorm, weights: Weights) -> InPlace:
    weight = weights.get("weight", np.ones(layer.channels, np.float32))
    bias = weights.get("bias", np.zeros(layer.channels, np.float32))
    return lambda x: elementwise.layer_norm(x, weight, bias, layer.eps)


def _rms_norm(layer: RMSNorm, weights: Weights) -> InPlace:
    weight = weights.get("weight", np.ones(layer.channels, np.float32))
    return lambda x: elementwise.rms_norm(x, weight, layer.eps)


def _frozen_norm(layer: FrozenNorm, weights: Weights) -> InPlace:
    step, length, eps = _affine(layer, weights), layer.length, layer.eps
    if length is None:
        return step

    def scaled(x: Rows) -> None:
        step(x)
        elementwise.to_length(x, length, eps)

    return scaled


_STEPS: dict[type[Layer], Callable[..., InPlace]] = {
    Relu: _flat(elementwise.relu),
    LeakyRelu: _leaky_relu,
    PRelu: _prelu,
    Elu: lambda layer, weights: lambda x: elementwise.elu(x.reshape(-1), layer.alpha),
    Selu: _flat(elementwise.selu),
    Gelu: _gelu,
    Tanh: _flat(elementwise.tanh),
    Sigmoid: _flat(elementwise.sigmoid),
    Silu: _flat(elementwise.silu),
    Clamp: _clamp,
    Softplus: _softplus,
    Celu: lambda layer, weights: lambda x: elementwise.celu(x.reshape(-1), layer.alpha),
    Mish: _flat(elementwise.mish),
    LogSigmoid: _flat(elementwise.log_sigmoid),
    Exponential: _flat(elementwise.exponential),
    Logarithm: _flat(elementwise.logarithm),
    SquareRoot: _flat(elementwise.square_root),
    Sine: _flat(elementwise.sine),
    Cosine: _flat(elementwise.cosine),
    Power: lambda layer, weights: lambda x: elementwise.power(x.reshape(-1), layer.exponent),
    DegreePower: _degree_power,
    Scale: _scale,
    Affine: _affine,
    BatchNorm: _affine,
    Softmax: lambda layer, weights: elementwise.softmax,
    LogSoftmax: lambda layer, weights: elementwise.log_softmax,
    Normalize: lambda layer, weights: lambda x: elementwise.normalize(x, layer.eps),
    LayerNorm: _layer_norm,
    RMSNorm: _rms_norm,
    FrozenNorm: _frozen_norm,
}
