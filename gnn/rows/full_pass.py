"""The layers of rows that are no products once more, slow and obvious, in whatever precision the rows have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from freshet.gnn.rows.dense import Elu, Gelu, Identity, LeakyRelu, PRelu, Relu, Selu, Sigmoid, Silu, Tanh
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

Array = np.ndarray
Weights = Mapping[str, Array]


_erf = np.vectorize(math.erf, otypes=[np.float64])


def apply(layer: Layer, weights: Weights, x: Array) -> Array:
    """Return what the layer makes of rows."""
    made: Array = _FUNCTIONS[type(layer)](layer, weights, x)
    return made


def _gelu(layer: Gelu, weights: Weights, x: Array) -> Array:
    if layer.approximate == "none":
        return 0.5 * x * (1 + _erf(x * math.sqrt(0.5)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _selu(layer: Selu, weights: Weights, x: Array) -> Array:
    return 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))


def _clamp(layer: Clamp, weights: Weights, x: Array) -> Array:
    x = x if layer.low is None else np.where(x < layer.low, layer.low, x)
    return x if layer.high is None else np.where(x > layer.high, layer.high, x)


def _softplus(layer: Softplus, weights: Weights, x: Array) -> Array:
    return np.where(x * layer.beta > layer.threshold, x, np.logaddexp(0, x * layer.beta) / layer.beta)


def _celu(layer: Celu, weights: Weights, x: Array) -> Array:
    return np.where(x > 0, x, layer.alpha * np.expm1(np.minimum(x, 0) / layer.alpha))


def _affine(layer: ScaleAndShift, weights: Weights, x: Array) -> Array:
    return x * weights["scale"] + weights["shift"]


def _log_softmax(layer: Layer, weights: Weights, x: Array) -> Array:
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def _softmax(layer: Layer, weights: Weights, x: Array) -> Array:
    parts = np.exp(x - x.max(axis=1, keepdims=True))
    return parts / parts.sum(axis=1, keepdims=True)


def _normalize(layer: Normalize, weights: Weights, x: Array) -> Array:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), layer.eps)


def _layer_norm(layer: LayerNorm, weights: Weights, x: Array) -> Array:
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + layer.eps)
    return x * weights.get("weight", 1) + weights.get("bias", 0)


def _rms_norm(layer: RMSNorm, weights: Weights, x: Array) -> Array:
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + layer.eps) * weights.get("weight", 1)


def _frozen_norm(layer: FrozenNorm, weights: Weights, x: Array) -> Array:
    x = _affine(layer, weights, x)
    if layer.length is None:
        return x
    return layer.length * x / (layer.eps + np.linalg.norm(x, axis=1, keepdims=True))


def _degree_power(layer: DegreePower, weights: Weights, x: Array) -> Array:
    safe = np.where(x == 0, 1, x)
    return np.where(x == 0, 0, 1 / np.sqrt(safe) if layer.exponent == -0.5 else np.power(safe, layer.exponent))


_FUNCTIONS: dict[type[Layer], Callable[..., Array]] = {
    Identity: lambda layer, weights, x: x,
    Relu: lambda layer, weights, x: np.where(x <= 0, 0, x),
    LeakyRelu: lambda layer, weights, x: np.where(x > 0, x, x * layer.slope),
    PRelu: lambda layer, weights, x: np.where(x > 0, x, x * weights["weight"]),
    Elu: lambda layer, weights, x: np.where(x > 0, x, layer.alpha * np.expm1(np.minimum(x, 0))),
    Selu: _selu,
    Gelu: _gelu,
    Tanh: lambda layer, weights, x: np.tanh(x),
    Sigmoid: lambda layer, weights, x: 1 / (1 + np.exp(-x)),
    Silu: lambda layer, weights, x: x / (1 + np.exp(-x)),
    Clamp: _clamp,
    Softplus: _softplus,
    Celu: _celu,
    Mish: lambda layer, weights, x: x * np.tanh(np.logaddexp(0, x)),
    LogSigmoid: lambda layer, weights, x: -np.logaddexp(0, -x),
    Exponential: lambda layer, weights, x: np.exp(x),
    Logarithm: lambda layer, weights, x: np.log(x),
    SquareRoot: lambda layer, weights, x: np.sqrt(x),
    Sine: lambda layer, weights, x: np.sin(x),
    Cosine: lambda layer, weights, x: np.cos(x),
    Power: lambda layer, weights, x: 1 / np.sqrt(x) if layer.exponent == -0.5 else np.power(x, layer.exponent),
    DegreePower: _degree_power,
    Scale: lambda layer, weights, x: x * layer.factor + layer.offset,
    Affine: _affine,
    BatchNorm: _affine,
    Softmax: _softmax,
    LogSoftmax: _log_softmax,
    Normalize: _normalize,
    LayerNorm: _layer_norm,
    RMSNorm: _rms_norm,
    FrozenNorm: _frozen_norm,
}
