"""Values of edges, rearranged: what reads one end alone is computed for each vertex, what is linear behind a sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from freshet.gnn.pyg.aggregations import AGGREGATORS
from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.own.values import LOOPS, Value, take
from freshet.gnn.pyg.steps import Hop
from freshet.gnn.rows.functions import Clamp, DegreePower, Normalize

_OF_MESSAGES = ("exp", "log", "sqrt", "abs", "div")
_OF_ROWS = ("add", "sub", "mul", "max", "min", "take", "linear", "layer", "constant", "gather")


def ends_of(value: Value, seen: dict[Value, frozenset[str]] | None = None) -> frozenset[str]:
    """Return the inputs that a value of edges reads: source, target, weight, attr, softmax."""
    seen = {} if seen is None else seen
    if value not in seen:
        if value.op in ("gather", "weight", "attr", "softmax"):
            seen[value] = frozenset([value.name or value.op])
        else:
            seen[value] = frozenset().union(*(ends_of(one, seen) for one in value.of))
    return seen[value]


class Hoisted:
    """Values of edges in which all that reads one end alone is a value of vertices, taken by the end."""

    def __init__(self) -> None:
        """Begin with none."""
        self._made: dict[Value, Value] = {}
        self._lifted: dict[Value, Value] = {}
        self._taken: dict[tuple[Value, str], Value] = {}
        self._ends: dict[Value, frozenset[str]] = {}

    def of(self, value: Value) -> Value:
        """Return a value of edges so."""
        if value not in self._made:
            self._made[value] = self._hoist(value)
        return self._made[value]

    def _hoist(self, value: Value) -> Value:
        if value.op == "gather":
            return self._within(value.of[0], value)
        if value.op in ("weight", "attr", "constant"):
            return value
        if value.op == "beside_loops":
            return replace(value, of=(self.of(value.of[0]), value.of[1]))
        ends = ends_of(value, self._ends)
        spread = value.op == "take" and value.width > sum(one.width for one in value.of)
        if ends in ({"source"}, {"target"}) and not spread and self._is_of_rows(value):
            lifted = self._lift(value)
            return Value("gather", value.width, value.over, (lifted,), value.place, name=next(iter(ends)))
        return replace(value, of=tuple(self.of(one) for one in value.of))

    def _within(self, value: Value, gather: Value) -> Value:
        """Return the rows of an end; functions that no layer of rows has are done behind that, edge by edge."""
        if value.op == "constant":
            return value
        key = value, gather.name
        if key not in self._taken:
            if _is_of_messages(value):
                of = tuple(self._within(one, gather) for one in value.of)
                self._taken[key] = replace(value, of=of, over=gather.over)
            else:
                self._taken[key] = gather if value is gather.of[0] else replace(gather, of=(value,), width=value.width)
        return self._taken[key]

    def _is_of_rows(self, value: Value) -> bool:
        if value.op == "gather":
            return not _is_of_messages(value.of[0])
        if value.op in ("max", "min") and any(one.op == "constant" and one.width > 1 for one in value.of):
            return False
        return value.op in _OF_ROWS and all(self._is_of_rows(one) for one in value.of)

    def _lift(self, value: Value) -> Value:
        """Return a value of edges that reads one end alone as one of that end's vertex."""
        if value.op == "gather":
            return value.of[0]
        if value.op == "constant":
            return value
        if value not in self._lifted:
            of = tuple(self._lift(one) for one in value.of)
            if value.op == "take":
                arrays = value.arrays
                self._lifted[value] = take(of, arrays["which"], arrays["column"], "vertices", value.place)
            else:
                self._lifted[value] = replace(value, of=of, over="vertices")
        return self._lifted[value]


def _is_of_messages(value: Value) -> bool:
    """Return whether a value of vertices has a function that programs of messages have, and layers of rows do not."""
    if value.op in ("rows", "aggregate", "hop", "finite", "power") or normalized(value) is not None:
        return False
    return value.op in _OF_MESSAGES or any(_is_of_messages(one) for one in value.of)


def factors(value: Value) -> list[Value]:
    """Return what a value is the product of, each of its width or of width 1."""
    if value.op == "mul":
        return [factor for one in value.of for factor in factors(one)]
    if value.op == "take" and len(value.of) == 1 and value.of[0].op == "mul":
        which, column = value.arrays["which"], value.arrays["column"]
        parts = [
            one if one.width == 1 < value.of[0].width else take([one], which, column, value.over, value.place)
            for one in value.of[0].of
        ]
        return [factor for one in parts for factor in factors(one)]
    return [value]


def spread_of(value: Value, op: str) -> tuple[Value, np.ndarray] | None:
    """Return a value of this operation, and which of its columns stand where, if a value is no more than that."""
    if value.op == op:
        return value, np.arange(value.width)
    if value.op == "take" and len(value.of) == 1 and value.of[0].op == op:
        return value.of[0], value.arrays["column"]
    return None


