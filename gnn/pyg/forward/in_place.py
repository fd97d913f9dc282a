"""Operations that write to what they read, such as `h.relu_()`: taken where nobody reads later what they wrote over.

A traced graph has values, not memory: read as one, an operation in place would leave its input as it was.
"""

from __future__ import annotations

import inspect
import operator
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from gnn.pyg.errors import ExportError
from gnn.pyg.forward.nodes import label_of, place_of
from gnn.pyg.steps import class_name

if TYPE_CHECKING:
    from torch.nn import Module

_OPERATORS = (operator.iadd, operator.isub, operator.imul, operator.itruediv)
# What gives its input again, or a view of it, at inference.
_SAME = {
    *("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"),
    *("contiguous", "detach", "float", "double", "half", "to", "type", "type_as", "cpu", "requires_grad"),
    *("view", "view_as", "reshape", "flatten", "squeeze", "unsqueeze", "t", "transpose", "permute", "expand"),
    *("getitem", "chunk", "split", "select", "narrow", "unbind"),
}
_SAME_ATTRIBUTES = {"data", "T", "mT", "H", "mH"}


def refuse_overwritten(graph: Any, root: Module, prefix: str) -> None:
    """Refuse a forward of the module `prefix` that reads what it has written over.

    Raises: ExportError naming the operation that writes.
    """
    order = {node: number for number, node in enumerate(graph.nodes)}
    memory: dict[Any, Any] = {}  # a node whose memory it is
    sharing: dict[Any, list[Any]] = defaultdict(list)  # the nodes so far, by their memory
    for node in graph.nodes:
        read, out = _first(node), node.kwargs.get("out")
        writes = read is not None and _writes(node, root)
        shares = writes or (read is not None and _is_same(node, root))
        memory[node] = memory[read] if shares else node
        late = [user for one in sharing[memory[node]] for user in one.users if order[user] > order[node]]
        if out is not None or (writes and (late or memory[node].op == "get_attr")):
            msg = (
                f"{place_of(node, prefix)} writes over what is read again after it, "
                "and Freshet takes values, not memory. "
                "Nearest: the same not in place (no _ at its end, no inplace=True, no out=), with its result assigned"
            )
            raise ExportError(msg)
        sharing[memory[node]].append(node)


def _first(node: Any) -> Any | None:
    """The node that an operation reads first, if it is one."""
    first = node.args[0] if node.args else node.kwargs.get("input")
    return first if node.op.startswith("call") and hasattr(first, "users") else None


def _writes(node: Any, root: Module) -> bool:
    """Whether an operation writes to what it reads first."""
    if node.op == "call_module":
        return _module_writes(root.get_submodule(node.target))
    label = label_of(node)
    if label.rstrip("_") in _SAME:
        return False
    if node.op == "call_method" or node.target in _OPERATORS:
        return node.target in _OPERATORS or (label.endswith("_") and not label.endswith("__"))
    try:
        options = inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):  # torch's builtins have no signature
        options = node.kwargs
    return options.get("inplace") is True or label.endswith("_")


def _module_writes(module: Module) -> bool:
    """Whether a module writes to its input: of a chain the first one that does anything."""
    if class_name(module) == "torch.nn.Sequential":
        parts = [part for part in module.children() if not gives_its_input(part)]
        return bool(parts) and _module_writes(parts[0])
    return bool(getattr(module, "inplace", False)) and not gives_its_input(module)


def _is_same(node: Any, root: Module) -> bool:
    """Whether an operation gives its input again, or a view of it."""
    if node.op == "call_module":
        return gives_its_input(root.get_submodule(node.target))
    if node.target is getattr:
        return node.args[1] in _SAME_ATTRIBUTES
    return label_of(node).rstrip("_") in _SAME


def gives_its_input(module: Module | None) -> bool:
    """Whether a module does nothing at inference."""
    if module is not None and class_name(module) == "torch.nn.Sequential":
        return all(gives_its_input(part) for part in module.children())
    return class_name(module) == "torch.nn.Identity" or "Dropout" in type(module).__name__
