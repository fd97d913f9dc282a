"""The full pass of attention layers, slow and obvious, and the scales at which their errors are judged.

Part of gnn/oracles/oracle.py and gnn/oracles/own_scale.py; shares no code with the plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.gnn.declarations import AGNNConv, AttentionConv, GATConv, GATv2Conv, SuperGATConv, TransformerConv
from freshet.gnn.oracles.edges import Edges

Array = np.ndarray
Weights = dict[str, Array]


class Head(NamedTuple):
    """One head of a layer: the values of vertices, and what the score reads of a source and of a target.

    Shapes: value (n, channels); source, target (n, k), k being 1 for GAT; for SuperGAT the values, MX with one more.
    """

    value: Array
    source: Array
    target: Array


def attention_conv(layer: AttentionConv, weights: Weights, x: Array, edges: Edges) -> Array:
    """Return the rows after an attention layer, in the dtype of x."""
    edges = looped(layer, edges)
    found = []
    for h, head in enumerate(heads_of(layer, weights, x)):
        alpha = softmax_at_destinations(
            scores(layer, weights, h, head.source[edges.src], head.target[edges.dst]), edges
        )
        found.append(edges.sum_at_destinations(head.value, alpha))
    rows = np.concatenate(found, axis=1) if layer.concat else sum(found) / np.asarray(layer.heads, x.dtype)
    if isinstance(layer, TransformerConv):
        return _with_skip(layer, weights, x, rows)
    if isinstance(layer, GATConv | GATv2Conv) and layer.residual:
        rows = rows + x @ weights["res.weight"].T
    return rows + weights["bias"] if "bias" in weights else rows


def _with_skip(layer: TransformerConv, weights: Weights, x: Array, rows: Array) -> Array:
    if not layer.root_weight:
        return rows
    skip = x @ weights["lin_skip.weight"].T + weights.get("lin_skip.bias", np.zeros(1, x.dtype))
    if not layer.beta:
        return rows + skip
    beta = 1 / (1 + np.exp(-(np.concatenate([rows, skip, rows - skip], axis=1) @ weights["lin_beta.weight"].T)))
    return beta * skip + (1 - beta) * rows


def looped(layer: AttentionConv, edges: Edges) -> Edges:
    """Return the edges, with a self-loop at every vertex in place of those that are there, if the layer adds them."""
    if not layer.add_self_loops:
        return edges
    others, every = edges.src != edges.dst, np.arange(edges.vertices)
    src, dst = np.r_[edges.src[others], every], np.r_[edges.dst[others], every]
    return Edges(edges.vertices, src, dst, np.ones(len(src), edges.weight.dtype))


def heads_of(layer: AttentionConv, weights: Weights, x: Array) -> list[Head]:
    """Return what each head reads of vertices."""

    def linear(name: str) -> Array:
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", np.zeros(1, x.dtype))

    if isinstance(layer, AGNNConv):
        direction = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        return [Head(x, direction, direction)]
    if isinstance(layer, GATConv):
        values = np.split(x @ weights["lin.weight"].T, layer.heads, axis=1)
        terms = zip(values, weights["att_src"], weights["att_dst"], strict=True)
        return [Head(value, value @ s[:, None], value @ t[:, None]) for value, s, t in terms]
    if isinstance(layer, SuperGATConv):
        values = np.split(x @ weights["lin.weight"].T, layer.heads, axis=1)
        if layer.attention_type == "SD":
            return [Head(value, value, value) for value in values]
        terms = zip(values, weights["att_l"], weights["att_r"], strict=True)
        return [Head(value, *(np.c_[value, value @ a] for a in (s, t))) for value, s, t in terms]
    if isinstance(layer, GATv2Conv):
        names = ("lin_l", "lin_l", "lin_l" if layer.share_weights else "lin_r")
    else:
        names = ("lin_value", "lin_key", "lin_query")
    return [
        Head(*parts) for parts in zip(*(np.split(linear(name), layer.heads, axis=1) for name in names), strict=True)
    ]


def scores(layer: AttentionConv, weights: Weights, head: int, source: Array, target: Array) -> Array:
    """Return the score of each edge, given what it reads of its ends; (e,)."""
    if isinstance(layer, AGNNConv):
        return weights["beta"] * (source * target).sum(axis=1)
    if isinstance(layer, TransformerConv):
        return (source * target).sum(axis=1) / np.sqrt(np.asarray(layer.channels, source.dtype))
    if isinstance(layer, SuperGATConv) and layer.attention_type == "MX":
        dots = (source[:, :-1] * target[:, :-1]).sum(axis=1, keepdims=True)
        both = (source + target)[:, -1:] / (1 + np.exp(-dots))
    elif isinstance(layer, SuperGATConv):
        both = (source * target).sum(axis=1, keepdims=True) / np.sqrt(np.asarray(layer.channels, source.dtype))
    else:
        both = source + target
    assert isinstance(layer, GATConv | GATv2Conv | SuperGATConv)
    both = np.where(both > 0, both, np.asarray(layer.negative_slope, both.dtype) * both)
    return both @ weights["att"][head] if isinstance(layer, GATv2Conv) else both[:, 0]


def softmax_at_destinations(logits: Array, edges: Edges) -> Array:
    """Return the softmax over the in-edges of every vertex; (e,), in the order of the edges."""
    most = np.full(edges.vertices, -np.inf, logits.dtype)
    np.maximum.at(most, edges.dst, logits)
    weights = np.exp(logits - most[edges.dst])
    total = np.zeros_like(most)
    np.add.at(total, edges.dst, weights)
    return weights / total[edges.dst]


def score_scale(layer: AttentionConv, weights: Weights, head: int, of: Head, scale: Head, edges: Edges) -> Array:
    """Return the scale of each edge's score, from those of what it reads: the magnitude of its terms and theirs.

    `of` has the actual values, `scale` the scales of source and target.
    """
    source, target = of.source[edges.src], of.target[edges.dst]
    far = scale.source[edges.src], scale.target[edges.dst]
    if isinstance(layer, AGNNConv | TransformerConv):
        factor = np.abs(weights["beta"][0]) if isinstance(layer, AGNNConv) else layer.channels**-0.5
        return factor * _dot_scale(source, target, *far)
    if isinstance(layer, SuperGATConv) and layer.attention_type == "SD":
        return layer.channels**-0.5 * _dot_scale(source, target, *far)
    if isinstance(layer, SuperGATConv):
        sums, reach = np.abs(source + target)[:, -1], np.hypot(*far) + np.abs(source) + np.abs(target)
        dots = _dot_scale(*(rows[:, :-1] for rows in (source, target, *far)))
        return reach[:, -1] + sums * dots / 4  # a gate is at most 1, its slope at most 1/4
    reach = np.hypot(*far) + np.abs(source) + np.abs(target)
    if isinstance(layer, GATv2Conv):
        return reach @ np.abs(weights["att"][head])
    return reach[:, 0]


def _dot_scale(source: Array, target: Array, source_scale: Array, target_scale: Array) -> Array:
    own = np.abs(source * target).sum(axis=1)
    return own + np.sqrt(((source_scale * target) ** 2 + (source * target_scale) ** 2).sum(axis=1))


def head_scales(layer: AttentionConv, weights: Weights, x: Array, x_scale: Array) -> list[Head]:
    """Return the scales of what each head reads of vertices."""

    def linear(name: str, rows: Array, scale: Array) -> Array:
        weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias", np.zeros(1))
        return np.abs(rows) @ np.abs(weight).T + np.sqrt(scale**2 @ (weight**2).T) + np.abs(bias)

    if isinstance(layer, AGNNConv):
        length = np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        direction = np.abs(x / length)
        far = direction + (x_scale + direction * np.linalg.norm(direction * x_scale, axis=1, keepdims=True)) / length
        return [Head(x_scale, far, far)]
    if isinstance(layer, GATConv | SuperGATConv):
        scales = np.split(linear("lin", x, x_scale), layer.heads, axis=1)
        if isinstance(layer, SuperGATConv) and layer.attention_type == "SD":
            return [Head(scale, scale, scale) for scale in scales]
        values = np.split(x @ weights["lin.weight"].T, layer.heads, axis=1)
        mixed, found = isinstance(layer, SuperGATConv), []
        terms = (weights[name] for name in (("att_l", "att_r") if mixed else ("att_src", "att_dst")))
        for value, scale, s, t in zip(values, scales, *terms, strict=True):
            of = [np.abs(value) @ np.abs(a)[:, None] + np.sqrt(scale**2 @ a[:, None] ** 2) for a in (s, t)]
            found.append(Head(scale, *(np.c_[scale, one] if mixed else one for one in of)))
        return found
    if isinstance(layer, GATv2Conv):
        names = ("lin_l", "lin_l", "lin_l" if layer.share_weights else "lin_r")
    else:
        names = ("lin_value", "lin_key", "lin_query")
    split = (np.split(linear(name, x, x_scale), layer.heads, axis=1) for name in names)
    return [Head(*parts) for parts in zip(*split, strict=True)]
