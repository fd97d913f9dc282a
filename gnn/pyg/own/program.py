"""Programs of a message_conv, made of the values of edges that a message is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from freshet.gnn.declarations import Linear
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.own.simplify import clamped
from freshet.gnn.pyg.own.values import BINARY, Value

_MOST_PIECES = 8
"""Pieces of a row that are put side by side; more are a product with a matrix of 0 and 1."""


_REFUSED = {
    "power": "a power other than 2 and 0.5 is no function of a message that Freshet knows",
    "normalized": "weights of gcn_norm are taken where they multiply x_j only. Nearest: do the rest before propagate",
    "finite": "the root of a degree is taken where those of both ends multiply x_j only. Nearest: do the rest "
    "before propagate",
}
"""Why values are no steps of a program, by their operation."""

_READ_WRONG = ("normalized", "finite")
"""Operations of which the line that reads their values is the one to change."""


class ProgramMaker:
    """Steps that make values of edges of the rows of their ends, with their weights."""

    prefix = "program"

    def __init__(self, places: Mapping[Value, tuple[int, int]], width: int) -> None:
        """Take where the values of vertices stand in the rows that the ends have, and how wide these are."""
        self._places, self._width = places, width
        self.steps: list[dict[str, Any]] = []
        self.weights: dict[str, np.ndarray] = {}
        self._names: dict[Any, str] = {}
        self._within: list[Value] = []

    def message(self, value: Value) -> None:
        """Note a value as the last step."""
        name = self.name(value)
        if name != str(len(self.steps) - 1):
            self._step(None, "cat", [name])

    def beside(self, values: Sequence[Value]) -> None:
        """Note values side by side as the last step."""
        self._step(None, "cat", [self.name(one) for one in values])

    def name(self, value: Value) -> str:
        """Return the name of the step that makes a value."""
        if value not in self._names:
            self._within.append(value)
            self._names[value] = self._made(value)
            self._within.pop()
        return self._names[value]

    def _step(self, key: Any, op: str, of: Sequence[str], arrays: Mapping[str, np.ndarray] = {}, **options: Any) -> str:
        if key is not None and key in self._names:
            return self._names[key]
        name = str(len(self.steps))
        self.steps.append({"op": op, "of": tuple(of), **options})
        self.weights |= {f"{self.prefix}.{name}.{of_it}": array.astype(np.float32) for of_it, array in arrays.items()}
        if key is not None:
            self._names[key] = name
        return name

    def _made(self, value: Value) -> str:
        if value.op in ("weight", "attr"):
            return value.op
        if value.op in ("gather", "aggregate", "rows"):
            return self.gathered(value)
        if value.op == "take":
            return self._take(value)
        if value.op == "constant":
            return self._step(None, "constant", (), value.arrays, width=value.width)
        if value.op == "linear":
            return self._linear(self.name(value.of[0]), value.arrays)
        if value.op == "layer":
            return self._step(None, "rows", [self.name(value.of[0])], value.arrays, layer=value.layer)
        if value.op in ("exp", "log", "sqrt", "abs"):
            return self._step(None, value.op, [self.name(value.of[0])])
        if (found := clamped(value)) is not None:
            return self._step(None, "rows", [self.name(found[0])], layer=found[1])
        if value.op in BINARY:
            return self._step(None, value.op, [self.name(one) for one in value.of])
        what = _REFUSED.get(value.op, f"{value.op} is no function of a message that Freshet knows")
        readers = self._within[:-1] if value.op in _READ_WRONG else []
        msg = f"{(readers or [value])[-1].place}: {what}"
        raise ExportError(msg)

    def gathered(self, value: Value) -> str:
        """Return the name of rows that are there: of an end of an edge."""
        return self._columns(value.name, *self._places[value.of[0]], self._width)

    def _columns(self, of: str, begin: int, end: int, width: int) -> str:
        if (begin, end) == (0, width):
            return of
        return self._step((of, begin, end), "columns", [of], begin=begin, end=end)

    def _linear(self, of: str, arrays: Mapping[str, np.ndarray]) -> str:
        weight, bias = arrays["weight"], "bias" in arrays
        out, into = weight.shape
        sums = np.kron(np.eye(out), np.ones((1, into // out))) if into % out == 0 else None
        if sums is not None and not bias and into > 1:
            for op, factor in (("sum_columns", 1.0), ("mean_columns", np.float32(out / into))):
                if np.array_equal(weight, (sums * factor).astype(np.float32)):
                    return self._step(None, op, [of], heads=out)
        layer = Linear(in_channels=into, out_channels=out, bias=bias)
        return self._step(None, "rows", [of], arrays, layer=layer)

    def _take(self, value: Value) -> str:
        which, column = value.arrays["which"], value.arrays["column"]
        if len(value.of) == 1:
            base, times = value.of[0], value.width // value.of[0].width
            if column.tolist() == np.repeat(np.arange(base.width), times).tolist():
                return self._step((value.op, base, times), "repeat", [self.name(base)], times=times)
        pieces, begin = list[tuple[int, int, int]](), 0
        for j in range(1, value.width + 1):
            if j == value.width or which[j] != which[j - 1] or column[j] != column[j - 1] + 1:
                pieces.append((int(which[begin]), int(column[begin]), int(column[j - 1]) + 1))
                begin = j
        if len(pieces) > _MOST_PIECES:
            return self._shuffled(value)
        names = [self._columns(self.name(value.of[w]), a, b, value.of[w].width) for w, a, b in pieces]
        return names[0] if len(names) == 1 else self._step(None, "cat", names)

    def _shuffled(self, value: Value) -> str:
        first = np.cumsum([0, *(one.width for one in value.of)])
        weight = np.zeros((value.width, first[-1]), np.float32)
        weight[np.arange(value.width), first[value.arrays["which"]] + value.arrays["column"]] = 1
        names = [self.name(one) for one in value.of]
        return self._linear(names[0] if len(names) == 1 else self._step(None, "cat", names), {"weight": weight})
