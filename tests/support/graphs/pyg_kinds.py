"""PyTorch Geometric's modules of models with kinds, with the weights of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch_geometric import nn as pyg

from freshet.gnn.declarations import (
    Conv,
    EdgeConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    Propagation,
    SAGEConv,
    TransformerConv,
)
from freshet.gnn.kinds.declarations import HeteroConv
from freshet.gnn.kinds.model import KindsModel
from freshet.kinds_graph import KindsGraph

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": torch.relu,
    "elu": torch.nn.functional.elu,
    "identity": lambda x: x,
}


# PyG has these also where it reads none, or once more where they are shared.
UNREAD = {"gatv2_conv": ("lin_r.weight", "lin_r.bias"), "transformer_conv": ("lin_skip.weight", "lin_skip.bias")}


def hetero_module(model: KindsModel, index: int) -> Any:
    """Return PyG's HeteroConv of a layer."""
    layer = model.layers[index]
    assert isinstance(layer, HeteroConv)
    convs = {}
    for c, one in enumerate(layer.convs):
        convs[model.relations[one.relation].ends] = module_of(model, one.conv, f"layers.{index}.convs.{c}")
    return pyg.HeteroConv(convs, aggr=layer.aggr).double().eval()


def module_of(model: KindsModel, conv: Conv, prefix: str) -> Any:
    """Return PyG's conv with these weights."""
    module = _made(conv)
    state = module.state_dict()
    weights = {name: torch.from_numpy(w.astype("f8")) for name, w in model.weights_of(prefix).items()}
    if isinstance(conv, GATConv) and "lin_dst.weight" in weights:
        weights["lin_src.weight"] = weights.pop("lin.weight")
    taken = {name: weights[name].reshape(state[name].shape) for name in state if name in weights}
    assert taken.keys() == weights.keys(), (sorted(state), sorted(weights))
    missing = module.double().load_state_dict(taken, strict=False).missing_keys
    assert set(missing) <= {"eps", *UNREAD.get(conv.type, ())}, missing
    return module


def _made(conv: Conv) -> Any:
    target = getattr(conv, "target_channels", None)
    width: Any = conv.in_channels if target is None else (conv.in_channels, target)
    out = conv.out_channels
    if isinstance(conv, SAGEConv):
        aggr = conv.aggr if isinstance(conv.aggr, str) else list(conv.aggr)
        return pyg.SAGEConv(width, out, aggr, conv.normalize, conv.root_weight, conv.project, bias=conv.bias)
    if isinstance(conv, GCNConv):
        given = {name: getattr(conv, name) for name in ("aggr", "improved", "add_self_loops", "normalize", "bias")}
        return pyg.GCNConv(width, out, **given)
    if isinstance(conv, Propagation):
        return pyg.LGConv(conv.normalize, aggr=conv.aggr)
    if isinstance(conv, GraphConv):
        return pyg.GraphConv(width, out, conv.aggr, conv.bias)
    if isinstance(conv, GATConv | GATv2Conv | TransformerConv):
        given = {"heads": conv.heads, "concat": conv.concat, "edge_dim": conv.edge_channels or None, "bias": conv.bias}
        if isinstance(conv, TransformerConv):
            return pyg.TransformerConv(width, conv.channels, beta=conv.beta, root_weight=conv.root_weight, **given)
        given |= {"add_self_loops": conv.add_self_loops, "negative_slope": conv.negative_slope}
        given |= {"residual": conv.residual, "fill_value": conv.fill_value}
        if isinstance(conv, GATConv):
            return pyg.GATConv(width, conv.channels, **given)
        return pyg.GATv2Conv(width, conv.channels, share_weights=conv.share_weights, **given)
    assert isinstance(conv, GINConv | GINEConv | EdgeConv)
    nn = torch.nn.Sequential(*map(_dense, conv.nn))
    if isinstance(conv, GINConv):
        return pyg.GINConv(nn, eps=conv.eps, aggr=conv.aggr)
    if isinstance(conv, GINEConv):
        return pyg.GINEConv(nn, eps=conv.eps, edge_dim=conv.edge_channels if conv.edge_linear else None)
    return pyg.EdgeConv(nn, conv.aggr if isinstance(conv.aggr, str) else list(conv.aggr))


def _dense(layer: Any) -> Any:
    if layer.type == "linear":
        return torch.nn.Linear(layer.in_channels, layer.out_channels, layer.bias)
    return torch.nn.ReLU()


def call_hetero(module: Any, model: KindsModel, index: int, x: dict[str, Any], graph: KindsGraph) -> dict[str, Any]:
    """Return what the HeteroConv makes of rows by kind, on a graph; convs get weights and attributes as they read."""
    layer = model.layers[index]
    assert isinstance(layer, HeteroConv)
    edges: dict[Any, Any] = {}
    more: dict[str, dict[Any, Any]] = {"edge_weight_dict": {}, "edge_attr_dict": {}}
    for one in layer.convs:
        relation, found = model.relations[one.relation], graph.edges[one.relation]
        edges[relation.ends] = torch.tensor([found.src, found.dst])
        if getattr(one.conv, "edge_weights", False):
            more["edge_weight_dict"][relation.ends] = torch.from_numpy(found.values.weight.astype("f8"))
        if one.conv.edge.attributes:
            attr = found.values.full_attr(one.conv.edge.attributes).astype("f8")
            more["edge_attr_dict"][relation.ends] = torch.from_numpy(attr)
    return module(x, edges, **{name: given for name, given in more.items() if given})
