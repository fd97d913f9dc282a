"""Operations of a traced forward: their names, their places, and what they read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from freshet.gnn.pyg.functions import known_name


def name_of(node: Any, prefix: str) -> str:
    """The name of an operation of the module `prefix`."""
    where = node.target if isinstance(node.target, str) and node.op != "call_method" else node.name
    return f"{prefix}.{where.removeprefix('inner.')}".removeprefix(".")


def place_of(node: Any, prefix: str) -> str:
    """The name of an operation of the module `prefix`, and the line where it stands."""
    name, line = name_of(node, prefix), node.meta.get("line")
    return f"{name} ({line})" if line else name


def label_of(node: Any) -> str:
    """Return the name of an operation in the module, e.g. relu_."""
    return node.target if isinstance(node.target, str) else known_name(node.target)


def nodes_in(given: Any) -> Iterator[Any]:
    """The nodes in arguments, in their order, each as often as it is there."""
    if isinstance(given, list | tuple):
        for one in given:
            yield from nodes_in(one)
    elif isinstance(given, dict):
        yield from nodes_in(list(given.values()))
    elif hasattr(given, "all_input_nodes"):
        yield given


def keys_read(nodes: Any) -> Iterator[Any]:
    """Yield the keys of kinds and relations that what to_hetero has made reads of its dicts, in their order."""
    for node in nodes:
        key = node.args[1] if node.op == "call_method" and node.target == "get" and len(node.args) > 1 else None
        if isinstance(key, str) or (isinstance(key, tuple) and len(key) == 3):
            yield key
