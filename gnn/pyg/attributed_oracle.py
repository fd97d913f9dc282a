"""PyTorch Geometric's own layers that read attributes of edges, for the second oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from freshet.gnn.declarations import Conv, GINEConv

if TYPE_CHECKING:
    from torch import Tensor

Weights = dict[str, "Tensor"]
Chain = Callable[[Any, Weights, str], Any]
"""Makes a module of dense layers, given the beginning of their weights' names."""


def attributed_conv(layer: Conv, weights: Weights, chain: Chain) -> tuple[Any, Weights]:
    """Return PyG's layer, which is called with edge_attr, and its weights by PyG's names."""
    if isinstance(layer, GINEConv):
        return _gine_conv(layer, weights, chain)
    msg = f"the PyG oracle knows no {type(layer).__name__}"
    raise TypeError(msg)


def _gine_conv(layer: GINEConv, weights: Weights, chain: Chain) -> tuple[Any, Weights]:
    """PyG asks the first module of the chain how wide rows are."""
    import torch
    from torch_geometric import nn as pyg

    nn = chain(layer.nn, weights, "nn.")
    nn.in_channels = layer.in_channels
    edge_dim = layer.edge_channels if layer.edge_linear else None
    module = pyg.GINEConv(torch.nn.Sequential(nn), eps=layer.eps, edge_dim=edge_dim)
    return module, {"eps": module.eps} | {name: w for name, w in weights.items() if name.startswith("lin.")}
