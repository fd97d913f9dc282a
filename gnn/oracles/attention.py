"""The full pass of attention layers, slow and obvious, with the scales at which their errors are judged.

Part of gnn/oracles/own_scale.py; shares no code with the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from freshet.gnn.declarations import AGNNConv, AttentionConv, GATConv, GATv2Conv, SuperGATConv, TransformerConv
from freshet.gnn.oracles.edges import SortedEdges
from freshet.gnn.oracles.scaled import (
    Scaled,
    activated,
    added,
    exact,
    known,
    linear,
    normalized,
    past_range,
    plus,
    rows_at,
    side_by_side,
    stacked,
    with_bias,
)
from freshet.schema import EdgeValues

Array = np.ndarray
Weights = dict[str, Array]


class Head(NamedTuple):
    """One head of a layer: the values of vertices, and what the score reads of a source and of a target.

    Shapes: value (n, channels); source, target (n, k), k being 1 for GAT; for SuperGAT the values, MX with one more.
    """

    value: Scaled
    source: Scaled
    target: Scaled


class Attended(NamedTuple):
    """A layer that has a part in a softmax, with its weights, the rows of its sources, and its edges."""

    layer: AttentionConv
    weights: Weights
    x: Scaled
    edges: SortedEdges


def attention_conv(
    layer: AttentionConv, weights: Weights, x: Scaled, own: Scaled, edges: SortedEdges, step: float
) -> Scaled:
    """Return the rows after an attention layer, of the rows of sources and of targets."""
    edges = _looped(layer, edges)
    found: list[Scaled] = []
    for h, head in enumerate(_heads_of(layer, weights, x, own)):

        def values(part: SortedEdges, h: int = h, head: Head = head) -> Scaled:
            return added(rows_at(head.value, part.src), _of_edges(layer, weights, h, part))

        by_edge = values if layer.edge.attributes and isinstance(layer, TransformerConv) else None
        found.append(_softmax(head.value, _logits(layer, weights, h, head, edges), edges, step, by_edge))
    return _ended(layer, weights, own, _side_by_side(layer, found), step)


def attention_over(parts: Sequence[Attended], own: Scaled, step: float) -> Scaled:
    """Return the rows that one softmax over the in-edges of several layers makes, and what each adds of targets."""
    first = np.cumsum([0, *(len(part.x.rows) for part in parts)])
    src = np.concatenate([part.edges.src + begin for part, begin in zip(parts, first[:-1], strict=True)])
    dst = np.concatenate([part.edges.dst for part in parts])
    order = np.argsort(dst, kind="stable")
    edges = SortedEdges(parts[0].edges.vertices, src[order], dst[order], EdgeValues.default(len(src)))
    heads = [_heads_of(part.layer, part.weights, part.x, own) for part in parts]
    found: list[Scaled] = []
    for h, of_head in enumerate(zip(*heads, strict=True)):
        logits = [
            _logits(part.layer, part.weights, h, head, part.edges) for part, head in zip(parts, of_head, strict=True)
        ]
        values = stacked([head.value for head in of_head])
        found.append(_softmax(values, Scaled(*(of[order] for of in stacked(logits))), edges, step, None))
    out = _side_by_side(parts[0].layer, found)
    for part in parts:
        out = _ended(part.layer, part.weights, own, out, step)
    return out


def _logits(layer: AttentionConv, weights: Weights, h: int, head: Head, edges: SortedEdges) -> Scaled:
    """The scores of edges in one head, (edges,)."""
    logits, far = np.empty(len(edges.dst)), np.empty(len(edges.dst))
    for vertices, here, part in edges.pieces():
        ends = rows_at(head.source, part.src), rows_at(rows_at(head.target, vertices), part.dst)
        if layer.edge.attributes:
            ends = added(ends[0], _of_edges(layer, weights, h, part)), ends[1]
        logits[here] = _scores(layer, weights, h, *(end.rows for end in ends))
        far[here] = _score_scale(layer, weights, h, *ends)
    return Scaled(logits, far)


def _side_by_side(layer: AttentionConv, found: list[Scaled]) -> Scaled:
    """The results of heads beside each other, or their mean."""
    if layer.concat:
        return side_by_side(found)
    return Scaled(*(np.mean(columns, axis=0) for columns in zip(*found, strict=True)))


def _ended(layer: AttentionConv, weights: Weights, own: Scaled, out: Scaled, step: float) -> Scaled:
    """The result with what the layer makes of the targets themselves."""
    if isinstance(layer, TransformerConv):
        return _with_skip(layer, weights, own, out, step)
    if "res.weight" in weights:
        out = plus(out, linear(own, weights["res.weight"]))
    return with_bias(out, weights["bias"]) if "bias" in weights else out


def _with_skip(layer: TransformerConv, weights: Weights, x: Scaled, out: Scaled, step: float) -> Scaled:
    if not layer.root_weight:
        return out
    skip = linear(x, weights["lin_skip.weight"], weights.get("lin_skip.bias"))
    if not layer.beta:
        return plus(out, skip)
    both = out, skip, plus(out, Scaled(-skip.rows, skip.scale))
    beside = side_by_side(both)
    beta = activated(linear(beside, weights["lin_beta.weight"]), lambda rows: 1 / (1 + np.exp(-rows)), step)
    rows = beta.rows * skip.rows + (1 - beta.rows) * out.rows
    apart = beta.scale * np.abs(skip.rows - out.rows)
    scale = np.hypot(beta.rows * skip.scale, (1 - beta.rows) * out.scale) + apart
    return Scaled(rows, known(np.abs(rows) + scale))


def _of_edges(layer: AttentionConv, weights: Weights, head: int, edges: SortedEdges) -> Scaled:
    """The term of each edge's attributes in the scores of one head: (e, channels), or (e, 1) for GAT."""
    attr = exact(edges.values.full_attr(layer.edge.attributes).astype(np.float64))
    term = linear(attr, np.split(weights["lin_edge.weight"], layer.heads)[head])
    return linear(term, weights["att_edge"][head][None]) if isinstance(layer, GATConv) else term


