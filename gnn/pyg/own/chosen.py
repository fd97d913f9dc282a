"""Columns of what linear layers make, as those of a gate of a recurrent cell: the rows of the matrix that make them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from freshet.gnn.declarations import Elu, Gelu, LeakyRelu, Relu, Selu, Sigmoid, Silu, Tanh
from freshet.gnn.pyg.own.values import BINARY, Value, constant
from freshet.gnn.rows.functions import Celu, Clamp, LogSigmoid, Mish, Softplus

_BY_VALUE = (Celu, Clamp, Elu, Gelu, LeakyRelu, LogSigmoid, Mish, Relu, Selu, Sigmoid, Silu, Softplus, Tanh)
_FUNCTIONS = ("exp", "log", "sqrt", "abs", "power")


class Chosen:
    """Values in which columns of a linear layer, or of functions of such, are those of a layer of these alone."""

    def __init__(self) -> None:
        """Begin with none."""
        self._made, self._linear = dict[Value, Value](), dict[Value, bool]()

    def of(self, value: Value) -> Value:
        """Return a value so."""
        if value not in self._made:
            made = replace(value, of=tuple(self.of(one) for one in value.of)) if value.of else value
            if made.op == "take" and len(made.of) == 1 and len(made.arrays["column"]) <= made.of[0].width:
                base = made.of[0]
                made = self._columns(base, made.arrays["column"]) if self._is_linear(base) else made
            self._made[value] = _with_bias(made) if made.op == "add" else made
        return self._made[value]

    def _is_linear(self, value: Value) -> bool:
        """Return whether all that a value of more than one column is made of, number by number, are linear layers."""
        if value not in self._linear:
            if value.op in BINARY:
                inner = [one for one in value.of if one.op != "constant" and one.width == value.width]
                self._linear[value] = bool(inner) and all(map(self._is_linear, inner))
            elif value.op in _FUNCTIONS or (value.op == "layer" and isinstance(value.layer, _BY_VALUE)):
                self._linear[value] = self._is_linear(value.of[0])
            else:
                self._linear[value] = value.op == "linear"
        return self._linear[value]

    def _columns(self, value: Value, columns: np.ndarray) -> Value:
        """Return columns of a value that is linear so."""
        if value.op == "linear":
            arrays = {name: array[columns] for name, array in value.arrays.items()}
            return replace(value, width=len(columns), arrays=arrays)
        of = tuple(self._narrowed(one, value.width, columns) for one in value.of)
        return replace(value, width=len(columns), of=of)

    def _narrowed(self, value: Value, width: int, columns: np.ndarray) -> Value:
        if value.width != width or width == 1:
            return value
        if value.op == "constant":
            return constant(value.arrays["value"][columns], value.place)
        return self._columns(value, columns)


def _with_bias(value: Value) -> Value:
    """Return a linear layer and a constant as one layer."""
    for one, other in (value.of, value.of[::-1]):
        if one.op == "linear" and other.op == "constant" and one.width == value.width:
            bias = one.arrays.get("bias", np.zeros(one.width, np.float32)) + other.arrays["value"]
            return replace(one, arrays={**one.arrays, "bias": bias.astype(np.float32)})
    return value
