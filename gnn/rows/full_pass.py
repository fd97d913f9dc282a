"""The functions and norms of rows once more, slow and obvious, in numpy and in whatever precision the rows have."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from freshet.gnn.rows.functions import (
    Affine,
    Celu,
    Clamp,
    LogSigmoid,
    LogSoftmax,
    Mish,
    Normalize,
    Scale,
    Softmax,
    Softplus,
)
from freshet.gnn.rows.layer import Layer, ScaleAndShift
from freshet.gnn.rows.norms import BatchNorm, FrozenNorm, LayerNorm, RMSNorm

Array = np.ndarray
Weights = Mapping[str, Array]


def apply(layer: Layer, weights: Weights, x: Array) -> Array | None:
    """Return what the layer makes of rows; None for a layer that is not of this room."""
    function = _FUNCTIONS.get(type(layer))
    return None if function is None else function(layer, weights, x)


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


_FUNCTIONS: dict[type[Layer], Callable[..., Array]] = {
    Clamp: _clamp,
    Softplus: _softplus,
    Celu: _celu,
    Mish: lambda layer, weights, x: x * np.tanh(np.logaddexp(0, x)),
    LogSigmoid: lambda layer, weights, x: -np.logaddexp(0, -x),
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