def _softmax(
    values: Scaled,
    logits: Scaled,
    edges: SortedEdges,
    step: float,
    by_edge: Callable[[SortedEdges], Scaled] | None,
) -> Scaled:
    """Softmax sums over the in-edges: a score that is off takes weight from the others, or gives it to them.

    `by_edge`: makes the values of edges, where those are not the values of their sources.
    """
    alpha = _softmax_at_destinations(logits.rows, edges)
    if by_edge is not None:
        found = []
        for vertices, here, part in edges.pieces():
            one = _softmax_piece(by_edge(part), alpha[here], logits.scale[here], part.of_messages(), step)
            assert len(one.rows) == vertices.stop - vertices.start
            found.append(one)
        return stacked(found)
    rows, size, through = edges.gather("sum", values.rows, values.scale, alpha)
    turned = alpha * np.expm1(2 * step * logits.scale) / step
    away = np.empty_like(rows)
    for vertices, here, part in edges.pieces():
        apart = np.abs(values.rows[part.src] - rows[vertices][part.dst])
        away[vertices] = part.of_messages().sum_at_destinations(apart, turned[here])
    return Scaled(rows, known(past_range(size) + through + away))


def _softmax_piece(values: Scaled, alpha: Array, far: Array, edges: SortedEdges, step: float) -> Scaled:
    """Softmax sums of values that are by edge."""
    rows, size, through = edges.gather("sum", values.rows, values.scale, alpha)
    apart = np.abs(values.rows - rows[edges.dst])
    away = edges.sum_at_destinations(apart, alpha * np.expm1(2 * step * far) / step)
    return Scaled(rows, known(past_range(size) + through + away))


def softmax_by_channel(messages: Scaled, t: float, edges: SortedEdges, step: float) -> Scaled:
    """Softmax sums of messages, whose scores are t times the messages themselves, channel by channel."""
    found = []
    for values in (Scaled(*(of[:, c : c + 1] for of in messages)) for c in range(messages.rows.shape[1])):
        logits = t * values.rows[:, 0]
        far = np.abs(logits) + abs(t) * values.scale[:, 0]
        found.append(_softmax_piece(values, _softmax_at_destinations(logits, edges), far, edges, step))
    return side_by_side(found)


def _looped(layer: AttentionConv, edges: SortedEdges) -> SortedEdges:
    """The edges, with a self-loop at every vertex in place of those that are there, if the layer adds them."""
    if not layer.add_self_loops:
        return edges
    others, every = edges.src != edges.dst, np.arange(edges.vertices)
    src, dst = np.r_[edges.src[others], every], np.r_[edges.dst[others], every]
    return SortedEdges(edges.vertices, src, dst, _with_loops(layer, edges, others))


def _with_loops(layer: AttentionConv, edges: SortedEdges, others: Array) -> EdgeValues:
    """The attributes of these edges, where the layer reads any, and then of the self-loop at each vertex."""
    count = int(others.sum()) + edges.vertices
    if not layer.edge.attributes:
        return EdgeValues.default(count)
    assert isinstance(layer, GATConv | GATv2Conv)
    attr = edges.values.full_attr(layer.edge.attributes)[others].astype(np.float64)
    if layer.fill_value == "mean":
        loops = np.zeros((edges.vertices, layer.edge.attributes))
        np.add.at(loops, edges.dst[others], attr)
        loops /= np.maximum(np.bincount(edges.dst[others], minlength=edges.vertices), 1)[:, None]
    else:
        loops = np.full((edges.vertices, layer.edge.attributes), float(layer.fill_value))
    return EdgeValues(count, {}, np.concatenate([attr, loops]))


