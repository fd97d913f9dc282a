"""Notes of operations between vertices and edges, and of PyG's self-loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from freshet.gnn.declarations import Quantile
from freshet.gnn.pyg.aggregations import OF_MESSAGES
from freshet.gnn.pyg.errors import INSIDE, ExportError
from freshet.gnn.pyg.own import laplacians
from freshet.gnn.pyg.own.recorder import Note, NotedValue, Operation, Recorder
from freshet.gnn.pyg.own.types import is_types, looked_up
from freshet.gnn.pyg.own.values import LOOPS, Over, Value, constant, difference, is_edge_by_edge

ENDS = ("source", "target")
REDUCED = {"add": "sum", "amax": "max", "amin": "min"}
_NEUTRAL = {"prod": ("mul", 1.0), "amax": ("max", -np.inf), "amin": ("min", np.inf)}
"""Names of aggregates here, and what they may be scattered into without being changed by it."""


def end_of(rec: Recorder, index: Any) -> str | None:
    """Return which ends of the edges a tensor holds, source or target; None for another tensor."""
    noted = rec.find(index)
    if noted is None or not noted.value.is_index:
        return None
    columns = {0, 1} if noted.value.op == "edges" else set(noted.value.arrays["column"].tolist())
    return ENDS[columns.pop()] if len(columns) == 1 else None


def gathered(rec: Recorder, call: Operation, rows: Any, index: Any, dim: int) -> NotedValue:
    """Note the rows of the ends of edges."""
    noted, end = rec.find(rows), end_of(rec, index)
    if end is None:
        call.refuse(f"{call.name} takes rows by an index that is not that of the ends of the edges")
    if noted is None:
        return _shared(rec, call, rows, index, dim % rows.dim())
    over_end = "sources" if end == "source" and "sources" in rec.sizes else "vertices"
    if noted.value.over != over_end or noted.axis != dim % rows.dim() or noted.value.is_index:
        call.refuse(f"{call.name} takes something other than the rows of vertices by the ends of edges")
    over = rec.find(index).value.over  # type: ignore[union-attr]
    return NotedValue(Value("gather", noted.value.width, over, (noted.value,), call.place, name=end), noted.axis)


def _shared(rec: Recorder, call: Operation, rows: Any, index: Any, axis: int) -> NotedValue:
    """Note the row of constants that all edges share."""
    return NotedValue(replace(rec.shared(call, rows, axis), over=rec.find(index).value.over), axis)  # type: ignore[union-attr]


def aggregated(rec: Recorder, call: Operation, rows: Any, index: Any, dim: int, kind: str | Quantile) -> NotedValue:
    """Note an aggregate of the rows of edges into their targets."""
    end = end_of(rec, index)
    if end == "source" and kind == "sum" and (counted := _out_degree(rec, call, rows, index, dim)) is not None:
        return counted
    if end != "target":
        what = "the sources of edges" if end else "an index that is not that of the targets of edges"
        try:
            call.refuse(f"{call.name} brings edges together by {what}; messages flow source_to_target")
        except ExportError as error:
            raise error.of(INSIDE if end else "") from None
    if isinstance(kind, str) and kind not in OF_MESSAGES:
        call.refuse(f"{call.name} by {kind!r} is not supported; supported: {', '.join(OF_MESSAGES)}")
    noted, axis = rec.find(rows), dim % rows.dim()
    if noted is None:
        noted = _shared(rec, call, rows, index, axis)
    if noted.axis != axis or noted.value.over in ("vertices", "sources") or noted.value.is_index:
        call.refuse(f"{call.name} aggregates something other than the rows of edges")
    if noted.value.over != rec.find(index).value.over:  # type: ignore[union-attr]
        call.refuse(f"{call.name} aggregates rows of other edges than those of its index: self-loops differ")
    if (weighed := laplacians.summed(call, noted.value, kind)) is not None:
        return NotedValue(weighed, axis)
    return NotedValue(Value("aggregate", noted.value.width, "vertices", (noted.value,), call.place, name=kind), axis)


def _out_degree(rec: Recorder, call: Operation, rows: Any, index: Any, dim: int) -> NotedValue | None:
    """Note the number of out-edges of each vertex, where ones are summed by the sources of edges."""
    noted, axis = rec.find(rows), dim % rows.dim()
    ones = _shared(rec, call, rows, index, axis) if noted is None else noted
    counts = ones.value.op == "constant" and ones.value.arrays["value"].tolist() == [1.0]
    over = rec.find(index).value.over  # type: ignore[union-attr]
    if not counts or over not in LOOPS or ones.value.over not in (over, "every"):
        return None
    return NotedValue(Value("out_degree", 1, "vertices", place=call.place, name=over), axis)


def _bincount(rec: Recorder, call: Operation) -> NotedValue:
    given = dict(zip(("input", "weights", "minlength"), call.args, strict=False)) | dict(call.options)
    index, weights = given["input"], given.get("weights")
    if given.get("minlength") != rec.sizes["vertices"]:
        call.refuse("bincount without a number of vertices counts none behind the last one. Nearest: minlength=len(x)")
    if weights is not None and call.result.dtype != torch.float32:
        call.refuse(f"bincount gives {call.result.dtype}. Nearest: scatter of torch_geometric.utils")
    return aggregated(rec, call, torch.ones(len(index)) if weights is None else weights, index, 0, "sum")


def _index_select(rec: Recorder, call: Operation) -> NotedValue:
    rows, dim, index = call.args
    return (looked_up if is_types(rec, index) else gathered)(rec, call, rows, index, dim % rows.dim())


def _index(rec: Recorder, call: Operation) -> NotedValue:
    (rows, indices), noted = call.args, rec.find(call.args[0])
    given = [(d, one) for d, one in enumerate(indices) if one is not None]
    (dim, index), *others = given
    if not others and index.dim() == 1 and (is_types(rec, index) or end_of(rec, index) is not None):
        return (looked_up if is_types(rec, index) else gathered)(rec, call, rows, index, dim)
    if noted is None or any(rec.find(one) is not None for _, one in given):
        call.refuse("it takes rows by an index that depends on the graph, such as a mask")
    made = rec.moved(call, [rows], lambda ids: call.run(ids, indices), noted.value.over)
    if made is None:
        call.refuse("it takes some of the vertices or edges")
    return made[0]


def _gather(rec: Recorder, call: Operation) -> NotedValue:
    rows, dim, index = call.args[:3]
    return gathered(rec, call, rows, index, dim)


def _scatter_add(rec: Recorder, call: Operation) -> NotedValue:
    into, dim, index, rows = call.args[:4]
    _refuse_filled(rec, call, into)
    made = aggregated(rec, call, rows, index, dim, "sum")
    alpha = call.options.get("alpha", 1)  # of index_add
    if alpha == 1:
        return made
    factor = constant(np.array([alpha], np.float64), call.place)
    return made._replace(value=Value("mul", made.value.width, "vertices", (made.value, factor), call.place))


def _scatter_reduce(rec: Recorder, call: Operation) -> NotedValue:
    into, dim, index, rows, kind = call.args[:5]
    included = call.options.get("include_self", call.args[5] if len(call.args) > 5 else True)
    name, neutral = _NEUTRAL.get(kind, (kind, 0.0))
    is_neutral = kind in _NEUTRAL and rec.find(into) is None and bool((into == neutral).all())
    if included and is_neutral and rec.sizes["vertices"] in into.shape:
        return aggregated(rec, call, rows, index, dim, name)
    _refuse_filled(rec, call, into)
    if included and kind != "sum":
        call.refuse(f"scatter_reduce by {kind!r} with include_self=True takes what it is scattered into along")
    return aggregated(rec, call, rows, index, dim, REDUCED.get(kind, kind))


def _refuse_filled(rec: Recorder, call: Operation, into: torch.Tensor) -> None:
    if rec.find(into) is not None or bool(into.any()):
        call.refuse(f"{call.name} adds to a tensor that is not empty; add them afterwards")
    if rec.sizes["vertices"] not in into.shape:
        call.refuse(f"{call.name} scatters into a tensor that has no row for each vertex")


def softmax(rec: Recorder, call: Operation) -> NotedValue:
    """Note PyG's softmax over the edges into each target."""
    given = dict(zip(("src", "index", "ptr", "num_nodes", "dim"), call.args, strict=False)) | dict(call.options)
    scores, dim = given["src"], given.get("dim", 0)
    noted = rec.find(scores)
    if noted is None or noted.value.over not in LOOPS or noted.axis != dim % scores.dim():
        call.refuse("softmax is called with something other than a row for each edge")
    index = rec.find(given.get("index"))
    if index is not None and index.value.over != noted.value.over:
        call.refuse("softmax is over other edges than those of its scores: self-loops differ")
    if given.get("ptr") is not None or end_of(rec, given.get("index")) != "target":
        call.refuse("softmax is over the edges into each target (index) alone")
    return noted.then("softmax", call.place)


