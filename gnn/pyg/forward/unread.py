"""Parameters that a forward needs, and that nothing which it makes of vertices reads, such as a batch that it pools by.

A forward is traced with a placeholder for each, and once more with None: it is taken where neither changes its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.places import name_of


class NotRead:
    """An argument that nothing reads, where a forward runs: whatever is done with it raises an error."""


def standing_for(name: str, x: Any) -> Any:
    """Return what a parameter gets: a placeholder where rows are one, else one graph's batch, or what nothing reads."""
    if isinstance(x, torch.fx.Proxy):
        return x.tracer.create_proxy("placeholder", name, (), {})
    return torch.zeros(len(x), dtype=torch.int64, device=x.device) if name == "batch" else NotRead()


def drop_unread(graph: Any, names: Sequence[str], needs: str) -> None:
    """Erase the placeholders of parameters that nothing reads; `needs` begins the refusal of others.

    Raises: ExportError naming the parameter, and the line where it is read.
    """
    for node in [one for one in graph.nodes if one.op == "placeholder" and one.target in names]:
        if node.users:
            first = next(iter(node.users))
            line = first.meta.get("line") or ""
            msg = f"{needs}. {node.target} is read by {name_of(first, '')}{f' ({line})' if line else ''}"
            raise ExportError(msg)
        graph.erase_node(node)


def is_alike(one: Any, other: Any) -> bool:
    """Return whether two graphs of torch.fx have the same operations on the same things."""
    return _shown(one) == _shown(other) and "_tensor_constant" not in _shown(one)


def _shown(graph: Any) -> str:
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    listed = list[Any]()
    for node in numbers:
        given = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda read: f"%{numbers[read]}")
        listed.append((node.op, node.target, given))
    return str(listed)
