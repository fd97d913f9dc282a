"""A conv of the user's own on a relation becomes one message_conv, whose programs read the rows of both kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from freshet.gnn.declarations import MessageConv
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.own.program import ProgramMaker
from freshet.gnn.pyg.own.running import ConvWidths
from freshet.gnn.pyg.own.simplify import ends_of
from freshet.gnn.pyg.own.values import Value, all_of
from freshet.gnn.pyg.own.weighed import behind_sum, weighed
from freshet.gnn.pyg.steps import Converted, Weights

_BY_DEGREES = ("normalized", "power", "infinite", "finite")
_SEVERAL = "on a relation a conv has one sum, or several aggregates of the same edges without softmax"


def relation_layer(name: str, result: Value, widths: ConvWidths) -> Converted:
    """Return the message_conv that makes these rows, and its weights.

    Raises: ExportError naming the place of what no conv of a relation does.
    """
    result = _Behind().of(result)
    found = [one for one in all_of(result) if one.op == "aggregate"]
    if not found:
        msg = f"{name}: it aggregates nothing: its rows depend on no edge of the relation"
        raise ExportError(msg)
    for one in found:
        _refuse_unread(one)
    pushed = _Pushed()
    messages = list(dict.fromkeys(pushed.of(one.of[0]) for one in found))
    maker, options, places = _EndsMaker(), dict[str, Any](), dict[Value, tuple[int, int]]()
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
    found: Sequence[Value], messages: Sequence[Value], maker: _EndsMaker, places: dict[Value, tuple[int, int]]
) -> tuple[dict[str, Any], int]:
    """Note messages [scores | values] of the one sum that a softmax weighs; returns options and its width."""
    if len(found) > 1:
        msg = f"{found[1].place}: {_SEVERAL}"
        raise ExportError(msg)
    width = messages[0].width
    heads, scores, values = weighed(found[0], messages[0])
    maker.beside([scores, values])
    places[found[0]] = (0, width)
    return {"aggr": "softmax", "heads": heads}, width


def _plain(
    found: Sequence[Value],
    pushed: _Pushed,
    messages: Sequence[Value],
    maker: _EndsMaker,
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


class _Behind:
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


class _EndsMaker(ProgramMaker):
    """Steps that make messages of the rows of both ends as they came."""

    def __init__(self) -> None:
        super().__init__({}, 0)

    def gathered(self, value: Value) -> str:
        """Return the name of the rows of an end."""
        return value.name


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
