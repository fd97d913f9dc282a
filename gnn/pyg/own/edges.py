"""Operations between vertices and edges: rows of the ends of edges, and aggregates of edges into their targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from freshet.gnn.pyg.own.recorder import Note, NotedValue, Operation, Recorder
from freshet.gnn.pyg.own.values import LOOPS, Value, constant

ENDS = ("source", "target")
REDUCED = {"sum": "sum", "add": "sum", "mean": "mean", "amax": "max", "max": "max", "amin": "min", "min": "min"}


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


def aggregated(rec: Recorder, call: Operation, rows: Any, index: Any, dim: int, kind: str) -> NotedValue:
    """Note an aggregate of the rows of edges into their targets."""
    end = end_of(rec, index)
    if end != "target":
        what = "the sources of edges" if end else "an index that is not that of the targets of edges"
        call.refuse(f"{call.name} brings edges together by {what}; messages flow source_to_target")
    if kind not in ("sum", "mean", "max", "min", "std", "var"):
        call.refuse(f"{call.name} by {kind!r} is not supported; supported: sum, mean, max, min, std, var")
    noted, axis = rec.find(rows), dim % rows.dim()
    if noted is None:
        noted = _shared(rec, call, rows, index, axis)
    if noted.axis != axis or noted.value.over in ("vertices", "sources") or noted.value.is_index:
        call.refuse(f"{call.name} aggregates something other than the rows of edges")
    if noted.value.over != rec.find(index).value.over:  # type: ignore[union-attr]
        call.refuse(f"{call.name} aggregates rows of other edges than those of its index: self-loops differ")
    value = Value("aggregate", noted.value.width, "vertices", (noted.value,), call.place, name=kind)
    return NotedValue(value, axis)


def _index_select(rec: Recorder, call: Operation) -> NotedValue:
    rows, dim, index = call.args
    return gathered(rec, call, rows, index, dim)


def _index(rec: Recorder, call: Operation) -> NotedValue:
    rows, indices = call.args
    given = [(d, one) for d, one in enumerate(indices) if one is not None]
    if len(given) == 1 and end_of(rec, given[0][1]) is not None and given[0][1].dim() == 1:
        return gathered(rec, call, rows, given[0][1], given[0][0])
    noted = rec.find(rows)
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
    return NotedValue(Value("softmax", noted.value.width, noted.value.over, (noted.value,), call.place), noted.axis)


def scatter(rec: Recorder, call: Operation) -> NotedValue:
    """Note PyG's scatter."""
    named = ("src", "index", "dim", "dim_size", "reduce")
    given: dict[str, Any] = {"dim": 0, "reduce": "sum"} | dict(zip(named, call.args, strict=False)) | dict(call.options)
    kind = REDUCED.get(given["reduce"], given["reduce"])
    return aggregated(rec, call, given["src"], given["index"], given["dim"], kind)


def _infinite(rec: Recorder, call: Operation) -> NotedValue:
    noted = rec.find(call.args[0])
    if noted is None or (call.name != "isinf" and call.args[1] != float("inf")):
        call.refuse("it compares rows, and Freshet has no branches on them")
    return NotedValue(Value("infinite", noted.value.width, noted.value.over, (noted.value,), call.place), noted.axis)


def _masked(rec: Recorder, call: Operation) -> NotedValue:
    noted = rec.find(call.args[0])
    mask = rec.find(call.args[1][0] if isinstance(call.args[1], list | tuple) else call.args[1])
    fill = call.args[2]
    if call.options.get("accumulate") or (len(call.args) > 3 and call.args[3]):
        call.refuse("it adds to those rows that a mask picks, and Freshet has no branches on rows")
    if noted is None or mask is None or mask.value.op != "infinite" or mask.value.of[0] is not noted.value or fill != 0:
        call.refuse("it changes those rows that a mask picks, and Freshet has no branches on rows")
    return NotedValue(Value("finite", noted.value.width, noted.value.over, (noted.value,), call.place), noted.axis)


EDGE_NOTES: dict[str, Note] = {
    "index_select": _index_select,
    "index": _index,
    "gather": _gather,
    "scatter_add": _scatter_add,
    "index_add": _scatter_add,
    "scatter_reduce": _scatter_reduce,
    "eq": _infinite,
    "isinf": _infinite,
    "masked_fill": _masked,
    "index_put": _masked,
}
