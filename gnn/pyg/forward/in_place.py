"""Operations that write to what they read, such as `h.relu_()`: taken where nobody reads later what they wrote over.

A traced graph has values, not memory: read as one, an operation in place would leave its input as it was. What makes
new memory is listed; anything else may give its inputs again, or a view of them.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any

from torch.nn import Module

from freshet.gnn.pyg.errors import RECORDED, ExportError
from freshet.gnn.pyg.forward.edge_functions import FRESH
from freshet.gnn.pyg.forward.places import label_of, nodes_in, place_of
from freshet.gnn.pyg.functions import is_foreign
from freshet.gnn.pyg.steps import class_name

_OPERATORS = {
    *(operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow),
    *(operator.iand, operator.ior, operator.ixor, operator.imatmul, operator.setitem, operator.delitem),
}
_METHODS = {f"__{one.__name__}__" for one in _OPERATORS}  # of a constant, given rows or sizes
# What makes new memory, where it is not in place.
_FRESH = {
    *("relu", "leaky_relu", "prelu", "relu6", "hardtanh", "elu", "celu", "selu", "gelu", "softplus", "mish", "tanh"),
    *("sigmoid", "logsigmoid", "log_sigmoid", "silu", "swish", "softmax", "log_softmax", "clamp", "clip"),
    *("clamp_min", "clamp_max", "normalize", "layer_norm", "rms_norm", "linear", "matmul", "mm", "neg", "clone"),
    *("add", "sub", "mul", "div", "truediv", "divide", "true_divide", "multiply", "subtract", "pow", "square", "abs"),
    *("exp", "log", "sqrt", "sin", "cos", "maximum", "minimum"),
    *("cat", "concat", "concatenate", "hstack", "column_stack", "stack"),
    *("max", "min", "sum", "mean", "prod", "amax", "amin", "size", "dim", "numel", "zeros_like", "ones_like"),
    *("zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "bincount"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor", "invert", "logical_and", "logical_or", "logical_not"),
    *("rsqrt", "reciprocal", "isinf", "scatter_add", "index_add", "masked_fill", "gather", "index_select"),
}
_FRESH_ATTRIBUTES = {"shape", "device", "dtype", "ndim", "is_cuda", "layout"}
_DROPOUTS = ("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d")
# What writes nothing at inference, whatever its name or options say.
_WRITES_NOTHING = {*_DROPOUTS, *(f"{name}_" for name in _DROPOUTS), "detach_", "requires_grad_"}
_WHY = (
    "writes over what is read again after it, and Freshet takes values, not memory. Nearest: the same not in place (no "
    "_ at its end, no inplace=True, no out=), with its result assigned"
)


def overwritten(where: str) -> ExportError:
    """Return the error for an operation that overwrites rows that are read later."""
    return ExportError(f"{where} {_WHY}").of(RECORDED)


def refuse_overwritten(graph: Any, root: Module, prefix: str) -> None:
    """Refuse a forward of the module `prefix` that reads what it has written over.

    Raises: ExportError naming the operation that writes.
    """
    order = {node: number for number, node in enumerate(graph.nodes)}
    memory: dict[Any, set[Any]] = {}  # of which nodes it may be the memory
    for node in graph.nodes:
        written = list(_written(node, root))
        shared = written or ([] if _is_fresh(node, root) else node.all_input_nodes)
        touched = {base for one in written for base in memory[one]}
        late = [user for one, of in memory.items() if of & touched for user in one.users if order[user] > order[node]]
        kept = any(base.op == "get_attr" or (base.op == "placeholder" and not node.users) for base in touched)
        if late and not kept and _is_assigned(node, written, memory, order):
            continue
        if node.kwargs.get("out") is not None or late or kept:
            raise overwritten(place_of(node, prefix))
        memory[node] = {base for one in shared for base in memory[one]} or {node}


def _is_assigned(node: Any, written: list[Any], memory: dict[Any, set[Any]], order: dict[Any, int]) -> bool:
    """Return whether an operation stands by itself, as `h.add_(1)`: what reads h after it reads its result from now on.

    False where others show the same memory.
    """
    if len(written) != 1 or not _is_whole(written[0], memory) or written[0].op == "placeholder":
        return False
    (one,) = written
    if not node.args or node.args[0] is not one:  # one of a list, which it does not return
        return False
    others = (other for other, of in memory.items() if one in of and other is not one)
    if any(order[user] > order[node] for other in others for user in other.users):
        return False
    for user in [user for user in one.users if order[user] > order[node]]:
        user.replace_input_with(one, node)
    memory[node] = {node}
    return True


def _is_whole(node: Any, memory: dict[Any, set[Any]]) -> bool:
    """Return whether a node has memory of its own, all of it, or writes over such memory and gives it."""
    if memory[node] == {node}:
        return True
    first = node.args[0] if node.args else None
    return writes(node) and first in memory and memory[first] == memory[node] and _is_whole(first, memory)


def _written(node: Any, root: Module) -> list[Any]:
    """The nodes that an operation writes to."""
    if not node.op.startswith("call"):
        return []
    first = list(nodes_in(node.args[0] if node.args else node.kwargs.get("input")))
    if node.op == "call_module":
        return first[:1] if module_writes(root.get_submodule(node.target)) else []
    if node.op == "call_function" and is_foreign(node.target):
        return list(node.all_input_nodes)  # a function that is not looked into
    return first if writes(node) else []


def writes(node: Any) -> bool:
    """Return whether a function or method writes to its first argument."""
    label = str(node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.target))
    if label in _WRITES_NOTHING or node.target in (operator.and_, operator.or_, operator.not_):
        return False
    if (
        node.target in _OPERATORS
        or label in _METHODS
        or any(one.endswith("_") and not one.endswith("__") for one in label.split("."))
    ):
        return True
    if node.op == "call_method":
        return False
    try:
        options = inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):  # torch's builtins have no signature
        options = node.kwargs
    return options.get("inplace") is True


def module_writes(module: Module) -> bool:
    """Return whether a module writes to its input: in a chain, the first module that does anything."""
    if class_name(module) == "torch.nn.Sequential":
        parts = [part for part in module.children() if not gives_its_input(part)]
        return bool(parts) and module_writes(parts[0])
    return bool(getattr(module, "inplace", False)) and not gives_its_input(module)


def _is_fresh(node: Any, root: Module) -> bool:
    """Return whether an operation allocates its result."""
    if node.op == "call_module":
        return not gives_its_input(root.get_submodule(node.target))
    if node.target is getattr:
        return node.args[1] in _FRESH_ATTRIBUTES
    return label_of(node) in _FRESH or node.target in FRESH


def gives_its_input(module: Module | None) -> bool:
    """Return whether a module does nothing at inference."""
    if module is not None and class_name(module) == "torch.nn.Sequential":
        return all(gives_its_input(part) for part in module.children())
    if getattr(module, "K", None) == 0:  # no hop
        return True
    return class_name(module) == "torch.nn.Identity" or "Dropout" in type(module).__name__
