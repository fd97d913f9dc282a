"""Hints at what to export of a refused module instead: the part, or the method, that makes the rows of vertices."""

from __future__ import annotations

import inspect

from torch.nn import Module
from torch_geometric.nn import MessagePassing

from freshet.gnn.pyg.steps import class_name

_ENCODERS = ("encoder", "enc", "gnn", "gnn_encoder", "backbone", "embedder")
_ENCODES = ("encode", "embed", "get_embedding", "get_embeddings", "encode_nodes")


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
    return isinstance(module, MessagePassing)


def _has_convs(module: Module) -> bool:
    return any(_is_conv(part) for part in module.modules())
