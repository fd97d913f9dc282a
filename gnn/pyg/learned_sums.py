"""LINKX's sparse layer: a learned row for each vertex, of which each vertex sums those of its sources."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import SimpleConv
from torch_geometric.nn.models.linkx import SparseLinear

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.running import copy_of


class LearnedSum(Module):
    """The same by a conv that is called with the learned rows."""

    def __init__(self, of: SparseLinear) -> None:
        """Take the weights of the layer."""
        super().__init__()
        self.weight, self.bias, self.conv = of.weight, of.bias, SimpleConv(aggr=of.aggr, flow=of.flow)

    def forward(self, edge_index: Any, edge_weight: Any = None) -> Any:
        """Return the sums of all vertices."""
        made = self.conv(self.weight, edge_index, edge_weight)
        return made if self.bias is None else made + self.bias


def with_learned_sums(module: Module) -> Module:
    """Return a module that has such sums in the place of LINKX's sparse layers; one without these as it is.

    Raises: ExportError where a layer gives something else.
    """
    if not any(type(part) is SparseLinear for part in module.modules()):
        return module
    copied = copy_of(module)
    for parent in list(copied.modules()):
        for name, part in list(parent.named_children()):
            if type(part) is SparseLinear:
                made = LearnedSum(part)
                _compare(f"{type(parent).__name__}.{name}", part, made)
                setattr(parent, name, made)
    return copied


def _compare(name: str, layer: Any, made: LearnedSum) -> None:
    count = len(layer.weight)
    edges, weights = torch.randint(count, (2, 4 * count)), torch.rand(4 * count, device=layer.weight.device)
    edges = edges.to(layer.weight.device)
    with torch.no_grad():
        want: Tensor = layer(edges, weights)
        if not torch.allclose(want, made(edges, weights), rtol=1e-4, atol=1e-5):
            refuse(f"{name}: SparseLinear gives something else than sums of its weights")
