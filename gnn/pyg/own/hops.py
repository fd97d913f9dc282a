"""Messages that are rows of sources, times the weights of edges or the roots of degrees: hops that have a layer."""

from __future__ import annotations

from freshet.gnn.pyg.own.simplify import factors
from freshet.gnn.pyg.own.values import LOOPS, Value
from freshet.gnn.pyg.steps import Hop


def hop_of(value: Value, message: Value) -> tuple[Hop, Value, bool] | None:
    """Return the hop that an aggregate is, the rows of vertices that it reads, and whether it reads weights.

    None for another message.
    """
    (loops, there), found = LOOPS[value.of[0].over], [_one_column(one) for one in factors(message)]
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
        if len(found) != 2:
            return None
        weighted = normalized[0].name == "weighted"
    elif roots:
        ends = sorted(one.name for one in roots)
        degrees = {_degree(one) for one in roots}
        if ends != ["source", "target"] or degrees != {"weight" if weighted else "constant"} or len(weights) > 1:
            return None
    elif len(weights) > 1:
        return None
    hop = Hop(bool(normalized or roots), loops, width, value.name, own, there)
    return hop, rows[0].of[0], weighted


def _one_column(value: Value) -> Value:
    """Return what a value repeats, where it repeats one column."""
    repeats = value.op == "take" and len(value.of) == 1 and value.of[0].width == 1
    return value.of[0] if repeats else value


def _is_root(value: Value) -> bool:
    """Return whether a value is 1 / sqrt(degree) of an end, and 0 where that may be 0."""
    return value.op == "gather" and _degree(value) in ("weight", "constant")


def _degree(value: Value) -> str:
    """Return what is summed for the degree whose root a value is: weight, or constant for ones; empty for none."""
    found, adds = value.of[0], LOOPS[value.over][0]
    never_0 = adds and found.op == "power"  # each vertex has a self-loop, if degrees are numbers of edges
    for op in ("power", "aggregate") if never_0 else ("finite", "power", "aggregate"):
        if found.op != op:
            return ""
        if op == "power" and found.arrays["exponent"].tolist() != [-0.5]:
            return ""
        if op == "aggregate" and (found.name != "sum" or found.of[0].over not in (value.over, "every")):
            return ""
        found = found.of[0]
    ones = found.op == "constant" and found.arrays["value"].tolist() == [1.0]
    return found.op if (found.op == "weight" and not never_0) or ones else ""