def scatter(rec: Recorder, call: Operation) -> NotedValue:
    """Note PyG's scatter."""
    named = ("src", "index", "dim", "dim_size", "reduce")
    given: dict[str, Any] = {"dim": 0, "reduce": "sum"} | dict(zip(named, call.args, strict=False)) | dict(call.options)
    kind = REDUCED.get(given["reduce"], given["reduce"])
    return aggregated(rec, call, given["src"], given["index"], given["dim"], kind)


def finite_of(noted: NotedValue, mask: Value, place: str) -> NotedValue | None:
    """Return a value with 0 for infinity, where a mask picks that; None for another mask."""
    return noted.then("finite", place) if _is_of_infinity(noted.value, mask) else None


def _is_of_infinity(value: Value, mask: Value) -> bool:
    """Return whether a mask picks where a value is infinite, by that or by a divisor or base that is 0 there."""
    bound = mask.of[1].arrays["value"] if mask.op == "equal" and mask.of[1].op == "constant" else np.ones(1)
    if mask.op == "infinite" or bool(np.isinf(bound).all()):
        return difference(mask.of[0], value) is None
    base = None
    if value.op == "power" and value.arrays["exponent"][0] < 0:
        base = value.of[0]
    elif value.op == "div" and value.of[0].op == "constant":
        base = value.of[1]
    is_zero = mask.op == "zero" or not bound.any()
    return is_zero and base is not None and difference(mask.of[0], base) is None


