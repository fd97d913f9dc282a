"""Traces a forward that is called with dicts by kind and relation, or with types of edges, by torch.fx."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.nn import Module
from torch_geometric.nn import HeteroConv, HeteroDictLinear, HeteroJumpingKnowledge, MessagePassing
from torch_geometric.utils._trim_to_layer import TrimToLayer

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.parameters import STANDARD
from freshet.gnn.pyg.forward.places import blamed, place_here
from freshet.gnn.pyg.forward.tracer import Tracer, rows_as_tensors, traced
from freshet.gnn.pyg.kinds.calling import ModuleCall, ModuleInputs
from freshet.gnn.pyg.kinds.convs.by_kinds import is_han, is_hgt, reached
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.refusals import EDGE_FUNCTIONS, TAKEN
from freshet.gnn.pyg.running import copy_of
from freshet.gnn.pyg.steps import class_name

_OPENED = (HeteroConv, HeteroDictLinear, HeteroJumpingKnowledge, TrimToLayer)
"""Modules of PyG's that call others by kind or relation, and do no more; the last one hands its inputs on."""


_REFUSED = {
    "HEATConv": "is not supported. Nearest: HeteroConv of GATConv",
    "HeteroBatchNorm": "is not supported: it reads a kind for each row. Nearest: a BatchNorm for each kind",
    "HeteroLayerNorm": "is not supported: it reads a kind for each row. Nearest: a LayerNorm for each kind",
    "HeteroLinear": "is not supported: it reads a kind for each row. Nearest: HeteroDictLinear",
}


class KindsTracer(Tracer):
    """Traces one module whose inputs come by kind and relation."""

    def __init__(self, module: Module, head: str | None, kinds: Metadata, *, typed: bool) -> None:
        """Set the module to trace; `typed`: whether it is called with types of edges."""
        super().__init__(module, head, STANDARD)
        self._kinds, self._typed = kinds, typed
        self.given: ModuleInputs

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        """Make a placeholder for the rows of each kind, and one for each thing that edges of a relation have."""
        relations = [None] if self._typed else self._kinds.relations
        rows = [self._placeholder(f"x_{i}", 2) for i in range(len(self._kinds.names))]
        edges = [self._placeholder(f"edge_index_{j}", 2) for j in range(len(relations))]
        weights = [] if self._typed else [self._placeholder(f"edge_weight_{j}", 1) for j in range(len(relations))]
        attributes = [] if self._typed else [self._placeholder(f"edge_attr_{j}", 2) for j in range(len(relations))]
        types = self._placeholder("edge_type", 1) if self._typed else None
        ids = [self._placeholder(f"node_id_{i}", 1) for i in range(len(self._kinds.names))]
        self.given = ModuleInputs(rows, edges, weights, attributes, types, ids)
        return root_fn, [self.root, self.given]

    def _placeholder(self, name: str, dim: int) -> Any:
        made = self.create_proxy("placeholder", name, (), {})
        made.node.meta["dim"] = dim
        return made

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Return whether a module is one operation; what only calls others by kind or relation is looked into."""
        if isinstance(m, MessagePassing):
            return True
        return type(m) not in _OPENED and super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """Note a call; of an extremum over relations the values, which HeteroConv picks from a tuple.

        Raises: ExportError for a module of PyG's that reads kinds and is not taken.
        """
        kind = class_name(m)
        if kind.startswith("torch_geometric.nn.") and (why := _REFUSED.get(kind.rsplit(".", 1)[1])) is not None:
            name, line = self.path_of_module(m).removeprefix("inner.").removeprefix("inner"), place_here()
            refuse(f"{name or type(m).__name__}{f' ({line})' if line else ''}: {kind} {why}")
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


def graph_of(module: Module, name: str, call: ModuleCall, kinds: Metadata) -> tuple[Any, Module, ModuleInputs]:
    """Return the graph of torch.fx, the module that it is of, and its inputs' nodes.

    Raises: ExportError naming what cannot be traced, and where.
    """

    class Root(torch.nn.Module):
        """Calls the module with what it needs."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = copy_of(module)  # a forward may keep what it is given

        def forward(self, given: ModuleInputs) -> Any:
            return call(self.inner, kinds, given)

    root = Root()
    tracer = KindsTracer(root.inner, None, kinds, typed=call.types is not None)
    try:
        with rows_as_tensors():
            graph = traced(root.inner, lambda: tracer.trace(root))
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(_why_untraced(tracer, name, error)) from error
    root.inner = module
    return graph, root, _nodes_of(tracer.given)


def _nodes_of(given: ModuleInputs) -> ModuleInputs:
    rows, edges, weights, attributes = ([one.node for one in listed] for listed in given[:4])
    types = None if given.types is None else given.types.node
    return ModuleInputs(rows, edges, weights, attributes, types, [one.node for one in given.ids])


def _why_untraced(tracer: Tracer, name: str, error: Exception) -> str:
    place, inside = blamed(error)
    where = f" at {place}" if place else ""
    if isinstance(error, KeyError):
        return (
            f"{name} fails{where}: there are no rows or edges of {error}. Metadata that no relation reaches are gone "
            "behind HeteroConv; metadata says which kinds and relations there are"
        )
    nodes = list(tracer.graph.nodes)
    inside = inside or next((one.meta["inside"] for one in reversed(nodes) if one.meta.get("inside")), "")
    if inside:
        return f"{name}: {inside} ({place}) {EDGE_FUNCTIONS[inside]}"
    return f"{name} cannot be traced{where} ({type(error).__name__}: {error}). {TAKEN}"
