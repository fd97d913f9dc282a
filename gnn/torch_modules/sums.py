"""Convs whose messages are rows of sources, scaled, gated or as they are (gnn/convs/sums.py, degree_scaled.py)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from freshet.gnn.declarations import (
    DegreeScaledConv,
    GINConv,
    Laplacian,
    PinSAGEConv,
    ResGatedGraphConv,
    RootedConv,
    SAGEConv,
)
from freshet.gnn.torch_modules.aggregates import MessageEdges
from freshet.gnn.torch_modules.rows import Weights, chain, linear


def rooted_conv(layer: RootedConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a GraphConv or a CommNetConv."""
    messages = edges.of_sources(x) * edges.weight[:, None] if layer.edge_weights else edges.of_sources(x)
    return linear(edges.aggregated(layer.aggr, messages), weights, "lin_rel") + linear(own, weights, "lin_root")


def sage_conv(layer: SAGEConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a SAGEConv."""
    source = linear(x, weights, "lin").relu() if layer.project else x
    made = linear(edges.aggregated(layer.aggr, edges.of_sources(source)), weights, "lin_l")
    made = made + linear(own, weights, "lin_r") if layer.root_weight else made
    return functional.normalize(made) if layer.normalize else made


def gin_conv(layer: GINConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a GINConv."""
    return chain(layer.nn, weights, "nn", (1 + layer.eps) * own + edges.aggregated(layer.aggr, edges.of_sources(x)))


def pin_sage_conv(layer: PinSAGEConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a PinSAGEConv."""
    factor = edges.weight if layer.edge_weights else torch.ones_like(edges.weight)
    total = edges.totals(factor)[:, None]
    messages = edges.of_sources(linear(x, weights, "lin_neighbour").relu()) * factor[:, None]
    mean = edges.aggregated("sum", messages) / total.masked_fill(total == 0, torch.inf)
    return linear(torch.cat([own, mean], dim=1), weights, "lin")


def gated_conv(layer: ResGatedGraphConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a ResGatedGraphConv."""

    def made(name: str, rows: Tensor, ends: Tensor) -> Tensor:
        weight, read = weights[f"{name}.weight"], layer.in_channels
        of_ends = functional.linear(rows, weight[:, :read], weights[f"{name}.bias"]).index_select(0, ends)
        return of_ends + edges.attr @ weight[:, read:].t() if layer.edge_channels else of_ends

    gates = (made("lin_key", own, edges.dst) + made("lin_query", x, edges.src)).sigmoid()
    out = edges.aggregated("sum", gates * made("lin_value", x, edges.src))
    out = out + linear(own, weights, "lin_skip") if layer.root_weight else out
    return out + weights["bias"] if layer.bias else out


def degree_scaled_conv(
    layer: DegreeScaledConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges
) -> Tensor:
    """Return the rows after a GCNConv or a Propagation."""
    edges, factor = scaled(layer, edges)
    source = linear(x, weights, "lin") if "lin.weight" in weights else x
    kind: str = layer.aggr
    if kind == "weighted_mean":
        total = edges.totals(factor)
        kind, factor = "sum", factor / edges.of_targets(total.masked_fill(total == 0, torch.inf))
    made = edges.aggregated(kind, edges.of_sources(source) * factor[:, None])
    return made + weights["bias"] if "bias" in weights else made


def scaled(layer: DegreeScaledConv, edges: MessageEdges) -> tuple[MessageEdges, Tensor]:
    """Return the edges with the self-loops that the layer adds, and what it multiplies each message by."""
    if not layer.edge_weights:
        edges = edges._replace(weight=torch.ones_like(edges.weight))
    edges = edges.with_loops(layer.loop_weight, layer.loops_there, keeps=layer.edge_weights)
    factor = edges.weight
    if layer.degrees == "both":
        ones = torch.ones_like(factor)
        into, out = edges.totals(ones).clamp(min=1), edges.totals_of_sources(ones).clamp(min=1)
        return edges, factor / (edges.of_sources(edges.at_sources(out)) * edges.of_targets(into)).sqrt()
    if layer.normalize:
        by_out = layer.degrees == "out"
        degree = edges.totals_of_sources(torch.ones_like(factor)) if by_out else edges.totals(factor)
        scale = _finite(degree**-0.5)
        factor = edges.of_sources(edges.at_sources(scale)) * factor * edges.of_targets(scale)
    return edges, factor


def _finite(scale: Tensor) -> Tensor:
    return scale.masked_fill(scale.isinf(), 0)


def laplacian(layer: Laplacian, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a hop of ChebConv."""
    edges, weight, diagonal = scaled_laplacian(layer, edges)
    times = 2 / layer.lambda_max
    neighbours = edges.aggregated("sum", edges.of_sources(x) * weight[:, None])
    return (times * diagonal - 1)[:, None] * own - times * neighbours


def scaled_laplacian(layer: Laplacian, edges: MessageEdges) -> tuple[MessageEdges, Tensor, Tensor]:
    """Return the edges that are messages, what multiplies each message, and what multiplies each target's own row."""
    edges = edges.with_loops(None, "drop")
    weight = edges.weight if layer.edge_weights else torch.ones_like(edges.weight)
    degree = edges.totals_of_sources(weight)
    diagonal = degree if layer.normalization == "none" else torch.ones_like(degree)
    if layer.normalization == "sym":
        scale = _finite(degree**-0.5)
        weight = edges.of_sources(edges.at_sources(scale)) * weight * edges.of_targets(scale)
    elif layer.normalization == "rw":
        weight = edges.of_sources(edges.at_sources(_finite(1 / degree))) * weight
    return edges, weight, diagonal
