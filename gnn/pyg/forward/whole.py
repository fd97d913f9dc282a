"""Properties of a whole module: whether it reads kinds of vertices and edges, and which part makes the rows."""

from __future__ import annotations

import dis
import inspect
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from freshet.gnn.pyg.refusals import KINDS, reads_types
from freshet.gnn.pyg.steps import class_name

if TYPE_CHECKING:
    from torch.nn import Module

_ENCODERS = ("encoder", "enc", "gnn", "gnn_encoder", "backbone", "embedder")
_ENCODES = ("encode", "embed", "get_embedding", "get_embeddings", "encode_nodes")
_TO_HETERO = "torch_geometric.nn.to_hetero"
_OF_DICTS = ("items", "keys", "values", "get")
_BY_DICTS = {f"torch_geometric.nn.{name}" for name in ("HeteroConv", "HeteroDictLinear", "HGTConv", "HANConv")}


def why_kinds(module: Module) -> str | None:
    """Return why a module is refused that holds one which reads the types of edges; None for any other."""
    for path, part in module.named_modules():
        if reads_types(class_name(part)):
            return f"{path or type(module).__name__}: {class_name(part)} {KINDS}"
    return None


def is_of_kinds(part: Module) -> bool:
    """Return whether a module is called with dicts by kind: one of PyG's, or what to_hetero has made."""
    import torch

    if class_name(part) in _BY_DICTS:
        return True
    homes = _homes_of_calls(part) if isinstance(part, torch.fx.GraphModule) else ()
    return any(home.startswith(_TO_HETERO) for home in homes)


def made_with_bases(module: Module) -> str | None:
    """Return why what to_hetero_with_bases has made is refused; None for any other module."""
    import torch

    for part in module.modules():
        homes = _homes_of_calls(part) if isinstance(part, torch.fx.GraphModule) else ()
        if any(home.startswith(f"{_TO_HETERO}_with_bases") for home in homes):
            return (
                f"{type(part).__name__} is made by to_hetero_with_bases, which is not supported: hooks mix its "
                "messages. Nearest: to_hetero"
            )
    return None


def _homes_of_calls(part: Any) -> list[str]:
    """The modules that the functions come from which a graph calls."""
    return [str(getattr(node.target, "__module__", "")) for node in part.graph.nodes]


def reads_dicts(nodes: Sequence[Any]) -> str | None:
    """Return why a traced forward is refused that reads its inputs by kind, as `x["user"]` and `x.items()` do."""
    for node in nodes:
        if node.op == "placeholder" or not node.args or getattr(node.args[0], "op", "") != "placeholder":
            continue
        key = node.args[1] if node.target is operator.getitem else None
        by_name = isinstance(key, str) or (isinstance(key, tuple) and all(isinstance(one, str) for one in key))
        if by_name or (node.op == "call_method" and node.target in _OF_DICTS):
            return f"reads its input as a dict ({node.meta.get('line', '')}): it {KINDS}"
    return None


def read_rest(function: Any, parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return which of *args and **kwargs a function has and reads; one that passes them by needs none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    rest = [one for one in parameters if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if code is None:
        return rest
    read = {one.argval for one in dis.get_instructions(code) if one.opname.startswith("LOAD_")}
    return [one for one in rest if one.name in read]


def encoder_hint(module: Module, error: str, method: str) -> str:
    """Return how to export the part of a refused module that makes the rows of vertices; empty where there is none."""
    if error.startswith(("output=", "method=")) or "several things" in error:
        return ""
    name, parts = type(module).__name__, dict(module.named_children())
    # the rows of a ModuleList depend on what forward does between its parts
    with_convs = [one for one, part in parts.items() if _has_convs(part) and not _is_list(part)]
    named = [one for one in with_convs if one in _ENCODERS]
    wholes = [one for one in with_convs if not _is_conv(parts[one]) and len(with_convs) == 1 and len(parts) > 1]
    for part in (named or wholes)[:1]:
        if not error.startswith(part):
            return f"If its .{part} makes the rows of vertices, export that: export_model(model.{part}, folder)"
    for one in _ENCODES:
        function = getattr(type(module), one, None)
        if one != method and callable(function) and len(inspect.signature(function).parameters) > 2:
            how = f"export_model(model, folder, method={one!r})"
            return f"If {name}.{one} makes the rows of vertices, export that: {how}"
    return ""


def _is_list(module: Module) -> bool:
    return class_name(module) in ("torch.nn.ModuleList", "torch.nn.ModuleDict")


def _is_conv(module: Module) -> bool:
    from torch_geometric.nn import MessagePassing

    return isinstance(module, MessagePassing)


def _has_convs(module: Module) -> bool:
    return any(_is_conv(part) for part in module.modules())
