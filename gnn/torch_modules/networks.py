"""Convs whose messages are made of both ends of an edge, or of its attributes (gnn/convs/edge_networks, attributed)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from freshet.gnn.declarations import (
    CGConv,
    EdgeConv,
    FiLMConv,
    GENConv,
    GINEConv,
    GMMConv,
    NNConv,
    PNAConv,
)
from freshet.gnn.torch_modules.aggregates import MessageEdges
from freshet.gnn.torch_modules.rows import Weights, chain, linear


def edge_conv(layer: EdgeConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after an EdgeConv."""
    target = edges.of_targets(own)
    messages = chain(layer.nn, weights, "nn", torch.cat([target, edges.of_sources(x) - target], dim=1))
    return edges.aggregated(layer.aggr, messages)


def film_conv(layer: FiLMConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the messages of a FiLMConv, summed up."""
    width = layer.out_channels
    shift, scale = own[:, width:].split(width, dim=1)
    messages = edges.of_targets(scale) * edges.of_sources(x[:, :width]) + edges.of_targets(shift)
    return edges.aggregated(layer.aggr, chain(layer.act, weights, "act", messages))


def pna_conv(layer: PNAConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a PNAConv."""
    coded = linear(edges.attr, weights, "edge_encoder") if layer.edge_channels else None
    factors, made = _scalers(layer, weights, edges), []
    for t in range(layer.towers):
        mine = own.tensor_split(layer.towers, dim=1)[t] if layer.divide_input else own
        source = x.tensor_split(layer.towers, dim=1)[t] if layer.divide_input else x
        parts = weights[f"pre.{t}.weight"].split(layer.tower_in, dim=1)
        messages = edges.of_targets(functional.linear(mine, parts[0], weights[f"pre.{t}.bias"]))
        messages = messages + edges.of_sources(source @ parts[1].t())
        messages = messages if coded is None else messages + coded @ parts[2].t()
        sums = edges.aggregated(layer.aggregators, chain(layer.pre, weights, f"pre.{t}", messages))
        beside = torch.cat([mine, *(sums * factor for factor in factors)], dim=1)
        made.append(chain(layer.post, weights, f"post.{t}", linear(beside, weights, f"post.{t}.first")))
    return linear(torch.cat(made, dim=1), weights, "lin")


def _scalers(layer: PNAConv, weights: Weights, edges: MessageEdges) -> list[Tensor]:
    """Return what each scaler of the layer multiplies by, (targets, 1) each."""
    count, degree, log_degree = edges.counts()[:, None], weights["average_degree"], weights["average_log_degree"]
    found = {
        "identity": torch.ones_like(count),
        "amplification": (count + 1).log() / log_degree,
        "attenuation": log_degree / (count.clamp(min=1) + 1).log(),
        "linear": count / degree,
        "inverse_linear": degree / count.clamp(min=1),
    }
    return [found[scaler] for scaler in layer.scalers]


def gine_conv(layer: GINEConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a GINEConv."""
    of_edge = linear(edges.attr, weights, "lin") if layer.edge_linear else edges.attr
    sums = edges.aggregated("sum", (edges.of_sources(x) + of_edge).relu())
    return chain(layer.nn, weights, "nn", (1 + layer.eps) * own + sums)


def nn_conv(layer: NNConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after an NNConv."""
    matrices = chain(layer.nn, weights, "nn", edges.attr).view(-1, layer.in_channels, layer.out_channels)
    out = edges.aggregated(layer.aggr, torch.bmm(edges.of_sources(x)[:, None], matrices)[:, 0])
    out = out + linear(own, weights, "lin") if layer.root_weight else out
    return out + weights["bias"] if layer.bias else out


def gmm_conv(layer: GMMConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a GMMConv."""
    apart = edges.attr[:, None] - weights["mu"]
    factor = (-0.5 * apart**2 / (1e-15 + weights["sigma"] ** 2)).sum(dim=2).exp()
    terms = edges.of_sources(x @ weights["g"]).view(-1, layer.kernels, layer.out_channels)
    out = edges.aggregated(layer.aggr, (terms * factor[:, :, None]).sum(dim=1))
    out = out + linear(own, weights, "root")
    return out + weights["bias"] if layer.bias else out


def cg_conv(layer: CGConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a CGConv."""
    read = [edges.of_targets(own), edges.of_sources(x), *([edges.attr] if layer.edge_channels else [])]
    beside = torch.cat(read, dim=1)
    messages = linear(beside, weights, "lin_f").sigmoid() * functional.softplus(linear(beside, weights, "lin_s"))
    out = edges.aggregated(layer.aggr, messages)
    return own + (out * weights["bn.scale"] + weights["bn.shift"] if layer.batch_norm else out)


def gen_conv(layer: GENConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a GENConv."""
    if "lin_src.weight" in weights:
        x, own = linear(x, weights, "lin_src"), linear(own, weights, "lin_dst")
    opened = (
        edges.of_sources(x) + linear(edges.attr, weights, "lin_edge") if layer.edge_channels else edges.of_sources(x)
    )
    messages = opened.relu() + layer.eps
    if layer.aggr == "softmax":
        out = edges.aggregated("sum", messages * edges.softmax(layer.t * messages))
    else:
        out = edges.aggregated(layer.aggr, messages)
    return chain(layer.nn, weights, "nn", own + out)
