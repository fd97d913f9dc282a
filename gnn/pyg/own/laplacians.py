"""PyG's get_laplacian in a conv of one's own: sums that it weighs are a vertex's own row and a hop of ChebConv."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from freshet.gnn.declarations import Laplacian
from freshet.gnn.pyg.own.recorder import NotedValue, Operation
from freshet.gnn.pyg.own.simplify import factors, one_column
from freshet.gnn.pyg.own.values import Over, Value, all_of, constant
from freshet.gnn.pyg.refusals import LAPLACIAN

NAMES = ("edge_index", "edge_attr", "normalization", "dtype", "num_nodes")


def weights_of(call: Operation, given: Mapping[str, Any], edges: Value, weight: Value | None) -> list[NotedValue]:
    """Note a Laplacian, scaled by out-degrees: its edges, of which a self-loop for each vertex, and their weights.

    Raises: ExportError for other edges or weights than those of the graph.
    """
    if edges.over != "edges" or (weight is not None and weight.op != "weight"):
        call.refuse(f"get_laplacian {LAPLACIAN}")
    return _noted(call, "relooped", (given.get("normalization") or "none", weight is not None), 1.0, 1.0)


def with_loops(call: Operation, value: Value | None, fill: float) -> list[NotedValue] | None:
    """Note that each vertex gets one more self-loop beside that of a Laplacian; None where a value is none."""
    found = None if value is None else _scaled(value)
    if found is None or found[0].over != "relooped":
        return None
    (laplacian, factor), name = found, found[0].name
    ours, loops = (float(laplacian.arrays[of][0]) * factor for of in ("edges", "loops"))
    return _noted(call, "again", name, ours, loops + fill)


def _noted(call: Operation, over: Over, name: Any, edges: float, loops: float) -> list[NotedValue]:
    arrays = {"edges": np.array([edges]), "loops": np.array([loops])}
    weights = Value("laplacian", 1, over, place=call.place, name=name, arrays=arrays)
    return [NotedValue(Value("edges", 2, over, place=call.place), 1), NotedValue(weights, 0)]


def _scaled(value: Value) -> tuple[Value, float] | None:
    """Return the Laplacian's weights that a value is, and the number that they are multiplied by; None for others."""
    found = factors(value)
    weights = [one for one in found if one.op == "laplacian"]
    numbers = [one for one in found if one.op == "constant" and one.width == 1]
    if len(weights) != 1 or len(found) != 1 + len(numbers):
        return None
    return weights[0], float(np.prod([one.arrays["value"][0] for one in numbers], dtype=np.float64))


def summed(call: Operation, message: Value, kind: Any) -> Value | None:
    """Return the sum of messages that a Laplacian L weighs, a value of vertices; None for messages without one.

    Its hop is L x - x, for each normalization, so a multiple of L x is that of the hop and of x.

    Raises: ExportError where these are more than weights times the rows of sources, or not summed.
    """
    if message.over != "again" and not any(one.op == "laplacian" for one in all_of(message, within=True)):
        return None
    found = [one_column(one) for one in factors(message)]
    weights = [one for one in found if one.op == "laplacian"]
    rows = [one for one in found if one.op == "gather" and one.name == "source"]
    numbers = [one for one in found if one.op == "constant"]
    if kind != "sum" or (len(weights), len(rows), len(found)) != (1, 1, 2 + len(numbers)):
        call.refuse("weights of get_laplacian are taken where they multiply x_j, and these are summed")
    x, width, place = rows[0].of[0], message.width, call.place
    normalization, weighted = weights[0].name
    hop = Laplacian(in_channels=width, out_channels=width, normalization=normalization, edge_weights=weighted)
    value = Value("hop", width, "vertices", (x,), place, layer=hop)
    value, own = (
        Value("mul", width, "vertices", (one, constant(weights[0].arrays[of], place)), place)
        for one, of in ((value, "edges"), (x, "loops"))
    )
    if weights[0].arrays["loops"][0]:
        value = Value("add", width, "vertices", (value, own), place)
    for one in numbers:
        value = Value("mul", width, "vertices", (value, one), place)
    return value
