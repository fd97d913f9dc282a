"""Steps of the rows of vertices that a conv computes: layers of rows, hops and message_convs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from freshet.gnn.declarations import Linear, MessageConv
from freshet.gnn.pyg.errors import OUT_EDGES, ExportError, refuse
from freshet.gnn.pyg.forward.line import INPUT, Operations
from freshet.gnn.pyg.functions import Made, arithmetic
from freshet.gnn.pyg.own.degrees import Degrees, of_loops
from freshet.gnn.pyg.own.program import ProgramMaker
from freshet.gnn.pyg.own.simplify import (
    Hoisted,
    behind_sum,
    by_both_degrees,
    clamped,
    degree_power,
    ends_of,
    gathers,
    hop_of,
    normalized,
    weighed,
)
from freshet.gnn.pyg.own.values import LOOPS, Value, all_of, take
from freshet.gnn.pyg.steps import Hop, Step
from freshet.gnn.rows.functions import Affine, Exponential, Logarithm, Power, SquareRoot
from freshet.gnn.rows.jumps import CURRENT, Join, Operation
from freshet.gnn.rows.layer import Layer

_FUNCTIONS: dict[str, Callable[[Value], Layer]] = {
    "exp": lambda value: Exponential(),
    "log": lambda value: Logarithm(),
    "sqrt": lambda value: SquareRoot(),
    "power": lambda value: Power(exponent=float(value.arrays["exponent"][0])),
}
_JOINS: dict[str, Operation] = {"add": "sum", "mul": "product", "div": "quotient", "max": "max", "min": "min"}


def steps_of(name: str, result: Value, *, begins: bool = True) -> list[Step]:
    """Return the steps of a conv, or a function of rows, whose rows are this value.

    `begins`: whether nothing before it says how wide the rows are that it reads.

    Raises: ExportError naming the place of what no layer does.
    """
    steps = list(_Lines(name, result).steps())
    return [*(_of_width(name, result, steps) if begins else []), *steps]


def _of_width(name: str, result: Value, steps: list[Step]) -> list[Step]:
    """Return a layer that leaves rows as they are where these meet others before any layer says how wide they are."""
    for step in steps:
        if isinstance(step.op, Join):
            rows = [one for one in all_of(result) if one.op == "rows"]
            width = next((one.width for one in rows if one.name in ("", CURRENT)), rows[0].width)
            arrays = {"scale": np.ones(width, np.float32), "shift": np.zeros(width, np.float32)}
            return [Step(f"{name}/rows", Affine(channels=width), weights=arrays)]
        if getattr(step.op, "in_width", None) is not None or isinstance(step.op, Hop):
            break
    return []


class _Lines:
    """The operations of a conv on rows of vertices, as far as they are noted."""

    def __init__(self, name: str, result: Value) -> None:
        self._name, self._result = name, result
        # its first rows have a name of their own: what is around it may have kept others as those
        own = {"": f"{name}.{INPUT}", CURRENT: f"{name}.{INPUT}"}
        self._names = {one: own.get(one.name, one.name) for one in all_of(result) if one.op == "rows"}
        self._start = next((self._names[one] for one in self._names if one.name in own), None)
        self._ops = Operations(tuple(self._names.values()))
        self._hoisted, self._degrees = Hoisted(), Degrees()
        self._aggregates = [one for one in all_of(result) if one.op == "aggregate"]

    def steps(self) -> Iterator[Step]:
        return self._ops.steps(self._rows(self._result), self._start)

    def _rows(self, value: Value) -> str:
        if value not in self._names:
            self._names[value] = self._made(value)
        return self._names[value]

    def _made(self, value: Value) -> str:
        if value.op == "aggregate":
            return self._aggregate(value)
        if value.op == "take":
            return self._take(value)
        if value.op == "linear":
            return self._linear(self._rows(value.of[0]), value.arrays["weight"], value.arrays.get("bias"), value.place)
        if value.op in ("layer", "hop") and value.layer is not None:
            return self._layer(self._rows(value.of[0]), (value.layer, dict(value.arrays)), value.place)
        if (found := clamped(value) or normalized(value)) is not None:
            return self._layer(self._rows(found[0]), (found[1], {}), value.place)
        if (power := degree_power(value)) is not None:
            return self._layer(self._rows(power[0]), (power[1], {}), value.place)
        if (scaled := by_both_degrees(value)) is not None:
            return self._rows(scaled)
        if value.op in _FUNCTIONS:
            return self._layer(self._rows(value.of[0]), (_FUNCTIONS[value.op](value), {}), value.place)
        if value.op == "abs":
            rows = self._rows(value.of[0])
            return self._join(
                "max", [rows, self._with(rows, arithmetic("mul", -1.0, rows_first=True), value.place)], value
            )
        if value.op in ("add", "sub", "mul"):
            for one, other in (value.of, value.of[::-1]):
                if other.op == "constant":
                    return self._with_constant(value, one, other)
        if value.op == "sub":
            negative = self._with(self._rows(value.of[1]), arithmetic("mul", -1.0, rows_first=True), value.place)
            return self._join("sum", [self._rows(value.of[0]), negative], value)
        if value.op == "div" and value.of[0].op == "constant":
            return self._join("quotient", [self._constant(value.of[0], value.of[1]), self._rows(value.of[1])], value)
        if value.op in _JOINS:
            return self._join(_JOINS[value.op], [self._rows(one) for one in value.of], value)
        what = {
            "constant": "a row that all vertices share",
            "out_degree": "the number of out-edges by itself, not the root of it beside that of a target's degree,",
        }.get(value.op, value.op)
        msg = f"{value.place or self._name}: {what} is no layer of rows that Freshet has; inside a message it is taken"
        raise ExportError(msg).of(OUT_EDGES if value.op == "out_degree" else "")

    def _label(self, place: str) -> str:
        return f"{self._name}/{place}"

    def _join(self, operation: Operation, rows: list[str], value: Value) -> str:
        return self._ops.join(self._label(value.place), operation, rows)

    def _layer(self, rows: str, made: Made, place: str) -> str:
        layer, weights = made
        return self._ops.add(rows, Step(self._label(place), layer, weights=weights))

    def _with(self, rows: str, layers: list[Made], place: str) -> str:
        for made in layers:
            rows = self._layer(rows, made, place)
        return rows

    def _with_constant(self, value: Value, one: Value, other: Value) -> str:
        row = other.arrays["value"]
        row = row[0] if len(set(row.tolist())) == 1 else row
        layers = arithmetic(value.op, row, rows_first=one is value.of[0])
        return self._with(self._rows(one), layers, value.place)

    def _constant(self, value: Value, like: Value) -> str:
        """Note a row that all vertices share, as rows of others times 0 plus that."""
        shift = np.broadcast_to(value.arrays["value"], like.width).astype(np.float32)
        layer = (Affine(channels=like.width), {"scale": np.zeros(like.width, np.float32), "shift": shift})
        return self._layer(self._rows(like), layer, value.place or like.place)

    def _linear(self, rows: str, weight: np.ndarray, bias: np.ndarray | None, place: str) -> str:
        out, into = weight.shape
        layer = Linear(in_channels=into, out_channels=out, bias=bias is not None)
        return self._layer(rows, (layer, {"weight": weight} | ({} if bias is None else {"bias": bias})), place)

    def _take(self, value: Value) -> str:
        """Note columns of rows, by a linear layer of 0 and 1 where they are not all in their order."""
        if any(one.op == "constant" for one in value.of):
            return self._padded(value)
        rows, width = self._beside(list(value.of), value.place), sum(one.width for one in value.of)
        first = np.cumsum([0, *(one.width for one in value.of)])
        columns = first[value.arrays["which"]] + value.arrays["column"]
        if columns.tolist() == list(range(width)):
            return rows
        return self._linear(rows, np.eye(width, dtype=np.float32)[columns], None, value.place)

    def _padded(self, value: Value) -> str:
        """Note columns of rows and of a row that all share, by a linear layer whose bias is that row."""
        rows = [one for one in value.of if one.op != "constant"]
        first = dict(zip(rows, np.cumsum([0, *(one.width for one in rows)]).tolist(), strict=False))
        weight = np.zeros((value.width, sum(one.width for one in rows)), np.float32)
        bias = np.zeros(value.width, np.float32)
        for at, (which, column) in enumerate(zip(value.arrays["which"], value.arrays["column"], strict=True)):
            one = value.of[which]
            if one.op == "constant":
                bias[at] = one.arrays["value"][column]
            else:
                weight[at, first[one] + column] = 1
        return self._linear(self._beside(rows, value.place), weight, bias if bias.any() else None, value.place)

    def _beside(self, values: list[Value], place: str) -> str:
        names = [self._rows(one) for one in values]
        return names[0] if len(names) == 1 else self._ops.join(self._label(place), "cat", names)

    def _aggregate(self, value: Value) -> str:
        message = self._hoisted.of(value.of[0])
        if (hop := self._hop(value, message)) is not None:
            return hop
        if (summed := self._degrees.summed(value)) is not None:
            return self._rows(summed)
        message = self._hoisted.of(self._degrees.of(value.of[0]))
        if "softmax" in ends_of(message):
            return self._attention(value, message)
        others = [one for one in self._aggregates if one.of[0] is value.of[0] and one not in self._names]
        kinds = list(dict.fromkeys([value.name, *(one.name for one in others)]))
        own = of_loops([message])
        places, rows, width = self._sent([message], value, own)
        maker = ProgramMaker(places, width)
        maker.message(message)
        aggr = value.name if len(kinds) == 1 else tuple(kinds)
        loops = _loops_of(value, places, own, message)
        name = self._conv(rows, maker, width, message.width * len(kinds), value.place, aggr=aggr, **loops)
        if len(kinds) == 1:
            return name
        whole = Value("aggregates", message.width * len(kinds), "vertices")
        self._names[whole] = name
        for one in others:
            columns = kinds.index(one.name) * message.width + np.arange(message.width)
            of = take([whole], np.zeros(message.width, np.int64), columns, "vertices", value.place)
            self._names[one] = self._rows(of)
        return self._names[value]

    def _hop(self, value: Value, message: Value) -> str | None:
        """Note an aggregate of rows of sources, or of these times the weight, which is a layer of its own."""
        found = hop_of(value, message)
        if found is None:
            return None
        hop, rows, weighted = found
        return self._ops.add(self._rows(rows), Step(self._label(value.place), hop, edge_weights=weighted))

    def _attention(self, value: Value, message: Value) -> str:
        """Note a sum of messages that a softmax weighs; what is linear around it is done behind the sum."""
        if (behind := behind_sum(value, message)) is not None:
            return self._rows(behind)
        heads, scores, values = weighed(value, message)
        own = of_loops([scores, values])
        places, rows, sent = self._sent([scores, values], value, own)
        maker = ProgramMaker(places, sent)
        maker.beside([scores, values])
        loops = _loops_of(value, places, own, scores, values)
        return self._conv(rows, maker, sent, message.width, value.place, aggr="softmax", heads=heads, **loops)

    def _sent(
        self, messages: list[Value], aggregate: Value, own: Value | None = None
    ) -> tuple[dict[Value, tuple[int, int]], str, int]:
        """Return where values of vertices stand in the row that messages read, its name and its width.

        `own`: the messages of added self-loops, where these are not made by the program.
        """
        ends, place = dict[Value, set[str]](), aggregate.place
        for one in gathers(messages):
            ends.setdefault(one.of[0], set()).add(one.name)
        for attr in _attributes_of(aggregate, messages):
            for one in attr.of:
                ends.setdefault(one, {"target"})
        if own is not None:
            ends.setdefault(own, {"target"})
        order = [{"source"}, {"source", "target"}, {"target"}]
        values = sorted(ends, key=lambda one: order.index(ends[one]))
        values = values or [one for one in all_of(self._result) if one.op == "rows"]
        if not values:
            refuse(f"{place}: its result depends on no row of a vertex; expected a message or an update that reads x")
        bounds = np.cumsum([0, *(one.width for one in values)]).tolist()
        places = {one: (bounds[i], bounds[i + 1]) for i, one in enumerate(values)}
        return places, self._beside(values, place), bounds[-1]

    def _conv(self, rows: str, maker: ProgramMaker, width: int, out: int, place: str, **options: Any) -> str:
        attr = next((one.width for one in all_of(self._result) if one.op == "attr"), 0)
        reads = {name for step in maker.steps for name in step["of"]}
        sizes = {"in_channels": width, "out_channels": out, "edge_channels": attr if "attr" in reads else 0}
        layer = MessageConv.model_validate({**sizes, "program": maker.steps, **options})
        return self._layer(rows, (layer, maker.weights), place)


def _attributes_of(value: Value, messages: Sequence[Value]) -> list[Value]:
    """Return the attributes and weights of the edges of an aggregate that its messages read."""
    read = [one for message in messages for one in all_of(message, within=True) if one.op in ("weight", "attr")]
    return [one for one in read if one.over == value.of[0].over]


def _loops_of(
    value: Value, places: Mapping[Value, tuple[int, int]], own: Value | None, *messages: Value
) -> dict[str, Any]:
    """Return what a message_conv says of self-loops.

    Raises: ExportError where their messages read what Freshet does not have.
    """
    adds, there = LOOPS[value.of[0].over]
    read = _attributes_of(value, messages)
    fills = {float(one.arrays["fill"][0]) for one in read if not one.of} if adds else set[float]()
    columns = {places[one][0] for attr in read for one in attr.of}
    if len(fills) > 1 or len(columns) > 1:
        msg = f"{value.place}: self-loops that its forward adds have several weights or attributes; expected one number"
        raise ExportError(msg)
    if adds and there == "keep" and any(one.op == "attr" for one in read):
        msg = f"{value.place}: add_remaining_self_loops keeps attributes of self-loops that are there, and "
        raise ExportError(msg + "Freshet does not. Nearest: add_self_loops, or remove_self_loops before it")
    found = {"add_self_loops": adds, "existing_loops": there, "self_value": fills.pop() if fills else 1.0}
    if own is not None:
        return found | {"self_messages": places[own][0]}
    return found | ({"self_columns": columns.pop()} if columns else {})