EDGE_NOTES: dict[str, Note] = {
    "index_select": _index_select,
    "index": _index,
    "gather": _gather,
    "bincount": _bincount,
    "scatter_add": _scatter_add,
    "index_add": _scatter_add,
    "scatter_reduce": _scatter_reduce,
}


def get_laplacian(rec: Recorder, call: Operation) -> list[NotedValue]:
    """Note PyG's Laplacian: edges with self-loops, and their weights."""
    given, edges, weight = _given(rec, call, laplacians.NAMES)
    if _are_turned(edges):
        call.refuse(f"{call.name} is called with other edges than those of the graph")
    _check_vertices(rec, call, given)
    return laplacians.weights_of(call, given, edges, weight)


_NAMES = ("edge_index", "edge_attr", "fill_value", "num_nodes")
_OF_NORM = ("edge_index", "edge_attr", "num_nodes", "improved", "add_self_loops", "flow", "dtype")


def gcn_norm(rec: Recorder, call: Operation) -> list[NotedValue]:
    """Note PyG's gcn_norm: edges with self-loops, and their weights divided by the roots of both ends' degrees."""
    given, edges, weight = _given(rec, call, _OF_NORM, made=True)
    if (given.get("flow", "source_to_target") == "source_to_target") == _are_turned(edges):
        call.refuse("gcn_norm against the edges; messages flow source_to_target")
    if weight is not None and weight.width != 1:
        call.refuse("gcn_norm is called with something other than a weight for each edge")
    over, fill = edges.over, _filled(weight)
    if given.get("add_self_loops", True):
        over, fill = _with_loops(call, over, remaining=True), [2.0 if given.get("improved") else 1.0]
        _check_vertices(rec, call, given)
    arrays = {"fill": np.array(fill)} if LOOPS[over][0] else {}
    name = "weighted" if weight else ""
    of = () if weight is None or weight.op == "weight" else (weight,)
    return [
        NotedValue(replace(edges, over=over, place=call.place), 1),
        NotedValue(Value("normalized", 1, over, of, call.place, name, arrays=arrays), 0),
    ]


def add_self_loops(rec: Recorder, call: Operation) -> list[NotedValue | None]:
    """Note that each vertex gets a self-loop; by add_remaining_self_loops where it has none."""
    given, edges, value = _given(rec, call, _NAMES, made=True)
    if call.name == "add_self_loops" and isinstance(fill := given.get("fill_value"), int | float):
        _check_vertices(rec, call, given)
        if (made := laplacians.with_loops(call, value, float(fill))) is not None:
            if _are_turned(edges):
                call.refuse(f"{call.name} is called with edges the other way round than those of a Laplacian")
            return list(made)
    if value is not None and not is_edge_by_edge(value):
        call.refuse(f"{call.name} is called with something other than the weights or attributes of the edges")
    if isinstance(given.get("fill_value"), str) and _are_turned(edges):
        call.refuse(f"{call.name} gives self-loops what out-edges have; messages flow source_to_target")
    over = _with_loops(call, edges.over, remaining=call.name == "add_remaining_self_loops")
    _check_vertices(rec, call, given)
    of_in_edges = isinstance(given.get("fill_value"), str)
    if value is not None and value.op != "attr" and (of_in_edges or value.op != "weight"):
        return _beside_loops(call, edges, value, given.get("fill_value"), over)
    noted = [NotedValue(replace(edges, over=over, place=call.place), 1), None]
    if isinstance(kind := given.get("fill_value"), str) and value is not None:
        return [noted[0], NotedValue(_of_in_edges(call, value, kind, over), 0)]
    fill = _fill_of(call, kind)
    if value is None and (same := given.get("edge_attr")) is not None and not bool((same == fill).all()):
        call.refuse(f"{call.name} gives self-loops another number ({fill}) than its edges have. Nearest: the same")
    if value is not None:
        noted[1] = NotedValue(replace(value, over=over, place=call.place, arrays={"fill": np.array([fill])}), 0)
    return noted


