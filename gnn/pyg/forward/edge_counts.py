"""Comparisons of numbers of edges in a traced forward, as `assert edge_weight.size(0) == edge_index.size(1)`."""

from __future__ import annotations

import operator
from typing import Any

from freshet.gnn.pyg.forward.places import label_of

COUNTS = "counts edges"
"""Key in the `meta` of an input's node; its value is the dimension that counts edges, and their relation."""
_KEEPING = {"float", "double", "to", "type", "type_as", "cpu", "cuda", "clone", "contiguous", "detach"}
_FLATTENING = {"view", "reshape"}
_FACTORIES = {"ones", "zeros", "full", "empty"}


def compared_counts(node: Any) -> bool | None:
    """Return the outcome of a comparison of two numbers of edges of the graph, the same ones; None for another one."""
    outcome = {operator.eq: True, operator.ne: False}.get(node.target)
    if outcome is None or len(node.args) != 2:
        return None
    one, other = map(_counted, node.args)
    return outcome if one is not None and one == other else None


def _counted(one: Any) -> int | None:
    """Return the relation of whose edges a node is the number; None for another node."""
    label = label_of(one) if hasattr(one, "all_input_nodes") else ""
    if label == "size" and len(one.args) == 2:
        of, place = one.args
    elif label == "getitem" and is_shape(one.args[0]):
        of, place = one.args[0].args[0], one.args[1]
    else:
        return None
    dim, relation = _counts_at(of) or (None, None)
    return relation if dim == place else None


def is_shape(one: Any) -> bool:
    """Return whether a node is the shape of a tensor."""
    label = label_of(one) if hasattr(one, "all_input_nodes") else ""
    return (label == "getattr" and one.args[1] == "shape") or (label == "size" and len(one.args) == 1)


def _counts_at(one: Any) -> tuple[int, int] | None:
    """Return the dimension of a tensor that counts edges, and of which relation; None where that is not known."""
    if not hasattr(one, "all_input_nodes"):
        return None
    if one.op == "placeholder":
        found: tuple[int, int] | None = one.meta.get(COUNTS)
        return found
    label = label_of(one)
    if label in _KEEPING and one.op == "call_method":
        return _counts_at(one.args[0])
    if label in _FLATTENING and one.args[1:] == (-1,):
        return _counts_at(one.args[0]) if _dims(one.args[0]) == 1 else None
    if label in _FACTORIES and one.op == "call_function":
        sizes = one.args[0] if one.args else None
        relation = _counted(sizes[0]) if isinstance(sizes, tuple | list) and len(sizes) == 1 else None
        return None if relation is None else (0, relation)
    return None


def _dims(one: Any) -> Any:
    """Return how many dimensions a tensor has that counts edges along the first of them."""
    if one.op == "placeholder":
        return one.meta.get("dim")
    return _dims(one.args[0]) if label_of(one) in _KEEPING else 1
