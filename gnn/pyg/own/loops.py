"""PyG's functions that add self-loops to edges, take them out, or do so and divide by degrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from freshet.gnn.pyg.own.recorder import NotedValue, Operation, Recorder
from freshet.gnn.pyg.own.values import LOOPS, Over, Value

_NAMES = ("edge_index", "edge_attr", "fill_value", "num_nodes")
_OF_NORM = ("edge_index", "edge_attr", "num_nodes", "improved", "add_self_loops", "flow", "dtype")


def gcn_norm(rec: Recorder, call: Operation) -> list[NotedValue]:
    """Note PyG's gcn_norm: edges with self-loops, and their weights divided by the roots of both ends' degrees."""
    given, edges, weight = _given(rec, call, _OF_NORM)
    if given.get("flow", "source_to_target") != "source_to_target":
        call.refuse("gcn_norm against the edges; messages flow source_to_target")
    if weight is not None and weight.op != "weight":
        call.refuse("gcn_norm is called with something other than the weights of the edges")
    over, fill = edges.over, _filled(weight)
    if given.get("add_self_loops", True):
        over, fill = _with_loops(call, over, remaining=True), [2.0 if given.get("improved") else 1.0]
        _check_vertices(rec, call, given)
    arrays = {"fill": np.array(fill)} if LOOPS[over][0] else {}
    name = "weighted" if weight else ""
    return [
        NotedValue(replace(edges, over=over, place=call.place), 1),
        NotedValue(Value("normalized", 1, over, place=call.place, name=name, arrays=arrays), 0),
    ]


def add_self_loops(rec: Recorder, call: Operation) -> list[NotedValue | None]:
    """Note that each vertex gets a self-loop; by add_remaining_self_loops where it has none."""
    given, edges, value = _given(rec, call, _NAMES)
    over = _with_loops(call, edges.over, remaining=call.name == "add_remaining_self_loops")
    _check_vertices(rec, call, given)
    noted = [NotedValue(replace(edges, over=over, place=call.place), 1), None]
    if value is not None:
        fill = _fill_of(call, given.get("fill_value"))
        noted[1] = NotedValue(replace(value, over=over, place=call.place, arrays={"fill": np.array([fill])}), 0)
    return noted


def remove_self_loops(rec: Recorder, call: Operation) -> list[NotedValue | None]:
    """Note that self-loops are taken out."""
    _, edges, value = _given(rec, call, _NAMES)
    if edges.over not in ("edges", "unlooped"):
        call.refuse(f"{call.name} takes out self-loops that were added. Nearest: take them out before, or add none")
    made = [replace(one, over="unlooped", place=call.place) for one in (edges, value) if one is not None]
    return [NotedValue(one, axis) for one, axis in zip(made, (1, 0), strict=False)] + [None] * (2 - len(made))


def _given(rec: Recorder, call: Operation, names: Sequence[str]) -> tuple[dict[str, Any], Value, Value | None]:
    """Return the arguments by name, the edges, and their weights or attributes.

    Raises: ExportError for others than those of the graph.
    """
    if "sources" in rec.sizes:
        call.refuse(
            f"{call.name} reads degrees or self-loops, and vertex i of one kind is not vertex i of the other. "
            "Nearest: leave it out between two kinds; aggr='mean' divides by the number of in-edges of the relation"
        )
    given = dict(zip(names, call.args, strict=False))
    given |= {"edge_attr" if name == "edge_weight" else name: value for name, value in call.options.items()}
    edges, values = rec.find(given["edge_index"]), given.get("edge_attr")
    if edges is None or edges.value.op != "edges":
        call.refuse(f"{call.name} is called with other edges than those of the graph")
    noted = rec.find(values)
    if values is None:
        return given, edges.value, None
    if noted is None or noted.axis != 0 or noted.value.op not in ("weight", "attr"):
        call.refuse(f"{call.name} is called with something other than the weights or attributes of the edges")
    if noted.value.over != edges.value.over:
        call.refuse(f"{call.name} is called with values of other edges: self-loops differ")
    return given, edges.value, noted.value


def _with_loops(call: Operation, over: Over, *, remaining: bool) -> Over:
    if over == "unlooped":
        return "relooped"
    if over != "edges":
        call.refuse(f"{call.name} adds self-loops to edges that have such already. Nearest: add them once")
    return "looped" if remaining else "doubled"


def _check_vertices(rec: Recorder, call: Operation, given: dict[str, Any]) -> None:
    """Refuse self-loops of some of the vertices: without a number PyG adds none behind the last one with an edge."""
    if given.get("num_nodes") != rec.sizes["vertices"]:
        call.refuse(
            f"{call.name} without num_nodes adds none to vertices behind the last one that has an edge. Nearest: "
            "num_nodes=x.size(0)"
        )


def _fill_of(call: Operation, fill: Any) -> float:
    """Return the number that self-loops have which are added."""
    if isinstance(fill, torch.Tensor):
        fill = fill.detach().unique().tolist()
        fill = fill[0] if len(fill) == 1 else "a row"
    if not isinstance(fill, int | float | None):
        call.refuse(f"{call.name} gives self-loops the fill_value {fill!r}; supported: a number")
    return 1.0 if fill is None else float(fill)


def _filled(weight: Value | None) -> list[float]:
    return [1.0] if weight is None or "fill" not in weight.arrays else weight.arrays["fill"].tolist()