def _beside_loops(call: Operation, edges: Value, value: Value, fill: Any, over: Over) -> list[NotedValue | None]:
    """Note what a forward has made of attributes of edges beside that of added self-loops."""
    if over == "looped":
        call.refuse(
            f"{call.name} keeps what is made of attributes of self-loops that are there, and Freshet does not. "
            "Nearest: add_self_loops, or remove_self_loops before it"
        )
    if isinstance(fill, str) and (kind := REDUCED.get(fill, fill)) in OF_MESSAGES:
        loops = Value("aggregate", value.width, "vertices", (value,), call.place, name=kind)
    else:
        loops = constant(np.full(value.width, _fill_of(call, fill)), call.place)
    made = Value("beside_loops", value.width, over, (value, loops), call.place)
    return [NotedValue(replace(edges, over=over, place=call.place), 1), NotedValue(made, 0)]


def remove_self_loops(rec: Recorder, call: Operation) -> list[NotedValue | None]:
    """Note that self-loops are taken out."""
    _, edges, value = _given(rec, call, _NAMES, made=True)
    if value is not None and not is_edge_by_edge(value):
        call.refuse(f"{call.name} is called with something other than the weights or attributes of the edges")
    if edges.over not in ("edges", "unlooped"):
        call.refuse(f"{call.name} takes out self-loops that were added. Nearest: take them out before, or add none")
    made = [replace(one, over="unlooped", place=call.place) for one in (edges, value) if one is not None]
    return [NotedValue(one, axis) for one, axis in zip(made, (1, 0), strict=False)] + [None] * (2 - len(made))


def _given(
    rec: Recorder, call: Operation, names: Sequence[str], *, made: bool = False
) -> tuple[dict[str, Any], Value, Value | None]:
    """Return the arguments by name, the edges, and their weights or attributes; `made`: or what is made of these.

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
    if edges is None or not _are_edges(edges.value):
        call.refuse(f"{call.name} is called with other edges than those of the graph")
    noted = rec.find(values)
    if values is None or (noted is None and values.dim() == 1 and rec.shared(call, values, 0).arrays["value"] == 1):
        return given, edges.value, None  # without weights, or with ones
    if noted is None or noted.axis != 0 or (not made and noted.value.op not in ("weight", "attr")):
        call.refuse(f"{call.name} is called with something other than the weights or attributes of the edges")
    if noted.value.over != edges.value.over:
        call.refuse(f"{call.name} is called with values of other edges: self-loops differ")
    return given, edges.value, noted.value


def _are_edges(value: Value) -> bool:
    """Return whether a value is the edges, either end first."""
    columns = value.arrays["column"].tolist() if value.op == "take" and value.is_index else []
    return value.op == "edges" or sorted(columns) == [0, 1]


def _are_turned(edges: Value) -> bool:
    """Return whether edges have their targets first."""
    return edges.op == "take" and edges.arrays["column"].tolist() == [1, 0]


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


def _of_in_edges(call: Operation, value: Value, kind: str, over: Over) -> Value:
    """Return attributes of edges and of added self-loops, which have an aggregate of those of the in-edges."""
    kind = REDUCED.get(kind, kind)
    if value.op != "attr" or kind not in OF_MESSAGES:
        call.refuse(f"{call.name} gives weights of self-loops the fill_value {kind!r}; supported: a number")
    made = Value("aggregate", value.width, "vertices", (value,), call.place, name=kind)
    return replace(value, over=over, of=(made,), place=call.place)


def _filled(weight: Value | None) -> list[float]:
    return [1.0] if weight is None or "fill" not in weight.arrays else weight.arrays["fill"].tolist()