def gathers(values: Sequence[Value], seen: set[Value] | None = None) -> Iterator[Value]:
    """Yield the rows of ends that values read, each once."""
    seen = set() if seen is None else seen
    for value in values:
        if value not in seen:
            seen.add(value)
            if value.op == "gather":
                yield value
            yield from gathers(value.of, seen)


def normalized(value: Value) -> tuple[Value, Normalize] | None:
    """Return the rows that a value divides by their length, and the layer that does."""
    if value.op != "div" or (rows := value.of[0]).width == 1:
        return None
    found = value.of[1]
    if found.op != "take" or found.of[0].width != 1 or len(found.of) != 1:
        return None
    found, bound = found.of[0], 0.0
    if isinstance(layer := found.layer, Clamp) and layer.high is None:
        found, bound = found.of[0], layer.low or 0.0
    if found.op != "sqrt" or found.of[0].op != "linear" or bound <= 0:
        return None
    summed = found.of[0]
    squares = summed.of[0]
    is_sum = summed.arrays.keys() == {"weight"} and bool((summed.arrays["weight"] == 1).all())
    return (rows, Normalize(eps=bound)) if is_sum and squares.op == "mul" and squares.of == (rows, rows) else None


def clamped(value: Value) -> tuple[Value, Clamp] | None:
    """Return the other side of a maximum or minimum with one number, and the clamp that it is."""
    if value.op not in ("max", "min"):
        return None
    for one, other in (value.of, value.of[::-1]):
        if other.op == "constant" and len(set(other.arrays["value"].tolist())) == 1:
            bound = float(other.arrays["value"][0])
            return one, Clamp(low=bound) if value.op == "max" else Clamp(high=bound)
    return None


def degree_power(value: Value) -> tuple[Value, DegreePower] | None:
    """Return the degrees of which a value is a power, 0 where these are 0, and the layer that does it."""
    if value.op != "finite":
        return None
    of = value.of[0]
    if of.op == "power" and (exponent := float(of.arrays["exponent"][0])) < 0:
        return of.of[0], DegreePower(exponent=exponent)
    if of.op == "div" and of.of[0].op == "constant" and (of.of[0].arrays["value"] == 1).all():
        return of.of[1], DegreePower(exponent=-1.0)
    return None


def behind_sum(value: Value, message: Value) -> Value | None:
    """Return the sum of a message with what is linear in it done behind, one step of it; None where nothing is.

    Raises: ExportError for another aggregate than a sum.
    """
    if value.name != "sum":
        refuse(f"{value.place}: messages weighed by softmax are aggregated by {value.name!r}; supported: add")

    def summed(of: Value) -> Value:
        of = replace(of, over=value.of[0].over) if of.over == "every" else of
        return Value("aggregate", of.width, "vertices", (of,), value.place, name="sum")

    arrays, place = message.arrays, message.place
    if message.op == "linear" and "bias" not in arrays:
        return Value("linear", message.width, "vertices", (summed(message.of[0]),), place, arrays=arrays)
    if message.op in ("add", "sub"):
        return Value(message.op, message.width, "vertices", tuple(map(summed, message.of)), place)
    found = [one for one in factors(message) if spread_of(one, "softmax") is not None]
    if message.op == "take" and not found and len(message.of) == 1:
        return take([summed(message.of[0])], arrays["which"], arrays["column"], "vertices", place)
    return None


