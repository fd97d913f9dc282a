"""Convs of the user's own whose forward is traced: `propagate` brings rows of the ends of edges together.

So is a conv read that calls it along the edges and against them, with several sets of edges, or with a matrix of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType
from typing import Any

from torch.nn import Module
from torch_geometric.nn import MessagePassing

from freshet.gnn.pyg.aggregations import name_of
from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.forward.edge_functions import function_of_edges
from freshet.gnn.pyg.forward.matrices import EdgeMatrix
from freshet.gnn.pyg.forward.places import place_here
from freshet.gnn.pyg.steps import is_read

_OF_EDGES = ["forward", "message", "aggregate", "update", "edge_update"]
_REDUCED = {"sum": "sum", "add": "sum", "mean": "mean", "max": "max", "min": "min", "mul": "mul"}


def is_own(module: Any) -> bool:
    """Return whether a module is a conv of the user's own, which may be looked into."""
    return isinstance(module, MessagePassing) and is_read(module) and _is_code(type(module))


def _is_code(kind: type) -> bool:
    return not kind.__module__.startswith(("torch_geometric.", "freshet."))


def open_convs(module: Module) -> None:
    """Have the convs of the user's own in a module, a copy, do by operations on rows and edges what propagate does."""
    for part in module.modules():
        if is_own(part):
            part.propagate = partial(_propagated, part)


def refuse_other_ways(module: Module, *, opened: bool) -> None:
    """Refuse convs of the user's own that do more with a matrix of edges than with edges, as which they were read.

    A message_and_aggregate is to be what messages and their aggregate are. One that reads weights which nothing else of
    the conv reads is a layer of its own, which PyTorch Geometric takes where it is called with a SparseTensor.
    `opened`: convs were looked into, and have been asked as they were called.

    Raises: ExportError naming them.
    """
    for name, part in module.named_modules():
        if is_own(part) and part.fuse and not opened:
            _refuse_other_way(name, part)


def _refuse_other_way(name: str, conv: Any) -> None:
    held = {one for kept in (conv._parameters, conv._modules, conv._buffers) for one in kept}
    more = held & (
        _names(conv, ["message_and_aggregate"]) - _names(conv, ["forward", "message", "aggregate", "update"])
    )
    if more:
        kind = f"{name}: {type(conv).__name__}" if name else type(conv).__name__
        refuse(
            f"{kind}.message_and_aggregate reads {', '.join(sorted(more))}, and its message does not: a SparseTensor "
            "gives other rows than edge_index. Do what it does beyond the product in forward, behind propagate"
        )


def _names(conv: Any, methods: list[str]) -> set[str]:
    """Return the names in the code of methods of a conv, and of its own ones that these name."""
    found, waiting = set[str](), [getattr(type(conv), one) for one in methods]
    while waiting:
        code = getattr(waiting.pop(), "__code__", None)
        codes = [code] if code else []
        while codes:
            code = codes.pop()
            codes += [one for one in code.co_consts if isinstance(one, CodeType)]
            fresh = set(code.co_names) - found
            found |= fresh
            own = [one for one in fresh if hasattr(type(conv), one) and not hasattr(MessagePassing, one)]
            waiting += [getattr(type(conv), one) for one in own]
    return found


def _propagated(conv: Any, edge_index: Any, size: Any = None, **given: Any) -> Any:
    """Return what MessagePassing.propagate does.

    Raises: ExportError for what is not read so.
    """
    if conv.decomposed_layers > 1:
        refuse(f"{type(conv).__name__}: decomposed_layers={conv.decomposed_layers} is not supported")
    is_matrix, along = isinstance(edge_index, EdgeMatrix), conv.flow == "source_to_target"
    if is_matrix and not along:
        refuse(f"{place_here()}: a matrix of edges has no other direction than its own: give it transposed, adj.t()")
    if not is_matrix and conv.fuse:
        _refuse_other_way("", conv)
    if is_matrix and conv.fuse:
        collected = _Collected(conv, edge_index.as_edges(), size, given)
        made = conv.message_and_aggregate(edge_index, **collected.of(conv.message_and_aggregate, skip=1))
    else:
        if is_matrix:
            *_, value = edge_index.coo()
            given = {"edge_weight": value, "edge_attr": value} | {k: v for k, v in given.items() if v is not None}
            edge_index = edge_index.as_edges()
        collected = _Collected(conv, edge_index, size, given)
        made = collected.brought(conv.message(**collected.of(conv.message)))
    return conv.update(made, **collected.of(conv.update, skip=1))


class _Collected:
    """Arguments of the message, the aggregate and the update of a conv."""

    def __init__(self, conv: Any, edges: Any, size: Any, given: Mapping[str, Any]) -> None:
        """Take the conv, edges, the numbers of vertices at both ends where they are known, and what it propagates."""
        self._conv, self._given, self._edges = conv, given, edges
        self._sizes: list[Any] = [None, None] if size is None else list(size)
        self._i, self._j = (1, 0) if conv.flow == "source_to_target" else (0, 1)
        self._ends = edges[0], edges[1]

    def of(self, function: Callable[..., Any], skip: int = 0) -> dict[str, Any]:
        """Return the arguments of a method of the conv, without the first ones that it is given beside."""
        parameters = list(inspect.signature(function).parameters.values())[skip:]
        rows = {
            one.name: self._end(one.name)
            for one in parameters
            if one.name[-2:] in ("_i", "_j") and one.name[:-2] in self._given
        }
        found = {**self._given, **rows, **self._of_edges()}
        return {one.name: found[one.name] for one in parameters if one.name in found}

    def brought(self, messages: Any) -> Any:
        """Return the aggregate of messages."""
        conv = self._conv
        if type(conv).aggregate is not MessagePassing.aggregate:
            return conv.aggregate(messages, **self.of(conv.aggregate, skip=1))
        kind = _REDUCED.get(name_of(conv.aggr_module))
        if kind is None:
            refuse(f"{type(conv).__name__}: aggr={conv.aggr!r} is not read where its forward is looked into")
        of = self._of_edges()
        return function_of_edges("scatter")(messages, of["index"], conv.node_dim, of["dim_size"], kind)

    def _end(self, name: str) -> Any:
        """Return the rows of one end of each edge; what is no rows is as it is."""
        end = self._j if name.endswith("_j") else self._i
        rows: Any = self._given.get(name[:-2])
        if isinstance(rows, tuple | list):
            self._note_size(1 - end, rows[1 - end])
            rows = rows[end]
        if not hasattr(rows, "index_select"):
            return rows
        self._note_size(end, rows)
        return rows.index_select(self._conv.node_dim, self._ends[end])

    def _note_size(self, end: int, rows: Any) -> None:
        if self._sizes[end] is None and hasattr(rows, "size"):
            self._sizes[end] = rows.size(self._conv.node_dim)

    def _of_edges(self) -> dict[str, Any]:
        """Return what has the names of PyG's own."""
        here, there = self._sizes[self._i], self._sizes[self._j]
        here, there = (there if here is None else here), (here if there is None else there)
        of_ends = {"edge_index_i": self._ends[self._i], "edge_index_j": self._ends[self._j]}
        sizes = {"size": self._sizes, "size_i": here, "size_j": there, "dim_size": here}
        of = {"edge_index": self._edges, "adj_t": None, "ptr": None, "index": self._ends[self._i]}
        return of_ends | sizes | of
