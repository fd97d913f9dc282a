"""The scale of errors behind functions and norms of rows (gnn/oracles/own_scale.py): a value moves its whole row.

Shapes: rows, scale (n, width) float64, of what goes in; results likewise, of what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from freshet.gnn.rows import full_pass
from freshet.gnn.rows.dense import Gelu
from freshet.gnn.rows.functions import Affine, Cosine, LogSoftmax, Normalize, Scale, Sine, Softmax
from freshet.gnn.rows.layer import Layer
from freshet.gnn.rows.norms import FrozenNorm, LayerNorm, RMSNorm

Array = np.ndarray
Weights = Mapping[str, Array]
Scaled = tuple[Array, Array]

_CANCELLED_MAX = 2.0**-22
"""Largest error of float32 in terms of up to 1 that cancel: a few roundings."""


def apply(layer: Layer, weights: Weights, rows: Array, scale: Array, step: float) -> Scaled | None:
    """Return rows and scale behind the layer; None for one that works value by value, or is not of this room.

    `step`: the tolerance, so that an error of `step * scale` is the largest that is looked for.
    """
    rule = _RULES.get(type(layer))
    if rule is None:
        return None
    made = full_pass.apply(layer, weights, rows)
    behind = rule(layer, weights, rows, scale, made, step)
    return made, np.where(np.isnan(behind), np.inf, behind)


def cancelled(layer: Layer, rows: Array, step: float) -> Array | float:
    """Return what terms that cancel inside the layer add to the scale: their rounding in float32, as steps.

    PyTorch computes them in float32, where nothing is left of a small result. Its other functions (exponentials minus
    1, logarithms of 1 plus something) are accurate at any size: tests/unit/gnn/rows/test_functions.py.
    """
    if isinstance(layer, Gelu):  # 1 + tanh or erf, far below 0
        return np.abs(rows) * (_CANCELLED_MAX / step)
    if isinstance(layer, LogSoftmax):  # a sum of exponentials of hardly more than 1
        return _CANCELLED_MAX / step
    return 0.0


def _affine(layer: Layer, weights: Weights, rows: Array, scale: Array, made: Array, step: float) -> Array:
    factor, shift = np.abs(weights["scale"]), np.abs(weights["shift"])
    return (np.abs(rows) + scale) * factor + shift


def _scale(layer: Scale, weights: Weights, rows: Array, scale: Array, made: Array, step: float) -> Array:
    return (np.abs(rows) + scale) * abs(layer.factor) + abs(layer.offset)


def _logarithms(rows: Array, scale: Array, step: float) -> tuple[Array, Array]:
    """Log-softmax, and by how much it is off: by its own value's error, and by that of the sum of all."""
    off = step * scale
    total = _log_sum(rows)
    of_total = np.maximum(_log_sum(rows + off) - total, total - _log_sum(rows - off))
    return rows - total, off + of_total


def _log_sum(rows: Array) -> Array:
    top = rows.max(axis=1, keepdims=True)
    result: Array = top + np.log(np.exp(rows - top).sum(axis=1, keepdims=True))
    return result


def _log_softmax(layer: LogSoftmax, weights: Weights, rows: Array, scale: Array, made: Array, step: float) -> Array:
    _, off = _logarithms(rows, scale, step)
    return np.abs(made) + off / step


def _softmax(layer: Softmax, weights: Weights, rows: Array, scale: Array, made: Array, step: float) -> Array:
    logarithms, off = _logarithms(rows, scale, step)
    above = np.exp(np.minimum(logarithms + off, 0)) - made
    below = made - np.exp(logarithms - off)
    return made + np.maximum(above, below) / step


def _wave(layer: Layer, weights: Weights, rows: Array, scale: Array, made: Array, step: float) -> Array:
    """A value moves by no more than its argument, of which a whole period may be unknown, and by no more than 2."""
    return np.abs(made) + np.minimum(scale, 2 / step)


def _lengthened(rows: Array, scale: Array, size: Array, centred: Array, count: int) -> Array:
    """The scale of centred / size, where size is the root of the mean of `count` squares of `centred`, or about so."""
    made = centred / size
    of_size = np.linalg.norm(made * scale, axis=1, keepdims=True) / (size * count)
    return np.abs(made) + scale / size + np.abs(made) * of_size


def _normalize(layer: Normalize, weights: Weights, rows: Array, scale: Array, made: Array, step: float) -> Array:
    size = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), layer.eps)
    return _lengthened(rows, scale, size, rows, 1)


def _layer_norm(layer: LayerNorm, weights: Weights, rows: Array, scale: Array, made: Array, step: float) -> Array:
    width = rows.shape[1]
    mean = rows.mean(axis=1, keepdims=True)
    terms = np.abs(rows) + np.abs(rows).mean(axis=1, keepdims=True)
    centred = terms + scale + np.linalg.norm(scale, axis=1, keepdims=True) / width
    size = np.sqrt(rows.var(axis=1, keepdims=True) + layer.eps)
    behind = _lengthened(rows, centred, size, rows - mean, width)
    return behind * np.abs(weights.get("weight", 1)) + np.abs(weights.get("bias", 0))


def _rms_norm(layer: RMSNorm, weights: Weights, rows: Array, scale: Array, made: Array, step: float) -> Array:
    size = np.sqrt((rows * rows).mean(axis=1, keepdims=True) + layer.eps)
    return _lengthened(rows, scale, size, rows, rows.shape[1]) * np.abs(weights.get("weight", 1))


def _frozen_norm(layer: FrozenNorm, weights: Weights, rows: Array, scale: Array, made: Array, step: float) -> Array:
    behind = _affine(layer, weights, rows, scale, made, step)
    if layer.length is None:
        return behind
    rows = rows * weights["scale"] + weights["shift"]
    size = layer.eps + np.linalg.norm(rows, axis=1, keepdims=True)
    return _lengthened(rows, behind, size, rows, 1) * abs(layer.length)


_RULES: dict[type[Layer], Callable[..., Array]] = {
    Affine: _affine,
    Scale: _scale,
    Sine: _wave,
    Cosine: _wave,
    Softmax: _softmax,
    LogSoftmax: _log_softmax,
    Normalize: _normalize,
    LayerNorm: _layer_norm,
    RMSNorm: _rms_norm,
    FrozenNorm: _frozen_norm,
}
