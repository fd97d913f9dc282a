"""Notes of the types of edges: a number that is made of one column for each type, and rows that are looked up by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from freshet.gnn.pyg.forward.places import place_here
from freshet.gnn.pyg.own.recorder import Note, NotedValue, Operation, Recorder
from freshet.gnn.pyg.own.values import TYPES, Value, constant, take


def _types(rec: Recorder, call: Operation) -> NotedValue:
    attributes, many = call.args
    noted = rec.find(attributes)
    if noted is None or noted.value.op != "attr":
        call.refuse("types are read of something other than the attributes of edges")
    columns = take([noted.value], np.zeros(many, np.int64), np.arange(many), noted.value.over, call.place)
    weight = np.arange(many, dtype=np.float32).reshape(1, many)
    return NotedValue(Value("linear", 1, columns.over, (columns,), call.place, TYPES, arrays={"weight": weight}), 0)


def is_types(rec: Recorder, tensor: Any) -> bool:
    """Return whether a tensor has the types of edges as they came."""
    noted = rec.find(tensor)
    return noted is not None and noted.value.is_types


def looked_up(rec: Recorder, call: Operation, table: torch.Tensor, index: torch.Tensor, dim: int) -> NotedValue:
    """Note the rows of a table by the types of edges, as columns of types times these rows."""
    noted = rec.find(index)
    assert noted is not None  # by is_types
    (columns,) = noted.value.of
    if rec.find(table) is not None:
        call.refuse("it looks rows up by types in something that depends on the graph")
    rows = table.detach().movedim(dim, 0).reshape(table.shape[dim], -1)
    if len(rows) < columns.width:
        call.refuse(
            f"edges have {columns.width} types, but the table has {len(rows)} rows: leave types out of edge_types"
        )
    weight = rows[: columns.width].float().numpy().T.copy()
    made = Value("linear", len(weight), columns.over, (columns,), call.place, arrays={"weight": weight})
    return NotedValue(made, noted.axis if call.name == "embedding" else dim)


def _embedding(rec: Recorder, call: Operation) -> NotedValue:
    table, index = call.args[:2]
    if not is_types(rec, index):
        call.refuse("it looks rows up by something other than the types of edges, as they came")
    return looked_up(rec, call, table, index, 0)


def one_hot(
    rec: Recorder, func: Callable[..., Any], name: str, args: Sequence[Any], options: Mapping[str, Any]
) -> torch.Tensor | None:
    """Return a row for each edge with 1 in the place of its type, with a note of it; None of anything else.

    Raises: ExportError where num_classes is missing, or less than the number of types.
    """
    given = dict(zip(("tensor", "num_classes"), args, strict=False)) | dict(options)
    index, many = given["tensor"], given.get("num_classes", -1)
    if not is_types(rec, index):
        return None
    noted = rec.find(index)
    assert noted is not None  # by is_types
    (columns,) = noted.value.of
    call = Operation(name, func, args, options, None, place_here())
    if not isinstance(many, int) or many < columns.width:
        call.refuse(f"one_hot of {columns.width} types needs num_classes={columns.width}, got {many}")
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        result: torch.Tensor = func(*args, **options)
    places = np.minimum(np.arange(many), columns.width)
    which, none = (places == columns.width).astype(np.int64), constant(np.zeros(1), call.place)
    made = take([columns, none], which, np.where(which, 0, places), columns.over, call.place)
    rec.note(result, NotedValue(made, noted.axis))
    return result


TYPE_NOTES: dict[str, Note] = {"types_of": _types, "embedding": _embedding}
