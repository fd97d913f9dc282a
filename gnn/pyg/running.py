"""Runs a module beside what is made of it: as a copy, in eval mode, in float32 on the CPU."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from gnn.pyg.errors import ExportError
from gnn.pyg.steps import Traced

if TYPE_CHECKING:
    from torch.nn import Module

_CACHES = ("_cached_edge_index", "_cached_adj_t", "_cached_x", "_cached_h")

Graph = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows (n, width) float32, edge_index (2, e) int64, weights (e,) float32."""


def copy_of(module: Module) -> Module:
    """Return a copy in eval mode that shares nothing with the module.

    What training has left in it, such as SuperGATConv's last attention, is copied without its gradients: torch itself
    copies no tensor that was made of others.
    Raises: ExportError for a module that Python cannot copy.
    """
    memo: dict[int, Any] = {}
    for part in module.modules():
        _detach(vars(part), memo)
    try:
        return copy.deepcopy(module, memo).eval()
    except Exception as error:
        msg = f"{type(module).__name__} cannot be copied ({type(error).__name__}: {error}), and is to stay as it is"
        raise ExportError(msg) from error


def _detach(kept: Any, memo: dict[int, Any]) -> None:
    """Note copies of the tensors in containers that torch would not copy."""
    import torch

    if isinstance(kept, torch.Tensor):
        if not kept.is_leaf:
            memo[id(kept)] = kept.detach().clone()
    elif isinstance(kept, dict):
        _detach(list(kept.values()), memo)
    elif isinstance(kept, list | tuple):
        for one in kept:
            _detach(one, memo)


def clone_of(module: Module) -> Module:
    """Return a copy that `run` can run on any graph, and that leaves the module as it is."""
    return copy_of(module).cpu().float()


def _forget(clone: Module) -> None:
    """Have convs with cached=True answer for the next graph, not for the one that they were trained on."""
    for part in clone.modules():
        for name in _CACHES:
            if hasattr(part, name):
                setattr(part, name, None)


def run(clone: Module, traced: Traced, head: str | None, graph: Graph) -> tuple[Any, Any]:
    """Return a clone's embeddings and, with a head, its logits.

    Raises: ExportError where it returns something other than rows; whatever it raises itself.
    """
    import torch

    inputs: list[Any] = []
    hook = None
    _forget(clone)
    if head is not None:
        part = clone.get_submodule(head)
        hook = part.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach().clone()))
    with torch.no_grad():
        out = traced.run(clone, *(torch.from_numpy(values.copy()) for values in graph))
        if not isinstance(out, torch.Tensor):
            msg = f"the module returns {type(out).__name__}, expected the rows of a layer"
            raise ExportError(msg)
        if hook is not None:
            hook.remove()
        if head is None:
            return out.numpy(), None
        if inputs:
            return inputs[-1].numpy(), out.numpy()
        return out.numpy(), clone.get_submodule(head)(out.clone()).numpy()
