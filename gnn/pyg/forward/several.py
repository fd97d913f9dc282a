"""Convs that return several results, of which a traced forward reads some: each is a call of its own."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch_geometric.nn import MessagePassing

from freshet.gnn.pyg.steps import is_read

_WEIGHTS = "return_attention_weights"
PART = "part"
"""Key in the `meta` of a conv's node; its value is the place of the result that the call reads."""


def call_by_part(graph: Any, root: Any) -> None:
    """Have a conv that is read as it runs be called once for each result that a forward takes of what it returns.

    One of PyG's that returns its attention weights, too, of which nobody takes any, is called without these.
    """
    for node in list(graph.nodes):
        if node.op != "call_module" or not node.users or not all(map(_takes_one, node.users)):
            continue
        conv = root.get_submodule(node.target)
        if not isinstance(conv, MessagePassing):
            continue
        if node.kwargs.get(_WEIGHTS) is True and all(user.args[1] == 0 for user in node.users):
            node.kwargs = {name: value for name, value in node.kwargs.items() if name != _WEIGHTS}
            _put(graph, node, dict.fromkeys([0], node))
            continue
        if not is_read(conv):
            continue
        made = dict[Any, Any]()
        for key in dict.fromkeys(user.args[1] for user in node.users):
            with graph.inserting_before(node):
                made[key] = graph.create_node("call_module", node.target, node.args, node.kwargs)
            made[key].meta |= node.meta | {PART: key}
        _put(graph, node, made)
        graph.erase_node(node)


def _put(graph: Any, node: Any, made: Mapping[Any, Any]) -> None:
    """Put other nodes in the place of what is taken of a node."""
    for user in list(node.users):
        user.replace_all_uses_with(made[user.args[1]])
        graph.erase_node(user)


def _takes_one(node: Any) -> bool:
    return node.op == "call_function" and node.target is operator.getitem and type(node.args[1]) in (int, str)
