"""PyTorch Geometric's own layers that read attributes of edges, for the second oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from freshet.gnn.declarations import Conv, GATConv, GATv2Conv, GINEConv, PNAConv, ResGatedGraphConv, TransformerConv

if TYPE_CHECKING:
    from torch import Tensor

Weights = dict[str, "Tensor"]
Chain = Callable[[Any, Weights, str], Any]
"""Makes a module of dense layers, given the beginning of their weights' names."""


def attributed_conv(layer: Conv, weights: Weights, chain: Chain) -> tuple[Any, Weights]:
    """Return PyG's layer, which is called with edge_attr, and its weights by PyG's names."""
    if isinstance(layer, GINEConv):
        return _gine_conv(layer, weights, chain)
    if isinstance(layer, PNAConv):
        return pna_conv(layer, weights, chain)
    if isinstance(layer, ResGatedGraphConv):
        return _gated_conv(layer), weights
    if isinstance(layer, GATConv | GATv2Conv | TransformerConv):
        return attention_conv(layer, weights)
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


def _gated_conv(layer: ResGatedGraphConv) -> Any:
    from torch_geometric import nn as pyg

    options = layer.model_dump(include={"root_weight", "bias"})
    return pyg.ResGatedGraphConv(layer.in_channels, layer.out_channels, edge_dim=layer.edge_channels, **options)


def pna_conv(layer: PNAConv, weights: Weights, chain: Chain) -> tuple[Any, Weights]:
    """Return PyG's layer and its weights by PyG's names."""
    import torch
    from torch_geometric import nn as pyg

    module = pyg.PNAConv(
        layer.in_channels,
        layer.out_channels,
        list(layer.aggregators),
        list(layer.scalers),
        torch.ones(2),
        towers=layer.towers,
        divide_input=layer.divide_input,
        edge_dim=layer.edge_channels or None,
    )
    named = {name: w for name, w in weights.items() if name.startswith(("lin.", "edge_encoder."))}
    named["aggr_module.avg_deg_lin"] = weights["average_degree"]
    named["aggr_module.avg_deg_log"] = weights["average_log_degree"]
    for t in range(layer.towers):
        module.pre_nns[t].append(chain(layer.pre, weights, f"pre.{t}."))
        module.post_nns[t].append(chain(layer.post, weights, f"post.{t}."))
        for kind in ("weight", "bias"):
            named[f"pre_nns.{t}.0.{kind}"] = weights[f"pre.{t}.{kind}"]
            named[f"post_nns.{t}.0.{kind}"] = weights[f"post.{t}.first.{kind}"]
    return module, named


def attention_conv(layer: GATConv | GATv2Conv | TransformerConv, weights: Weights) -> tuple[Any, Weights]:
    """Return PyG's layer and its weights by PyG's names."""
    from torch_geometric import nn as pyg

    options = layer.model_dump(exclude={"type", "in_channels", "out_channels", "edge_channels"})
    if isinstance(layer, TransformerConv):
        del options["add_self_loops"]
    kind = {GATConv: pyg.GATConv, GATv2Conv: pyg.GATv2Conv, TransformerConv: pyg.TransformerConv}[type(layer)]
    module = kind(layer.in_channels, layer.channels, edge_dim=layer.edge_channels or None, **options)
    named = {name: w[None] if name.startswith("att") else w for name, w in weights.items()}
    if isinstance(layer, GATv2Conv) and layer.share_weights:
        named |= {name.replace("lin_l", "lin_r"): w for name, w in weights.items() if name.startswith("lin_l")}
    if isinstance(layer, TransformerConv):
        named = {name: w for name, w in module.state_dict().items() if name.startswith("lin_skip")} | named
    return module, named