def _heads_of(layer: AttentionConv, weights: Weights, x: Scaled, own: Scaled) -> list[Head]:
    """Return the input of each head from sources and targets."""
    if isinstance(layer, AGNNConv):
        direction = normalized(x)
        return [Head(x, direction, direction)]
    if isinstance(layer, GATConv | SuperGATConv):
        every = linear(x, weights["lin.weight"])
        values = _split(every, layer.heads)
        if isinstance(layer, GATConv):
            at_targets = every
            if own is not x or "lin_dst.weight" in weights:
                at_targets = linear(own, weights.get("lin_dst.weight", weights["lin.weight"]))
            sides = (every, at_targets)
            read_by = [[end] * layer.heads if layer.mixed_heads else _split(end, layer.heads) for end in sides]
            ends = zip(values, *read_by, weights["att_src"], weights["att_dst"], strict=True)
            return [Head(value, linear(at, s[None]), linear(to, t[None])) for value, at, to, s, t in ends]
        if layer.attention_type == "SD":
            return [Head(value, value, value) for value in values]
        terms = zip(values, weights["att_l"], weights["att_r"], strict=True)
        return [Head(value, *(side_by_side([value, linear(value, a[None])]) for a in (s, t))) for value, s, t in terms]
    if isinstance(layer, GATv2Conv):
        names = ("lin_l", "lin_l", "lin_l" if layer.share_weights else "lin_r")
    else:
        names = ("lin_value", "lin_key", "lin_query")
    read = zip((x, x, own), names, strict=True)
    made = (linear(end, weights[f"{name}.weight"], weights.get(f"{name}.bias")) for end, name in read)
    return [Head(*parts) for parts in zip(*(_split(one, layer.heads) for one in made), strict=True)]


def _split(x: Scaled, heads: int) -> list[Scaled]:
    return [Scaled(*both) for both in zip(*(np.split(of, heads, axis=1) for of in x), strict=True)]


def _scores(layer: AttentionConv, weights: Weights, head: int, source: Array, target: Array) -> Array:
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


def _softmax_at_destinations(logits: Array, edges: SortedEdges) -> Array:
    """The softmax over the in-edges of every vertex; (e,), in the order of the edges."""
    most = np.full(edges.vertices, -np.inf, logits.dtype)
    np.maximum.at(most, edges.dst, logits)
    weights = np.exp(logits - most[edges.dst])
    total = np.zeros_like(most)
    np.add.at(total, edges.dst, weights)
    return weights / total[edges.dst]


def _score_scale(layer: AttentionConv, weights: Weights, head: int, source: Scaled, target: Scaled) -> Array:
    """The scale of each edge's score, from what it reads of its ends: the magnitude of its terms and theirs."""
    ends = source.rows, target.rows, source.scale, target.scale
    if isinstance(layer, AGNNConv | TransformerConv):
        factor = np.abs(weights["beta"][0]) if isinstance(layer, AGNNConv) else layer.channels**-0.5
        return factor * _dot_scale(*ends)
    if isinstance(layer, SuperGATConv) and layer.attention_type == "SD":
        return layer.channels**-0.5 * _dot_scale(*ends)
    reach = np.hypot(source.scale, target.scale) + np.abs(source.rows) + np.abs(target.rows)
    if isinstance(layer, SuperGATConv):
        sums, dots = np.abs(source.rows + target.rows)[:, -1], _dot_scale(*(rows[:, :-1] for rows in ends))
        return reach[:, -1] + sums * dots / 4  # a gate is at most 1, its slope at most 1/4
    return reach @ np.abs(weights["att"][head]) if isinstance(layer, GATv2Conv) else reach[:, 0]


def _dot_scale(source: Array, target: Array, source_scale: Array, target_scale: Array) -> Array:
    own = np.abs(source * target).sum(axis=1)
    return own + np.sqrt(((source_scale * target) ** 2 + (source * target_scale) ** 2).sum(axis=1))


def softmax_by_head(scores: Scaled, values: Scaled, edges: SortedEdges, step: float) -> Scaled:
    """Softmax sums of the values of edges, with a score for each head, (e, heads)."""
    found = []
    for h, of_head in enumerate(_split(values, scores.rows.shape[1])):
        far = np.abs(scores.rows[:, h]) + scores.scale[:, h]
        alpha = _softmax_at_destinations(scores.rows[:, h], edges)
        found.append(_softmax_piece(of_head, alpha, far, edges, step))
    return side_by_side(found)