def weighed(value: Value, message: Value) -> tuple[int, Value, Value]:
    """Return the heads, the scores and the values of a message that is a softmax times something.

    Raises: ExportError for another message.
    """
    width = message.width
    found = [(one, spread) for one in factors(message) if (spread := spread_of(one, "softmax")) is not None]
    rest = [one for one in factors(message) if one not in [factor for factor, _ in found]]
    if len(found) != 1 or any("softmax" in ends_of(one) for one in rest):
        refuse(f"{message.place or value.place}: Freshet takes a message that is a softmax times something")
    softmax, columns = found[0][1]
    scores, heads = softmax.of[0], softmax.width
    if "softmax" in ends_of(scores):
        refuse(f"{softmax.place}: a softmax of a softmax is no function of a message that Freshet knows")
    if width % heads or columns.tolist() != np.repeat(np.arange(heads), width // heads).tolist():
        scores, heads = take([scores], np.zeros(width, np.int64), columns, "edges", softmax.place), width
    if not rest:
        rest = [Value("constant", width, "every", place=value.place, arrays={"value": np.ones(width, np.float32)})]
    product = rest[0]
    for one in rest[1:]:
        product = Value("mul", max(product.width, one.width), "edges", (product, one), value.place)
    if product.width != width:
        product = take([product], np.zeros(width, np.int64), np.zeros(width, np.int64), "edges", value.place)
    return heads, scores, product


_BY_OUT = {"both": {"source": "out", "target": "constant"}, "out": {"source": "out", "target": "out"}}
"""For each `degrees` of a hop that counts out-edges, the degree that scales its sources and its targets."""


def hop_of(value: Value, message: Value) -> tuple[Hop, Value, bool] | None:
    """Return the hop that an aggregate is, the rows of vertices that it reads, and whether it reads weights.

    None for another message.
    """
    if value.name not in AGGREGATORS:
        return None
    (loops, there), found = LOOPS[value.of[0].over], [one_column(one) for one in factors(message)]
    rows = [one for one in found if one.op == "gather" and one.name == "source" and not _is_root(one)]
    weights = [one for one in found if one.op == "weight"]
    roots = [one for one in found if _is_root(one)]
    normalized = [one for one in found if one.op == "normalized"]
    if len(rows) != 1 or rows[0].width != message.width or len(found) != 1 + len(weights + roots + normalized):
        return None
    width, own = message.width, 1.0
    weighted = bool(weights)
    if loops and weights + normalized:
        own = float((weights + normalized)[0].arrays["fill"][0])
    if normalized:
        if len(found) != 2 or normalized[0].of:
            return None
        weighted = normalized[0].name == "weighted"
    elif roots:
        degrees = {one.name: _degree(one) for one in roots}
        alike = dict.fromkeys(("source", "target"), "weight" if weighted else "constant")
        if len(roots) != 2 or degrees not in (alike, *_BY_OUT.values()) or len(weights) > 1:
            return None
    elif len(weights) > 1:
        return None
    hop = Hop(bool(normalized or roots), loops, width, value.name, own, there)
    for name, of_ends in _BY_OUT.items() if roots else ():
        hop = hop._replace(degrees=name) if degrees == of_ends else hop  # type: ignore[arg-type]
    return hop, rows[0].of[0], weighted


def by_both_degrees(value: Value) -> Value | None:
    """Return a sum of rows scaled by out-degrees, itself scaled by in-degrees, as one that scales its messages.

    None for another value.
    """
    if value.op != "mul":
        return None
    for total, scale in (value.of, value.of[::-1]):
        if total.op != "aggregate" or total.name != "sum" or total.of[0].op != "gather":
            continue
        sent = total.of[0]
        parts = [replace(sent, of=(one,), width=one.width) for one in map(one_column, factors(sent.of[0]))]
        behind = one_column(scale)
        parts.append(replace(sent, of=(behind,), width=behind.width, name="target"))
        if sum(_is_root(one) for one in parts) == 2 and any(_degree(one) == "out" for one in parts):
            message, *rest = sorted(parts, key=_is_root, reverse=True)  # both ends first: nothing is lifted to one
            for one in rest:
                message = Value("mul", max(message.width, one.width), sent.over, (message, one), value.place)
            found = replace(total, of=(message,))
            return None if hop_of(found, message) is None else found
    return None


def one_column(value: Value) -> Value:
    """Return what a value repeats, where it repeats one column."""
    repeats = value.op == "take" and len(value.of) == 1 and value.of[0].width == 1
    return value.of[0] if repeats else value


def _is_root(value: Value) -> bool:
    """Return whether a value is 1 / sqrt(degree) of an end, and 0 where that may be 0."""
    return value.op == "gather" and bool(_degree(value))


def _degree(value: Value) -> str:
    """Return what the degree counts whose root a value is: out for out-edges, else weight, or constant for ones.

    Empty for none, and where the root of a degree of 0 is not 0 as in PyG's gcn_norm. The target of an edge has an
    in-edge, its source an out-edge, and with self-loops each vertex has one: at least 1 is then no condition.
    """
    root, adds = value.of[0], LOOPS[value.over][0]
    power = root.of[0] if root.op == "finite" else root
    if power.op != "power" or power.arrays["exponent"].tolist() != [-0.5]:
        return ""
    degree, bound = power.of[0], None
    if isinstance(degree.layer, Clamp):
        degree, bound = degree.of[0], degree.layer
    if bound not in (None, Clamp(low=1.0)):
        return ""
    if degree.op == "out_degree":
        never_0 = value.name == "source" or adds
        is_counted = degree.name == value.over and (never_0 or (root.op == "finite" and bound is None))
        return "out" if is_counted else ""
    if degree.op != "aggregate" or degree.name != "sum" or degree.of[0].over not in (value.over, "every"):
        return ""
    counted, is_gcn = degree.of[0], root.op == "finite" and bound is None
    if counted.op == "constant" and counted.arrays["value"].tolist() == [1.0]:
        return "constant" if is_gcn or adds or value.name == "target" else ""
    return "weight" if counted.op == "weight" and is_gcn else ""
