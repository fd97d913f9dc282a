"""Arguments of modules, checked: rows, edges and ids, each named in errors by its argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from freshet.gnn.kinds.declarations import DeclaredLearned
from freshet.gnn.kinds.learned import DIGESTS, IDS, ROWS, digests_of, find_ids
from freshet.gnn.torch_modules.aggregates import MessageEdges
from freshet.gnn.torch_modules.errors import refuse_input


def rows_of(given: Any, width: int, real: torch.dtype | None, where: str) -> Tensor:
    """Return rows as they are given; `real` is the type of the weights, None where there are none.

    Raises: ModuleInputError for something other than rows of that width and type.
    """
    rows = _tensor(given, where)
    if rows.dim() != 2 or rows.shape[1] != width:
        refuse_input(f"{where}: got shape {tuple(rows.shape)}, expected (n, {width})")
    _check_type(rows, real, where)
    return rows


def edges_of(
    index: Any,
    weight: Any,
    attr: Any,
    *,
    ends: tuple[int, int],
    width: int,
    real: torch.dtype,
    names: Sequence[str] = ("edge_index", "edge_weight", "edge_attr"),
) -> MessageEdges:
    """Return the edges of a relation; weights are 1 and attributes 0 where they are None.

    Shapes: index (2, e) int64; weight (e,); attr (e, width). `ends`: the numbers of sources and of targets.
    Raises: ModuleInputError for other shapes or types, a vertex that is not there, or attributes that nothing reads.
    """
    pairs = _tensor(index, names[0])
    if pairs.dim() != 2 or pairs.shape[0] != 2 or pairs.dtype != torch.int64:
        refuse_input(f"{names[0]}: got {pairs.dtype} {tuple(pairs.shape)}, expected torch.int64 (2, edges)")
    for row, (end, count) in enumerate(zip(("source", "target"), ends, strict=True)):
        if pairs.shape[1] and not 0 <= int(pairs[row].min()) <= int(pairs[row].max()) < count:
            wrong = pairs[row][(pairs[row] < 0) | (pairs[row] >= count)][0]
            refuse_input(f"{names[0]}: the {end} {int(wrong)} is no vertex; there are {count}, counted from 0")
    edges = pairs.shape[1]
    if weight is None:
        weight = torch.ones(edges, dtype=real, device=pairs.device)
    else:
        weight = _values(weight, (edges,), real, names[1])
    return MessageEdges(pairs[0], pairs[1], weight, _attributes(attr, edges, width, real, names[2], pairs), ends[1])


def _attributes(attr: Any, edges: int, width: int, real: torch.dtype, where: str, like: Tensor) -> Tensor:
    if attr is None:
        return torch.zeros((edges, width), dtype=real, device=like.device)
    attr = _tensor(attr, where)
    if width == 0 and attr.numel():
        refuse_input(f"{where}: got shape {tuple(attr.shape)}, but the model reads no attributes there; leave it out")
    attr = attr[:, None] if attr.dim() == 1 and width == 1 else attr
    return _values(attr, (edges, width), real, where)


def _values(given: Any, shape: tuple[int, ...], real: torch.dtype, where: str) -> Tensor:
    values = _tensor(given, where)
    if tuple(values.shape) != shape:
        refuse_input(f"{where}: got shape {tuple(values.shape)}, expected {shape}")
    _check_type(values, real, where)
    return values


def _tensor(given: Any, where: str) -> Tensor:
    if not isinstance(given, Tensor):
        refuse_input(f"{where}: got {'nothing' if given is None else type(given).__name__}, expected a torch.Tensor")
    return given


def _check_type(values: Tensor, real: torch.dtype | None, where: str) -> None:
    if values.dtype != real and (real is not None or not values.is_floating_point()):
        expected = "floating point numbers" if real is None else f"{real}, the type of the module's weights"
        refuse_input(f"{where}: got {values.dtype}, expected {expected}")


def of_type(edge_type: Any, edges: int, names: Sequence[str]) -> Tensor:
    """Return the type of each edge, a number of a relation, (e,) int64; `names` are those of the relations.

    Raises: ModuleInputError for other types.
    """
    types = _tensor(edge_type, "edge_type")
    if types.dtype != torch.int64 or tuple(types.shape) != (edges,):
        refuse_input(f"edge_type: got {types.dtype} {tuple(types.shape)}, expected torch.int64 ({edges},)")
    if edges and not 0 <= int(types.min()) <= int(types.max()) < len(names):
        wrong = int(types[(types < 0) | (types >= len(names))][0])
        listed = ", ".join(f"{number} {name}" for number, name in enumerate(names[:_SHOWN]))
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        refuse_input(f"edge_type: got {wrong}, which is no type of the model; its types are {listed}{more}")
    return types


def of_categories(edges: MessageEdges, counts: Sequence[int], where: str) -> MessageEdges:
    """Return edges as they are; `counts`: how many categories each attribute numbers, 0 where it is any number.

    Raises: ModuleInputError for an attribute that is none of its categories.
    """
    for place, count in enumerate(counts):
        column = edges.attr[:, place]
        wrong = (column < 0) | (column >= count) | (column != column.floor())
        if count and bool(wrong.any()):
            expected = f"a whole number from 0 to {count - 1}"
            refuse_input(f"{where}: got {float(column[wrong][0]):g} in column {place}, expected {expected}")
    return edges


def with_types(edges: MessageEdges, edge_type: Any, names: Sequence[str]) -> MessageEdges:
    """Return edges with a column for each of these types in front of their attributes; edge_type as in `of_type`.

    Raises: ModuleInputError for other types.
    """
    types = of_type(edge_type, len(edges.src), names)
    return edges._replace(attr=torch.cat([functional.one_hot(types, len(names)).to(edges.attr), edges.attr], dim=1))


_SHOWN = 8


def by_key(given: Any, expected: Sequence[Any], where: str, *, optional: bool = False) -> dict[Any, Any]:
    """Return what a mapping has for each of the expected keys; None for one that it lacks, where that is `optional`.

    Raises: ModuleInputError for another key, and for one that is missing.
    """
    if given is None and optional:
        return dict.fromkeys(expected)
    if not isinstance(given, Mapping):
        refuse_input(f"{where}: got {type(given).__name__}, expected a dict with keys {_listed(expected)}")
    if unknown := [key for key in given if key not in expected]:
        refuse_input(f"{where}: {unknown[0]!r} is no key of the model; expected {_listed(expected)}")
    if missing := [key for key in expected if key not in given and not optional]:
        refuse_input(f"{where}: {missing[0]!r} is missing; expected {_listed(expected)}")
    return {key: given.get(key) for key in expected}


def _listed(keys: Sequence[Any]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return ", ".join(map(repr, keys[:_SHOWN])) + more if keys else "none"


def learned_rows(
    declared: DeclaredLearned, tensors: Mapping[str, Tensor], ids: Any, where: str, count: int | None
) -> dict[str, Tensor]:
    """Return the learned rows of vertices with these ids by name, zeros for ids that are not known.

    `tensors` are the ids and rows of the model; `count` is the number of vertices where features say it.
    Shapes: ids (n,) int64, or n strings; results (n, width)
    Raises: ModuleInputError for ids of another type or number.
    """
    asked = _keys(ids, declared, where)
    if count is not None and len(asked) != count:
        refuse_input(f"{where}: got {len(asked)} ids, expected one for each of {count} rows")
    table = tensors[ROWS]
    there = tensors[DIGESTS if declared.ids == "string" else IDS]
    places, known = (torch.from_numpy(of).to(table.device) for of in find_ids(there.cpu().numpy(), asked))
    rows = functional.embedding(places, table).masked_fill(~known[:, None], 0)
    return dict(zip(declared.rows, rows.split(list(declared.rows.values()), dim=1), strict=True))


def _keys(ids: Any, declared: DeclaredLearned, where: str) -> np.ndarray:
    """Return ids as they are looked up."""
    if ids is None:
        refuse_input(f"{where}: is missing, though the model has a learned row for each id; give the ids of the rows")
    listed = ids.cpu().numpy() if isinstance(ids, Tensor) else np.asarray(ids)
    if listed.ndim != 1:
        refuse_input(f"{where}: got shape {listed.shape}, expected (n,)")
    if not listed.size:
        return digests_of([]) if declared.ids == "string" else np.empty(0, np.int64)
    of_strings = listed.dtype.kind in "OU" and all(isinstance(one, str) for one in listed)
    are_numbers = listed.dtype.kind in "iu" and np.can_cast(listed.dtype, np.int64)
    if not (of_strings if declared.ids == "string" else are_numbers):
        expected = "strings" if declared.ids == "string" else "int64"
        refuse_input(f"{where}: got {'strings' if of_strings else listed.dtype}, expected {expected}, as in training")
    return digests_of(one.encode() for one in listed) if of_strings else listed.astype(np.int64)
