"""Notes of the types of edges, and of categories among their attributes: numbers by which rows are looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from freshet.gnn.pyg.forward.places import place_here
from freshet.gnn.pyg.own.categories import are_categories, categories, columns_of_categories
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
    """Return whether a tensor has the types of edges as they came, or attributes that number categories."""
    noted = rec.find(tensor)
    return noted is not None and (noted.value.is_types or are_categories(noted.value))


def _chosen(rec: Recorder, index: torch.Tensor, place: str) -> tuple[list[Value], NotedValue]:
    """Return the columns of 0 and 1 of each number that an index has for an edge, and what it holds itself."""
    noted = rec.find(index)
    assert noted is not None  # by is_types
    found = list(noted.value.of) if noted.value.is_types else columns_of_categories(noted.value, place)
    assert found is not None
    return found, noted


def looked_up(rec: Recorder, call: Operation, table: torch.Tensor, index: torch.Tensor, dim: int) -> NotedValue:
    """Note the rows of a table by types or categories of edges, as columns of 0 and 1 times these rows."""
    chosen, noted = _chosen(rec, index, call.place)
    if rec.find(table) is not None:
        call.refuse("it looks rows up by types in something that depends on the graph")
    rows = table.detach().movedim(dim, 0).reshape(table.shape[dim], -1)
    if len(rows) < (most := max(one.width for one in chosen)):
        call.refuse(f"edges have {most} types, but the table has {len(rows)} rows: leave types out of edge_types")
    found = list[Value]()
    for columns in chosen:
        weight = rows[: columns.width].float().numpy().T.copy()
        found.append(Value("linear", len(weight), columns.over, (columns,), call.place, arrays={"weight": weight}))
    which = np.repeat(np.arange(len(found)), rows.shape[1])
    column = np.tile(np.arange(rows.shape[1]), len(found))
    made = take(found, which, column, noted.value.over, call.place)
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
    call = Operation(name, func, args, options, None, place_here())
    chosen, noted = _chosen(rec, index, call.place)
    most = max(one.width for one in chosen)
    if not isinstance(many, int) or many < most:
        call.refuse(f"one_hot of {most} types needs num_classes={most}, got {many}")
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        result: torch.Tensor = func(*args, **options)
    values = [*chosen, constant(np.zeros(1), call.place)]
    which, places = list[np.ndarray](), np.arange(many)
    for number, one in enumerate(chosen):
        which.append(np.where(places < one.width, number, len(chosen)))
    column = [np.where(places < one.width, places, 0) for one in chosen]
    made = take(values, np.concatenate(which), np.concatenate(column), noted.value.over, call.place)
    rec.note(result, NotedValue(made, noted.axis))
    return result


TYPE_NOTES: dict[str, Note] = {"types_of": _types, "categories_of": categories, "embedding": _embedding}
