"""The layers that work value by value, and the functions of rows, slow and obvious."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from freshet.gnn.declarations import Elu, Gelu, Layer, LeakyRelu, PRelu
from freshet.gnn.rows import full_pass

Array = np.ndarray

_erf = np.vectorize(math.erf, otypes=[np.float64])

_SIMPLE: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.where(x <= 0, 0, x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "identity": lambda x: x,
}


def applied(layer: Layer, weights: dict[str, Array], x: Array) -> Array:
    """Return the rows behind a layer that mixes neither vertices nor, but for those of gnn/rows, columns."""
    made = full_pass.apply(layer, weights, x)
    if made is not None:
        out = made
    elif isinstance(layer, PRelu):
        out = np.where(x > 0, x, x * weights["weight"])
    elif isinstance(layer, LeakyRelu):
        out = np.where(x > 0, x, x * layer.slope)
    elif isinstance(layer, Elu):
        out = np.where(x > 0, x, layer.alpha * np.expm1(np.minimum(x, 0)))
    elif isinstance(layer, Gelu) and layer.approximate == "none":
        out = 0.5 * x * (1 + _erf(x * math.sqrt(0.5)))
    elif isinstance(layer, Gelu):
        out = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    else:
        out = _SIMPLE[layer.type](x)  # type: ignore[attr-defined]
    return out
