"""Traces a forward that is called with dicts by kind and relation, or with types of edges, by torch.fx."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.nn import Module
from torch_geometric.nn import (
    DirGNNConv,
    HeteroConv,
    HeteroDictLinear,
    HeteroJumpingKnowledge,
    MessagePassing,
    Sequential,
)
from torch_geometric.utils._trim_to_layer import TrimToLayer

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.parameters import ModuleInputs
from freshet.gnn.pyg.forward.places import place_here
from freshet.gnn.pyg.forward.tracer import TracedRoot, Tracer
from freshet.gnn.pyg.kinds.calling import ModuleCall, has_attributes
from freshet.gnn.pyg.kinds.convs.by_kinds import is_han, is_hgt, reached
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.steps import class_name

_JOINED = ("sum", "mean", "min", "max", "cat", None)
_OPENED = (DirGNNConv, HeteroConv, HeteroDictLinear, HeteroJumpingKnowledge, Sequential, TrimToLayer)
"""Modules of PyG's that call others, and do no more; the last one hands its inputs on."""


_REFUSED = {
    "HEATConv": "is not supported. Nearest: HeteroConv of GATConv",
    "HeteroBatchNorm": "is not supported: it reads a kind for each row. Nearest: a BatchNorm for each kind",
    "HeteroLayerNorm": "is not supported: it reads a kind for each row. Nearest: a LayerNorm for each kind",
    "HeteroLinear": "is not supported: it reads a kind for each row. Nearest: HeteroDictLinear",
}


class KindsTracer(Tracer):
    """Traces one module whose inputs come by kind and relation."""

    def __init__(self, module: Module, kinds: Metadata, *, typed: bool, edge_functions: bool, opened: bool) -> None:
        """Set the module to trace; `typed`: whether it is called with types of edges."""
        rows, relations = range(len(kinds.names)), range(1 if typed else len(kinds.relations))
        weights, attributes = ([f"{name}_{j}" for j in relations] for name in ("edge_weight", "edge_attr"))
        edges, ids = [f"edge_index_{j}" for j in relations], [f"node_id_{i}" for i in rows]
        types = "edge_type" if typed else None
        names = ModuleInputs([f"x_{i}" for i in rows], edges, weights, attributes, types, ids)
        super().__init__(module, names=names, edge_functions=edge_functions, opened=opened)
        self._has_mirrors = not typed and len(kinds.names) == 1 and any(one is not None for one in kinds.mirrors)

    @property
    def _turns(self) -> bool:
        return self._has_mirrors

    def _why(self, at: str, error: Exception, nodes: list[Any]) -> str | None:
        if self._names.types is not None and nodes and _is_of_edges(nodes):
            return (
                f"branches on edges{at}, as on which types there are, which every event may change "
                f"({type(error).__name__}). Nearest: all types in turn, range(num_relations), without a branch: a conv "
                "of a type without edges gives rows, too"
            )
        if not isinstance(error, KeyError):
            return None
        return (
            f"fails{at}: there are no rows or edges of {error}. Metadata that no relation reaches are gone behind "
            "HeteroConv; metadata says which kinds and relations there are"
        )

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Return whether a module is one operation; what only calls others by kind or relation is looked into."""
        if isinstance(m, MessagePassing):
            return not self._opens(m)
        return type(m) not in _OPENED and super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """Note a call; of an extremum over relations the values, which HeteroConv picks from a tuple.

        Raises: ExportError for a module of PyG's that reads kinds and is not taken.
        """
        kind = class_name(m)
        if kind.startswith("torch_geometric.nn.") and (why := _REFUSED.get(kind.rsplit(".", 1)[1])) is not None:
            refuse(f"{self._named(m)}: {kind} {why}")
        if type(m) is HeteroConv and m.aggr not in _JOINED and len({key[-1] for key in m.convs}) < len(m.convs):
            refuse(f"{self._named(m)}: aggr={m.aggr!r} of HeteroConv is not supported. Nearest: aggr='sum'")
        made = super().call_module(m, forward, args, kwargs)
        if is_hgt(m):
            x = next(iter(inspect.signature(m.forward).bind(*args, **kwargs).arguments.values()))
            return {kind: made[kind] for kind in x if kind in m.dst_node_types}
        if is_han(m):
            x, edges = list(inspect.signature(m.forward).bind(*args, **kwargs).arguments.values())[:2]
            there = reached(x, edges)
            return {kind: made[kind] if kind in there else None for kind in x}
        if type(m) is not HeteroConv:
            return made
        return {kind: rows[0] if rows.node.target in (torch.max, torch.min) else rows for kind, rows in made.items()}

    def _named(self, m: Module) -> str:
        """Name a module that is called, with the line of the call."""
        name, line = self.path_of_module(m).removeprefix("inner.").removeprefix("inner"), place_here()
        return f"{name or type(m).__name__}{f' ({line})' if line else ''}"


def _is_of_edges(nodes: Sequence[Any]) -> bool:
    """Return whether the last operation that was traced reads types of edges, or edges of a type, and no rows."""
    read, waiting = set[Any](), [nodes[-1]]
    while waiting:
        one = waiting.pop()
        if one not in read:
            read.add(one)
            waiting += one.all_input_nodes
    inputs = {one.target for one in read if one.op == "placeholder"}
    return "edge_type" in inputs and not any(name.startswith("x_") for name in inputs)


def graph_of(
    module: Module, name: str, call: ModuleCall, kinds: Metadata, *, edge_functions: bool, opened: bool = False
) -> tuple[Any, Module, ModuleInputs]:
    """Return the graph of torch.fx, the module that it is of, and its inputs' nodes.

    `edge_functions` and `opened`: as in Tracer.

    Raises: ExportError naming what cannot be traced, and where.
    """
    root = TracedRoot(module, lambda inner, given: call(inner, kinds, given))
    tracer = KindsTracer(root.inner, kinds, typed=call.types is not None, edge_functions=edge_functions, opened=opened)
    graph, given = tracer.graph_of(root, name)
    root.inner = module
    return graph, root, given


def with_all_attributes(module: Module, name: str, call: ModuleCall, kinds: Metadata) -> ModuleCall:
    """Return the call that hands on attributes of all relations where convs take what is made of these; else as it is.

    A forward may make other things of attributes than `edge_attr` of convs, such as weights.
    """
    if call.attributes is None or not call.unattributed:
        return call
    every = call._replace(unattributed=frozenset())
    if not any(has_attributes(one) for one in module.modules() if isinstance(one, MessagePassing)):
        return every
    try:
        graph, root, given = graph_of(module, name, every, kinds, edge_functions=True)
    except ExportError:
        return call
    convs = (one for one in graph.nodes if one.op == "call_module")
    return every if all(_takes(root.get_submodule(one.target), one, given.attributes) for one in convs) else call


def _takes(op: Any, node: Any, attributes: Collection[Any]) -> bool:
    """Return whether a conv takes what it is called with, and attributes by name alone; True for other modules."""
    if not isinstance(op, MessagePassing):
        return True
    try:
        given = inspect.signature(op.forward).bind(*node.args, **node.kwargs).arguments
    except TypeError:
        return False
    by_place = any(one is of for one in node.args for of in attributes)
    return not hasattr(given.get("size"), "all_input_nodes") and (has_attributes(op) or not by_place)
