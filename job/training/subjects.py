"""Models in training: the model that a job serves, or a module that a factory builds."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.pyg.saved.loading import build_module
from freshet.gnn.torch_modules.loading import to_torch
from freshet.gnn.torch_modules.module import FreshetModule
from freshet.job.errors import UsageError
from freshet.operators.checks.exporting import export_model

Graph: TypeAlias = Data | HeteroData


def store_of(graph: Graph, kind: str) -> Any:
    """Return what a graph has of the vertices of a kind; `kind` is empty where there are no kinds."""
    return graph[kind] if isinstance(graph, HeteroData) else graph


class Subject(Protocol):
    """A module with logits for the vertices of a graph, and a way into a model folder."""

    module: nn.Module

    def logits(self, graph: Graph, kind: str) -> Tensor:
        """Return the logits of all vertices of a kind, (vertices, width)."""
        ...

    def write(self, folder: Path, graph: Graph) -> None:
        """Write the model folder. The graph is the one that it was trained on."""
        ...


class ServedSubject:
    """The model of a folder, trained further. The rows of a model without a head are its logits."""

    def __init__(self, folder: Path) -> None:
        self.module = to_torch(folder)

    def logits(self, graph: Graph, kind: str) -> Tensor:
        """Return the logits of all vertices of a kind."""
        found = self.module(**self.module.arguments_of(graph))
        rows = found if isinstance(found, Tensor) else _of_kind(found, kind, "the model")
        return logits_of(self.module, rows, kind)

    def write(self, folder: Path, graph: Graph) -> None:
        """Write the model folder."""
        self.module.save(folder)


def logits_of(module: FreshetModule, rows: Tensor, kind: str) -> Tensor:
    """Return what the head makes of embeddings of a kind; the embeddings themselves where it has none."""
    declared = module.declared
    has_head = bool(declared.head) if isinstance(declared, Model) else bool(declared.heads.get(kind or declared.out[0]))
    return module.logits(rows, kind) if has_head else rows


class BuiltSubject:
    """A module of the user's, trained from the start.

    The method `forward` gets of the graph what its parameters name, as PyG's data has it: `x`, `edge_index`,
    `edge_weight`, `edge_attr`, `edge_type`; with kinds `x_dict`, `edge_index_dict` and so on; or all as `data`.
    """

    def __init__(self, factory: str, head: str, served: Model | KindsModel) -> None:
        """Build the module; `head` names its submodule that makes logits, and `served` is the model that serves now.

        Raises: UsageError where the module has no such submodule; ExportError where there is no such factory.
        """
        self.module, self._head, self._served = build_module(factory), head, served
        self._name, self._is_called = f"--factory {factory}: the module", False
        try:
            part = self.module.get_submodule(head)
        except AttributeError:
            msg = f"--head {head}: the module of {factory} has no submodule of that name"
            raise UsageError(msg) from None
        self._parts = list(part.values() if isinstance(part, nn.ModuleDict) else [part]) if head else []
        self._hooks = [one.register_forward_hook(self._note) for one in self._parts]

    def logits(self, graph: Graph, kind: str) -> Tensor:
        """Return the logits of all vertices of a kind: what the module returns, or its head where that is apart."""
        self._is_called = False
        found = self.module(**arguments_of(self.module, graph))
        rows = _of_kind(found, kind, self._name) if isinstance(found, dict) else found
        if not isinstance(rows, Tensor):
            msg = f"{self._name} returns {type(rows).__name__}, expected the rows of vertices"
            raise UsageError(msg)
        if not self._head or self._is_called:
            return rows
        part = self.module.get_submodule(self._head)
        made: Tensor = (part[kind] if isinstance(part, nn.ModuleDict) else part)(rows)
        return made

    def write(self, folder: Path, graph: Graph) -> None:
        """Export the module, with the kinds, types and widths of the graph; norms over all vertices freeze at it."""
        served, options = self._served, dict[str, Any](stats_from=graph)
        options |= {"head": self._head} if self._head else {}
        if isinstance(graph, HeteroData):
            assert isinstance(served, KindsModel)  # the graph has kinds because it has
            ends = [one.ends for one in served.relations]
            mirrors = {one.ends: ends[one.mirrors] for one in served.relations if one.mirrors is not None}
            options |= {"metadata": (list(graph.node_types), ends), "mirrors": mirrors or None}
            options["features"] = {kind: width for kind, width in served.kinds.items() if width}
        else:
            options |= {"features": served.features.width, "edge_types": served.edge_types or None}
        for hook in self._hooks:  # an export takes none, since they may change rows
            hook.remove()
        export_model(self.module.eval(), folder, **options)
        self._hooks = [one.register_forward_hook(self._note) for one in self._parts]

    def _note(self, *_: object) -> None:
        self._is_called = True


def _of_kind(found: Mapping[str, Tensor], kind: str, name: str) -> Tensor:
    if kind not in found:
        msg = f"{name} returns no rows of the kind {kind!r}, whose vertices have labels; it returns {', '.join(found)}"
        raise UsageError(msg)
    return found[kind]


def arguments_of(module: nn.Module, graph: Graph) -> dict[str, Any]:
    """Return the arguments of a module's forward that a graph has, by the names of its parameters.

    Raises: UsageError for a parameter without a default that the graph does not have.
    """
    found: dict[str, Any] = {}
    for one in inspect.signature(module.forward).parameters.values():
        if one.name == "data":
            found[one.name] = graph
        elif one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            value = _given(module, graph, one.name)
            if value is not None and (not isinstance(value, dict) or value):
                found[one.name] = value
            elif one.default is one.empty:
                msg = f"{type(module).__name__}.forward needs {one.name}, which the graph does not have; it has "
                raise UsageError(msg + ", ".join(sorted(map(str, graph.keys()))))
    return found


def _given(module: nn.Module, graph: Graph, name: str) -> Any:
    """Return what a graph has under the name of a parameter; None where the module takes none."""
    if name in ("edge_weight", "edge_attr") and not getattr(module, f"supports_{name}", True):
        return None  # PyG's models have both as parameters, whichever their convs take
    if isinstance(graph, HeteroData):  # modules of `to_hetero` name dicts as the module that they were made of
        return graph.collect(name.removesuffix("_dict"), allow_empty=True)
    return getattr(graph, name, None)
