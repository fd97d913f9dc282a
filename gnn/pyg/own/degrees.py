"""Weights that PyG's gcn_norm makes, as degrees and products with their roots, where they are part of any message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.own.values import LOOPS, Over, Value, constant, take

_Key = tuple[Over, str, float, Value | None]


class Degrees:
    """Messages in which normalised weights are products of weights and roots of degrees, which are counted once."""

    def __init__(self) -> None:
        """Begin with none."""
        self._roots = dict[_Key, Value]()
        self._loopless: Value | None = None
        self._messages = dict[Value, Value]()

    def of(self, value: Value) -> Value:
        """Return a message so, without what it reads of an end by way of aggregates."""
        if value not in self._messages:
            self._messages[value] = self._made(value)
        return self._messages[value]

    def summed(self, value: Value) -> Value | None:
        """Return the sum of messages weighed by functions of what edges have, that of added self-loops by itself.

        None for another aggregate.
        Raises: ExportError where that is no sum, or self-loops read what they do not have.
        """
        found = next((one for one in _within(value.of[0]) if one.op == "normalized" and one.of), None)
        if found is None or not LOOPS[value.of[0].over][0]:
            return None
        if value.name != "sum":
            msg = f"{value.place}: messages of self-loops that gcn_norm adds are aggregated by {value.name!r} beside "
            raise ExportError(msg + "weights that are functions of what edges have; supported: add")
        message = replace(self.of(value.of[0]), over=found.of[0].over)
        by_edges = Value("aggregate", value.width, "vertices", (message,), value.place, name="sum")
        own = _of_loops(value.of[0], {found: self._of_loop(found)})
        if found.over == "looped":
            column = np.zeros(value.width, np.int64)
            without = take([self._without_loop(value.place)], column, column, "vertices", value.place)
            own = Value("mul", value.width, "vertices", (own, without), value.place)
        return Value("add", value.width, "vertices", (by_edges, own), value.place)

    def _made(self, value: Value) -> Value:
        if value.op == "normalized":
            return self._factor(value)
        if value.op == "gather" or not value.of:
            return value
        of = tuple(map(self.of, value.of))
        return value if of == value.of else replace(value, of=of)

    def _factor(self, value: Value) -> Value:
        root, place = self._root(value), value.place
        of_ends = [Value("gather", 1, value.over, (root,), place, name=end) for end in ("source", "target")]
        product = Value("mul", 1, value.over, (of_ends[0], of_ends[1]), place)
        weight = value.of[0] if value.of else self._weight(value)
        return product if weight.op == "constant" else Value("mul", 1, value.over, (product, weight), place)

    def _weight(self, value: Value) -> Value:
        """Return the weight of edges, self-loops included: one for all where there is none."""
        if value.name == "weighted":
            return Value("weight", 1, value.over, place=value.place, arrays=value.arrays)
        if _fill(value) != 1.0:
            msg = f"{value.place}: gcn_norm with improved=True without weights is taken where it multiplies x_j only"
            raise ExportError(msg + ". Nearest: improved=False")
        return replace(constant(np.ones(1), value.place), over=value.over)

    def _root(self, value: Value) -> Value:
        """Return 1 / sqrt(degree) of vertices, 0 where the degree is 0."""
        key = value.over, value.name, _fill(value), value.of[0] if value.of else None
        if key not in self._roots:
            degree = self._degree(value)
            exponent = {"exponent": np.array([-0.5])}
            root = Value("power", 1, "vertices", (degree,), value.place, arrays=exponent)
            never_0 = LOOPS[value.over][0] and not value.name
            self._roots[key] = root if never_0 else Value("finite", 1, "vertices", (root,), value.place)
        return self._roots[key]

    def _degree(self, value: Value) -> Value:
        weight, place = value.of[0] if value.of else self._weight(value), value.place
        degree = Value("aggregate", 1, "vertices", (weight,), place, name="sum")
        if not value.of or not LOOPS[value.over][0]:
            return degree
        added = constant(np.array([_fill(value)]), place)
        if value.over == "looped":
            added = Value("mul", 1, "vertices", (self._without_loop(place), added), place)
        return Value("add", 1, "vertices", (degree, added), place)

    def _of_loop(self, value: Value) -> Value:
        """Return the normalised weight of self-loops that are added, a value of vertices."""
        root, place = self._root(value), value.place
        square = Value("mul", 1, "vertices", (root, root), place)
        fill = constant(np.array([_fill(value)]), place)
        return square if _fill(value) == 1.0 else Value("mul", 1, "vertices", (square, fill), place)

    def _without_loop(self, place: str) -> Value:
        """Return 1 for vertices without a self-loop, else 0: in-edges from others, less all in-edges, plus 1."""
        if self._loopless is None:
            counts = [
                Value("aggregate", 1, "vertices", (replace(constant(np.ones(1), place), over=over),), place, name="sum")
                for over in ("unlooped", "edges")
            ]
            more = Value("sub", 1, "vertices", (counts[0], counts[1]), place)
            self._loopless = Value("add", 1, "vertices", (more, constant(np.ones(1), place)), place)
        return self._loopless


def _fill(value: Value) -> float:
    return float(value.arrays["fill"][0]) if "fill" in value.arrays else 1.0


def _within(value: Value, seen: set[Value] | None = None) -> list[Value]:
    """Return what a message is made of, as far as rows of its ends."""
    seen = set() if seen is None else seen
    if value in seen:
        return []
    seen.add(value)
    inside = () if value.op in ("gather", "normalized", "beside_loops") else value.of
    return [value, *(one for part in inside for one in _within(part, seen))]


def of_loops(messages: Sequence[Value]) -> Value | None:
    """Return messages of added self-loops side by side, as a value of their vertices; None where edges' are no other.

    Raises: ExportError where they also read weights or attributes.
    """
    found = dict.fromkeys(one for value in messages for one in _within(value) if one.op == "beside_loops")
    if not found:
        return None
    made = [_of_loops(one, {one: one.of[1] for one in found}) for one in messages]
    which = np.repeat(np.arange(len(made)), [one.width for one in made])
    columns = np.concatenate([np.arange(one.width) for one in made])
    return take(made, which, columns, "vertices", messages[0].place)


def _of_loops(value: Value, known: Mapping[Value, Value]) -> Value:
    """Return a message of self-loops as a value of their vertices.

    Raises: ExportError where it reads what edges have, or other normalised weights.
    """
    made = dict(known)

    def of(one: Value) -> Value:
        if one not in made:
            made[one] = lifted(one)
        return made[one]

    def lifted(one: Value) -> Value:
        if one.op == "gather" or (one.op == "attr" and one.of):
            return one.of[0]
        if one.op in ("weight", "attr", "normalized", "softmax"):
            refuse(
                f"{one.place or value.place}: a message of added self-loops reads {one.op} beside what else is theirs"
            )
        parts = tuple(map(of, one.of))
        if one.op == "linear" and parts[0].op == "constant":
            made = one.arrays["weight"] @ parts[0].arrays["value"] + one.arrays.get("bias", 0.0)
            return constant(made, one.place)
        return replace(one, of=parts, over="every" if one.op == "constant" else "vertices")

    return of(value)
