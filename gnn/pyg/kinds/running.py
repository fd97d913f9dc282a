"""Runs a module with kinds on a graph, for comparison with its export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.fx import Asked
from freshet.gnn.pyg.kinds.calling import ModuleCall, ModuleInputs
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.kinds_graph import KindsGraph

if TYPE_CHECKING:
    from torch.nn import Module


def given_of(graph: KindsGraph, call: ModuleCall, dtype: Any) -> ModuleInputs:
    """Return what a module is given of a graph, in new tensors."""
    import torch

    def tensor(values: np.ndarray) -> Any:
        return torch.from_numpy(values.astype(dtype))

    rows = [tensor(x) for x in graph.x]
    ends = [np.stack([one.src, one.dst]).astype(np.int64) for one in graph.edges]
    if call.types is not None:
        types = np.repeat(np.arange(len(ends)), [one.shape[1] for one in ends])
        return ModuleInputs(rows, [torch.from_numpy(np.concatenate(ends, axis=1))], [], [], torch.from_numpy(types))
    values = [one.values for one in graph.edges]
    weights, attributes = [tensor(one.weight) for one in values], [tensor(one.full_attr(0)) for one in values]
    return ModuleInputs(rows, [torch.from_numpy(one) for one in ends], weights, attributes)


@dataclass(frozen=True)
class Run:
    """A way to run a module: what it is called with, its kinds and relations, and which of its results is meant."""

    call: ModuleCall
    kinds: Metadata
    asked: Asked

    def __call__(self, copy: Module, graph: KindsGraph, dtype: Any) -> list[np.ndarray]:
        """Return the rows of each kind that a module returns, in its order.

        Raises: ExportError where it returns something other than rows; whatever it raises itself.
        """
        import torch

        with torch.no_grad():
            out = self.asked.of(copy, self.call(copy, self.kinds, given_of(graph, self.call, dtype)))
        listed = [one for one in out.values() if one is not None] if isinstance(out, dict) else [out]
        for one in listed:
            if not isinstance(one, torch.Tensor):
                msg = f"the module returns {type(one).__name__}, expected the rows of a kind"
                raise ExportError(msg)
        return [one.numpy() for one in listed]
