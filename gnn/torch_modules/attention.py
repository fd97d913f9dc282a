"""Convs that weigh their sources by a softmax (gnn/convs/attention.py), one or several of them together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from freshet.gnn.declarations import (
    AGNNConv,
    AttentionConv,
    GATConv,
    GATv2Conv,
    SuperGATConv,
    TransformerConv,
)
from freshet.gnn.torch_modules.aggregates import MessageEdges
from freshet.gnn.torch_modules.rows import Weights, linear


class AttendingConv(NamedTuple):
    """A conv that has a part in a softmax, with its weights, the rows of its sources, and its edges."""

    layer: AttentionConv
    weights: Weights
    x: Tensor
    edges: MessageEdges


def attention_conv(layer: AttentionConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a conv of attention."""
    edges = _with_loops(layer, edges) if layer.add_self_loops else edges
    return attention_over([AttendingConv(layer, weights, x, edges)], own)


def attention_over(parts: Sequence[AttendingConv], own: Tensor) -> Tensor:
    """Return the rows that one softmax over the in-edges of several convs makes, and what each adds of targets."""
    first = parts[0].layer
    scores, values = (torch.cat(of) for of in zip(*(_scored(part, own) for part in parts), strict=True))
    edges = parts[0].edges
    edges = edges._replace(dst=torch.cat([part.edges.dst for part in parts])) if len(parts) > 1 else edges
    by_head = edges.aggregated("sum", (edges.softmax(scores)[..., None] * values).flatten(1))
    out = by_head if first.concat else by_head.view(-1, first.heads, first.channels).mean(dim=1)
    for part in parts:
        out = _ended(part, own, out)
    return out


def _with_loops(layer: AttentionConv, edges: MessageEdges) -> MessageEdges:
    """Return the edges, with a self-loop at every vertex in place of those that are there."""
    others = edges.with_loops(None, "drop")
    weight = others.weight.new_ones(edges.targets)
    if getattr(layer, "fill_value", 0.0) == "mean":
        return others.with_each_loop(weight, others.aggregated("mean", others.attr))
    fill = float(getattr(layer, "fill_value", 0.0))
    return others.with_each_loop(weight, others.attr.new_full((edges.targets, others.attr.shape[1]), fill))


def _scored(part: AttendingConv, own: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores of edges, (e, heads), and their values, (e, heads, channels)."""
    layer, weights, x, edges = part
    if isinstance(layer, AGNNConv):
        unit = functional.normalize(x)
        scores = weights["beta"] * (edges.of_sources(unit) * edges.of_targets(functional.normalize(own))).sum(
            dim=1, keepdim=True
        )
        return scores, edges.of_sources(x)[:, None]
    heads = (-1, layer.heads, layer.channels)
    of_edge: Any = linear(edges.attr, weights, "lin_edge").view(heads) if layer.edge.attributes else 0
    if isinstance(layer, GATConv):
        return _additive(layer, part, own, of_edge)
    if isinstance(layer, GATv2Conv):
        source = edges.of_sources(linear(x, weights, "lin_l").view(heads))
        target = edges.of_targets(linear(own, weights, "lin_l" if layer.share_weights else "lin_r").view(heads))
        both = functional.leaky_relu(source + target + of_edge, layer.negative_slope)
        return (both * weights["att"]).sum(dim=-1), source
    if isinstance(layer, TransformerConv):
        key, value = (
            edges.of_sources(linear(x, weights, name).view(heads)) + of_edge for name in ("lin_key", "lin_value")
        )
        query = edges.of_targets(linear(own, weights, "lin_query").view(heads))
        return (query * key).sum(dim=-1) / layer.channels**0.5, value
    assert isinstance(layer, SuperGATConv)  # there is no other kind
    return _by_dots(layer, part, own)


def _additive(layer: GATConv, part: AttendingConv, own: Tensor, of_edge: Any) -> tuple[Tensor, Tensor]:
    weights, edges, heads = part.weights, part.edges, (-1, layer.heads, layer.channels)
    value = linear(part.x, weights, "lin")
    is_same = own is part.x and "lin_dst.weight" not in weights
    target = value if is_same else linear(own, weights, "lin_dst" if "lin_dst.weight" in weights else "lin")
    if layer.mixed_heads:
        ends = value @ weights["att_src"].t(), target @ weights["att_dst"].t()
    else:
        ends = (
            (value.view(heads) * weights["att_src"]).sum(dim=-1),
            (target.view(heads) * weights["att_dst"]).sum(dim=-1),
        )
    both = edges.of_sources(ends[0]) + edges.of_targets(ends[1])
    both = both + (of_edge * weights["att_edge"]).sum(dim=-1) if layer.edge.attributes else both
    return functional.leaky_relu(both, layer.negative_slope), edges.of_sources(value.view(heads))


def _by_dots(layer: SuperGATConv, part: AttendingConv, own: Tensor) -> tuple[Tensor, Tensor]:
    weights, edges, heads = part.weights, part.edges, (-1, layer.heads, layer.channels)
    value = linear(part.x, weights, "lin").view(heads)
    target = value if own is part.x else linear(own, weights, "lin").view(heads)
    source, at = edges.of_sources(value), edges.of_targets(target)
    dots = (source * at).sum(dim=-1)
    if layer.attention_type == "SD":
        scores = dots / layer.channels**0.5
    else:
        ends = edges.of_sources((value * weights["att_l"]).sum(dim=-1)) + edges.of_targets(
            (target * weights["att_r"]).sum(dim=-1)
        )
        scores = ends * dots.sigmoid()
    return functional.leaky_relu(scores, layer.negative_slope), source


def _ended(part: AttendingConv, own: Tensor, out: Tensor) -> Tensor:
    """Return the rows with what a conv makes of the targets themselves."""
    layer, weights = part.layer, part.weights
    if isinstance(layer, TransformerConv):
        if not layer.root_weight:
            return out
        skip = linear(own, weights, "lin_skip")
        if not layer.beta:
            return out + skip
        gate = linear(torch.cat([out, skip, out - skip], dim=1), weights, "lin_beta").sigmoid()
        return gate * skip + (1 - gate) * out
    out = out + linear(own, weights, "res") if "res.weight" in weights else out
    return out + weights["bias"] if "bias" in weights else out
