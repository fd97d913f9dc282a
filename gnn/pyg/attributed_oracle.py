"""PyTorch Geometric's own layers that read attributes of edges, for the second oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from freshet.gnn.declarations import (
    CGConv,
    Conv,
    GATConv,
    GATv2Conv,
    GENConv,
    GINEConv,
    GMMConv,
    NNConv,
    PNAConv,
    ResGatedGraphConv,
    TransformerConv,
)

if TYPE_CHECKING:
    from torch import Tensor

Weights = dict[str, "Tensor"]
Chain = Callable[[Any, Weights, str], Any]
"""Makes a module of dense layers, given the beginning of their weights' names."""


def ends_of(layer: Conv) -> Any:
    """Return the width of the rows of sources and targets, both where a relation says them apart."""
    target = getattr(layer, "target_channels", None)
    return layer.in_channels if target is None else (layer.in_channels, target)


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
    if isinstance(layer, NNConv | GENConv):
        return _with_nn(layer, weights, chain)
    if isinstance(layer, GMMConv | CGConv):
        return _plain(layer, weights)
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


def _with_nn(layer: NNConv | GENConv, weights: Weights, chain: Chain) -> tuple[Any, Weights]:
    from torch_geometric import nn as pyg

    nn, sizes = chain(layer.nn, weights, "nn."), (layer.in_channels, layer.out_channels)
    if isinstance(layer, NNConv):
        module: Any = pyg.NNConv(*sizes, nn, aggr=layer.aggr, root_weight=layer.root_weight, bias=layer.bias)
    else:
        edge_dim = layer.edge_channels or None
        options = {"aggr": layer.aggr, "t": layer.t, "eps": layer.eps, "bias": layer.bias, "edge_dim": edge_dim}
        module = pyg.GENConv(*sizes, **options)
        module.mlp = nn
        if "lin_edge.weight" in weights:  # PyG has none for attributes that are as wide as the rows
            module.lin_edge = pyg.Linear(layer.edge_channels, layer.out_channels, bias=layer.bias)
    return module, {name: w for name, w in weights.items() if not name.startswith("nn.")}


def _plain(layer: GMMConv | CGConv, weights: Weights) -> tuple[Any, Weights]:
    import torch
    from torch_geometric import nn as pyg

    if isinstance(layer, GMMConv):
        sizes = layer.in_channels, layer.out_channels, layer.edge_channels, layer.kernels
        return pyg.GMMConv(*sizes, **layer.model_dump(include={"aggr", "bias"})), weights
    options = layer.model_dump(include={"aggr", "batch_norm", "bias"})
    module = pyg.CGConv(layer.in_channels, layer.edge_channels, **options)
    named = {name: w for name, w in weights.items() if not name.startswith("bn.")}
    if layer.batch_norm:
        scale, shift = weights["bn.scale"], weights["bn.shift"]
        at_rest = {"running_mean": torch.zeros_like(scale), "running_var": torch.ones_like(scale) - module.bn.eps}
        norm = {"weight": scale, "bias": shift, **at_rest, "num_batches_tracked": torch.tensor(0)}
        named |= {f"bn.{name}": w for name, w in norm.items()}
    return module, named


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

    left_out = {"type", "in_channels", "target_channels", "out_channels", "edge_channels", "mixed_heads"}
    options = layer.model_dump(exclude=left_out)
    if isinstance(layer, TransformerConv):
        del options["add_self_loops"]
    kind = {GATConv: pyg.GATConv, GATv2Conv: pyg.GATv2Conv, TransformerConv: pyg.TransformerConv}[type(layer)]
    module = kind(ends_of(layer), layer.channels, edge_dim=layer.edge_channels or None, **options)
    named = {name: w[None] if name.startswith("att") else w for name, w in weights.items()}
    if isinstance(layer, GATConv) and "lin_dst.weight" in named:
        named["lin_src.weight"] = named.pop("lin.weight")
    if isinstance(layer, GATv2Conv) and layer.share_weights:
        named |= {name.replace("lin_l", "lin_r"): w for name, w in weights.items() if name.startswith("lin_l")}
    if isinstance(layer, TransformerConv):
        named = {name: w for name, w in module.state_dict().items() if name.startswith("lin_skip")} | named
    return module, named
