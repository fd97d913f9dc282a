"""Numbers of dimensions of what a traced forward makes, where its operations say them for sure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.nn import Module, Sequential
from torch_geometric.nn import DNAConv, MessagePassing

from freshet.gnn.pyg.forward.edge_functions import EDGES_FIRST
from freshet.gnn.pyg.forward.places import label_of

KEPT = {
    *("relu", "elu", "leaky_relu", "gelu", "selu", "celu", "silu", "sigmoid", "tanh", "softplus", "exp", "log", "sqrt"),
    *("abs", "neg", "dropout", "softmax", "log_softmax", "normalize", "layer_norm", "batch_norm", "clamp", "pow"),
    *(
        "masked_fill",
        "float",
        "double",
        "to",
        "type",
        "type_as",
        "cpu",
        "cuda",
        "clone",
        "contiguous",
        "detach",
        "scatter",
    ),
}
"""Operations whose result has as many dimensions as the first thing that they are given."""
TOGETHER = {"add", "iadd", "sub", "isub", "mul", "imul", "truediv", "div", "maximum", "minimum"}
LAYERS = {
    *("Linear", "BatchNorm1d", "LayerNorm", "Identity", "Dropout", "ReLU", "ELU", "LeakyReLU", "PReLU", "GELU", "SELU"),
    *("CELU", "SiLU", "Sigmoid", "Tanh", "Softplus", "BatchNorm", "JumpingKnowledge", "MLP", "RMSNorm", "GRUCell"),
    *("Mish", "ReLU6", "LogSigmoid", "Softmax", "LogSoftmax", "Bilinear"),
}

_DIMS = "dimensions"
"""Key in the `meta` of a node that was asked for."""


def known_dims(node: Any, root: Module) -> int | None:
    """Return how many dimensions a tensor has; None where that is not known. `root`: the module that is traced."""
    if not hasattr(node, "all_input_nodes"):
        return 0 if isinstance(node, int | float) else None
    if (known := node.meta.get("dim")) is not None:
        return int(known)
    if _DIMS not in node.meta:
        node.meta[_DIMS] = _made(node, root)
    found: int | None = node.meta[_DIMS]
    return found


def _made(node: Any, root: Module) -> int | None:
    label = label_of(node).split(" ")[0].strip("_")
    if node.op == "get_attr":
        kept = (*root.named_parameters(remove_duplicate=False), *root.named_buffers(remove_duplicate=False))
        return next((one.ndim for name, one in kept if name == node.target), None)
    if node.op == "call_module":
        part = root.get_submodule(node.target)
        return _of_first(node, root) if _keeps_dims(part) and not node.kwargs.get("return_attention_weights") else None
    if not node.args:
        return None
    if label in KEPT or label == "cat":
        return _of_first(node, root)
    if label in TOGETHER:
        of = [known_dims(one, root) for one in node.args]
        return None if None in of else max(one for one in of if one is not None)
    if label == "unsqueeze":
        of_one = known_dims(node.args[0], root)
        return None if of_one is None else of_one + 1
    if label == "getitem":
        return _of_part(node, root)
    if label in ("view", "reshape"):
        return _of_sizes(node.args[1:])
    if label in ("mean", "sum"):
        return _of_reduced(node, root)
    return _of_first(node, root) if label == "index_select" else None


def _keeps_dims(part: Module) -> bool:
    """Return whether a layer or conv gives rows of as many dimensions as those that it is given first."""
    if not type(part).__module__.startswith(("torch.nn.", "torch_geometric.nn.")):
        return False
    if type(part) is Sequential:
        return all(map(_keeps_dims, part))
    is_conv = isinstance(part, MessagePassing) and not isinstance(part, DNAConv)  # which takes several rows of each
    return is_conv or type(part).__name__ in LAYERS


def _of_first(node: Any, root: Module) -> int | None:
    """Return the dimensions of the first thing that is given, or the first in a list of these."""
    first = node.args[0] if node.args else None
    return known_dims(first[0] if isinstance(first, tuple | list) and first else first, root)


def _of_sizes(sizes: Sequence[Any]) -> int | None:
    """Return how many sizes there are; None for one that may be several, as `h.size()`."""
    listed = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes
    return len(listed) if len(listed) > 1 or isinstance(next(iter(listed), None), int) else None


def _of_reduced(node: Any, root: Module) -> int | None:
    dims, dim = _of_first(node, root), node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if dims is None or type(dim) is not int or len(node.args) > 2:
        return None
    return dims if node.kwargs.get("keepdim") is True else None if node.kwargs.get("keepdim") else dims - 1


def _of_part(node: Any, root: Module) -> int | None:
    of, index = node.args
    if isinstance(index, tuple) and all(one is None or isinstance(one, int | slice) for one in index):
        dims = known_dims(of, root)
        fewer = sum(1 if isinstance(one, int) else -(one is None) for one in index)
        return None if dims is None or any(isinstance(one, bool) for one in index) else dims - fewer
    if getattr(of, "target", None) in EDGES_FIRST:  # edges, and a number for each
        if index == 0 or of.target.__name__ == "gcn_norm":
            return 2 - index
        return known_dims(of.args[1], root) if len(of.args) > 1 else None
    dims, by = known_dims(of, root), 1 if type(index) is int else known_dims(index, root)
    if dims is None or by != 1 or isinstance(index, tuple | slice | list):
        return None
    return dims - 1 if type(index) is int else dims
