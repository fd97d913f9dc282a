"""Programs of a message_conv, made of the values of edges that a message is; on a relation of both kinds' rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from freshet.gnn.declarations import Linear, MessageConv
from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.own.running import ConvWidths
from freshet.gnn.pyg.own.simplify import behind_sum, clamped, degree_power, ends_of, weighed
from freshet.gnn.pyg.own.values import BINARY, Value, all_of
from freshet.gnn.pyg.steps import Converted, Weights
from freshet.gnn.rows.functions import Power

_MOST_PIECES = 8
"""Pieces of a row that are put side by side; more are a product with a matrix of 0 and 1."""


class ProgramMaker:
    """Steps that make values of edges of the rows of their ends, with their weights."""

    prefix = "program"

    def __init__(self, places: Mapping[Value, tuple[int, int]], width: int) -> None:
        """Take where the values of vertices stand in the rows that the ends have, and how wide these are."""
        self._places, self._width = places, width
        self.steps: list[dict[str, Any]] = []
        self.weights: dict[str, np.ndarray] = {}
        self._names: dict[Any, str] = {}

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
            self._names[value] = self._made(value)
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
        if value.op == "beside_loops":
            return self.name(value.of[0])
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
        if (power := degree_power(value)) is not None:
            return self._step(None, "rows", [self.name(power[0])], layer=power[1])
        if value.op == "power":
            layer = Power(exponent=float(value.arrays["exponent"][0]))
            return self._step(None, "rows", [self.name(value.of[0])], layer=layer)
        if (found := clamped(value)) is not None:
            return self._step(None, "rows", [self.name(found[0])], layer=found[1])
        if value.op in (*BINARY, "where"):
            return self._step(None, value.op, [self.name(one) for one in value.of])
        refuse(f"{value.place}: {value.op} is no function of a message that Freshet knows")

    def gathered(self, value: Value) -> str:
        """Return the name of rows that are there: of an end of an edge."""
        return self._columns(str(value.name), *self._places[value.of[0]], self._width)

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


_BY_DEGREES = ("normalized", "power", "infinite", "finite")
_SEVERAL = "on a relation a conv has one sum, or several aggregates of the same edges without softmax"


def relation_layer(name: str, result: Value, widths: ConvWidths) -> Converted:
    """Return the message_conv that makes these rows, and its weights.

    Raises: ExportError naming the place of what no conv of a relation does.
    """
    result = BehindSoftmax().of(result)
    found = [one for one in all_of(result) if one.op == "aggregate"]
    if not found:
        refuse(f"{name}: it aggregates nothing: its rows depend on no edge of the relation")
    for one in found:
        _refuse_unread(one)
    pushed = _Pushed()
    messages = list(dict.fromkeys(pushed.of(one.of[0]) for one in found))
    maker, options, places = EndsMaker(), dict[str, Any](), dict[Value, tuple[int, int]]()
    if any("softmax" in ends_of(one) for one in messages):
        options, total = _attention(found, messages, maker, places)
    else:
        options, total = _plain(found, pushed, messages, maker, places)
    update = _UpdateMaker(places, total)
    update.result(result)
    weights: Weights = maker.weights | update.weights
    reads = {of for step in maker.steps for of in step["of"]}
    attr = widths.attributes if "attr" in reads else 0
    sizes: dict[str, Any] = {"in_channels": widths.rows, "out_channels": result.width, "edge_channels": attr}
    if widths.target not in (0, widths.rows):
        sizes["target_channels"] = widths.target
    more = {"update": update.steps} if update.steps else {}
    return MessageConv.model_validate({**sizes, "program": maker.steps, **options, **more}), weights


def _refuse_unread(aggregate: Value) -> None:
    """Refuse messages that read other aggregates, self-loops or degrees.

    Raises: ExportError naming the place.
    """
    place, inside = aggregate.place, [one for one in all_of(aggregate.of[0]) if one is not aggregate]
    if aggregate.of[0].over not in ("edges", "every"):
        msg = f"{place}: its forward adds self-loops or takes them out, which on a relation no conv that is read "
        raise ExportError(msg + "does. Nearest: leave them out, and add what a vertex sends itself in update")
    if any(one.op in _BY_DEGREES for one in inside):
        msg = f"{place}: its messages are scaled by degrees, which on a relation is not read. Nearest: aggr='mean', or "
        raise ExportError(msg + "GCNConv on a relation within one kind")
    if any(one.op == "aggregate" for one in inside):
        msg = f"{place}: its messages read an aggregate of edges, such as degrees by hand or an earlier hop, which on "
        raise ExportError(msg + "a relation is not read. Nearest: aggr='mean' for degrees, a conv for each hop")


def _attention(
    found: Sequence[Value], messages: Sequence[Value], maker: EndsMaker, places: dict[Value, tuple[int, int]]
) -> tuple[dict[str, Any], int]:
    """Note messages [scores | values] of the one sum that a softmax weighs; returns options and its width."""
    if len(found) > 1:
        refuse(f"{found[1].place}: {_SEVERAL}")
    width = messages[0].width
    heads, scores, values = weighed(found[0], messages[0])
    maker.beside([scores, values])
    places[found[0]] = (0, width)
    return {"aggr": "softmax", "heads": heads}, width


def _plain(
    found: Sequence[Value],
    pushed: _Pushed,
    messages: Sequence[Value],
    maker: EndsMaker,
    places: dict[Value, tuple[int, int]],
) -> tuple[dict[str, Any], int]:
    """Note all messages side by side; returns options and the width of their aggregates, kind by kind."""
    kinds = list(dict.fromkeys(one.name for one in found))
    first = np.cumsum([0, *(one.width for one in messages)]).tolist()
    if len(messages) == 1:
        maker.message(messages[0])
    else:
        maker.beside(messages)
    for one in found:
        begin = kinds.index(one.name) * first[-1] + first[messages.index(pushed.of(one.of[0]))]
        places[one] = (begin, begin + one.width)
    return {"aggr": kinds[0] if len(kinds) == 1 else tuple(kinds)}, first[-1] * len(kinds)


class BehindSoftmax:
    """Values of vertices in which what is linear around a softmax is done behind the sum."""

    def __init__(self) -> None:
        self._made = dict[Value, Value]()

    def of(self, value: Value) -> Value:
        """Return a value so."""
        if value not in self._made:
            self._made[value] = self._moved(value)
        return self._made[value]

    def _moved(self, value: Value) -> Value:
        if value.op == "aggregate":
            message = _Pushed().of(value.of[0])
            behind = behind_sum(value, message) if "softmax" in ends_of(message) else None
            return value if behind is None else self.of(behind)
        of = tuple(map(self.of, value.of))
        return value if of == value.of else replace(value, of=of)


class _Pushed:
    """Values of edges in which the rows of an end are taken first, as they came, and computed with then."""

    def __init__(self) -> None:
        self._made = dict[tuple[Value, str], Value]()

    def of(self, value: Value, end: str = "") -> Value:
        """Return a value of edges, or that of the vertices at one end of each, so."""
        key = value, end
        if key not in self._made:
            self._made[key] = self._push(value, end)
        return self._made[key]

    def _push(self, value: Value, end: str) -> Value:
        if value.op == "gather":
            return self.of(value.of[0], value.name) if value.of[0].op != "rows" else value
        if value.op == "rows":
            return Value("gather", value.width, "edges", (value,), value.place, name=end)
        if value.op == "aggregate" or not value.of:
            return value
        of = tuple(self.of(one, end) for one in value.of)
        return value if of == value.of else replace(value, of=of, over="edges")


class EndsMaker(ProgramMaker):
    """Steps that make messages of the rows of both ends as they came."""

    def __init__(self) -> None:
        super().__init__({}, 0)

    def gathered(self, value: Value) -> str:
        """Return the name of the rows of an end."""
        return str(value.name)


class _UpdateMaker(ProgramMaker):
    """Steps that make the row of a vertex of its aggregates and its own row."""

    prefix = "update"

    def __init__(self, places: dict[Value, tuple[int, int]], total: int) -> None:
        """Take where aggregates stand in the row of all of them, and how wide that is."""
        super().__init__(places, total)

    def result(self, value: Value) -> None:
        """Note the row as the last step; none for that of all aggregates."""
        if self.name(value) != "aggregate":
            self.message(value)

    def gathered(self, value: Value) -> str:
        """Return the name of the aggregates, or of the vertex's own row."""
        return "own" if value.op == "rows" else self._columns("aggregate", *self._places[value], self._width)
