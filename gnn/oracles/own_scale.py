"""The full pass in float64, and for every value the scale at which its error is judged.

An error relative to a value itself says nothing where large terms cancel, and one relative to the largest value of the
graph hides what happens to the small ones. So the scale of a value is the magnitude of what was summed to get it: the
sum of the absolute terms, with the actual values of the step before, and what the step makes of the scales of those
values. Scales add up as independent errors do: by the root of the sum of their squares.

A value that may leave float32's range on the way has an infinite scale: infinity or NaN there is no error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gnn.declarations import (
    AttentionConv,
    BatchNorm,
    Conv,
    DegreeScaledConv,
    EdgeConv,
    GINConv,
    Identity,
    Layer,
    Linear,
    PinSAGEConv,
    PNAConv,
    ResGatedGraphConv,
    RootedConv,
    SAGEConv,
    TransformerConv,
)
from gnn.model import Model
from gnn.oracles import attention, oracle
from gnn.oracles.edges import Edges
from gnn.rows import scales
from gnn.rows.jumps import Join, Keep

Array = np.ndarray
Weights = dict[str, Array]

FLOAT32_MAX = float(np.finfo(np.float32).max)
_TOLERANCE_MIN = 1e-7


class Scaled(NamedTuple):
    """Rows, and how large an error of 1 is in each value.

    Shapes: rows, scale (n, width) float64
    """

    rows: Array
    scale: Array


def forward(
    model: Model, x: Array, src: Array, dst: Array, weight: Array | None = None, *, tolerance: float = 1e-4
) -> Scaled:
    """Return the embeddings, as `gnn.oracles.oracle.forward`, and the scale of each of their values.

    `tolerance` is how large an error is allowed: an activation gets as its scale what such an error of its input makes
    of its output.

    Invariant: inputs within the tolerance of their scales lead to outputs within it, save for the rounding of sums.
    """
    weight = np.ones(len(src)) if weight is None else weight.astype(np.float64)
    edges = Edges(len(x), np.asarray(src, np.int64), np.asarray(dst, np.int64), weight)
    given = x.astype(np.float64)
    at, step = Scaled(given, np.zeros_like(given)), max(tolerance, _TOLERANCE_MIN)
    kept: dict[str, Scaled] = {}
    with np.errstate(all="ignore"):
        for i, layer in enumerate(model.layers):
            weights = {name: w.astype(np.float64) for name, w in model.weights_of(f"layers.{i}").items()}
            if isinstance(layer, Keep):
                kept[layer.name] = at
            elif isinstance(layer, Join):
                at = _join(layer, layer.picked(at, kept), step)
            elif isinstance(layer, Conv):
                at = _conv(layer, weights, at, edges, step)
            else:
                at = _dense(layer, weights, at, step)
    return at


def _conv(layer: Conv, weights: Weights, x: Scaled, edges: Edges, step: float) -> Scaled:
    if isinstance(layer, RootedConv):
        sums = _aggregated(layer.aggr, x, edges, edges.weight if layer.edge_weights else None, step)
        own = _linear(x, weights["lin_root.weight"])
        return _added(_linear(sums, weights["lin_rel.weight"], weights.get("lin_rel.bias")), own)
    if isinstance(layer, SAGEConv):
        return _sage_conv(layer, weights, x, edges, step)
    if isinstance(layer, PinSAGEConv):
        return _pin_sage_conv(layer, weights, x, edges, step)
    if isinstance(layer, DegreeScaledConv):
        return _gcn_conv(layer, weights, x, edges)
    if isinstance(layer, GINConv):
        at = _added(_multiplied(x, np.array(1 + layer.eps)), _gathered(x, edges, None))
        return _chain(layer.nn, weights, "nn.", at, step)
    if isinstance(layer, PNAConv):
        return _pna_conv(layer, weights, x, edges, step)
    if isinstance(layer, EdgeConv):
        return _edge_conv(layer, weights, x, edges, step)
    if isinstance(layer, ResGatedGraphConv):
        return _gated_conv(layer, weights, x, edges, step)
    if isinstance(layer, AttentionConv):
        return _attention_conv(layer, weights, x, edges, step)
    msg = f"the oracle knows no {type(layer).__name__}"
    raise TypeError(msg)


def _sage_conv(layer: SAGEConv, weights: Weights, x: Scaled, edges: Edges, step: float) -> Scaled:
    source = x
    if layer.project:
        source = _activated(
            _linear(x, weights["lin.weight"], weights["lin.bias"]), lambda rows: np.maximum(rows, 0), step
        )
    kinds = (layer.aggr,) if isinstance(layer.aggr, str) else layer.aggr
    found = [_aggregated(kind, source, edges, None, step) for kind in kinds]
    beside = _beside(found)
    at = _linear(beside, weights["lin_l.weight"], weights.get("lin_l.bias"))
    if layer.root_weight:
        at = _added(at, _linear(x, weights["lin_r.weight"]))
    return _normalized(at) if layer.normalize else at


def _pin_sage_conv(layer: PinSAGEConv, weights: Weights, x: Scaled, edges: Edges, step: float) -> Scaled:
    source = _linear(x, weights["lin_neighbour.weight"], weights["lin_neighbour.bias"])
    factor, total = oracle.importances(layer, edges)
    sums = _gathered(_activated(source, lambda rows: np.maximum(rows, 0), step), edges, factor)
    mean = Scaled(sums.rows / total[:, None], sums.scale / np.abs(total)[:, None])
    return _linear(_beside([x, mean]), weights["lin.weight"], weights["lin.bias"])


def _pna_conv(layer: PNAConv, weights: Weights, x: Scaled, edges: Edges, step: float) -> Scaled:
    made, factors = [], oracle.degree_factors(layer, weights, edges)
    towers = (oracle.tower_rows(layer, values) for values in x)
    for t, mine in enumerate(map(Scaled, *towers)):
        halves = np.split(weights[f"pre.{t}.weight"], 2, axis=1)
        target, source = _linear(mine, halves[0], weights[f"pre.{t}.bias"]), _linear(mine, halves[1])
        found = []
        for vertices, _, part in edges.pieces():
            messages, by_edge = _added(_at(_at(target, vertices), part.dst), _at(source, part.src)), part.of_messages()
            messages = _chain(layer.pre, weights, f"pre.{t}.", messages, step)
            found.append(_beside([_aggregated(kind, messages, by_edge, None, step) for kind in layer.aggregators]))
        scaled = [_multiplied(_below(found), factor) for factor in factors]
        at = _linear(_beside([mine, *scaled]), weights[f"post.{t}.first.weight"], weights[f"post.{t}.first.bias"])
        made.append(_chain(layer.post, weights, f"post.{t}.", at, step))
    return _linear(_beside(made), weights["lin.weight"], weights["lin.bias"])


def _edge_conv(layer: EdgeConv, weights: Weights, x: Scaled, edges: Edges, step: float) -> Scaled:
    """The difference of both ends may be taken of their terms, which are as large as the ends."""
    found, kinds = [], (layer.aggr,) if isinstance(layer.aggr, str) else layer.aggr
    for vertices, _, part in edges.pieces():
        target, source = _at(_at(x, vertices), part.dst), _at(x, part.src)
        apart = _added(source, Scaled(-target.rows, target.scale))
        apart = Scaled(apart.rows, apart.scale + np.abs(source.rows) + np.abs(target.rows))
        messages = _chain(layer.nn, weights, "nn.", _beside([target, apart]), step)
        found.append(_beside([_aggregated(kind, messages, part.of_messages(), None, step) for kind in kinds]))
    return _below(found)


def _gated_conv(layer: ResGatedGraphConv, weights: Weights, x: Scaled, edges: Edges, step: float) -> Scaled:
    names = ("lin_key", "lin_query", "lin_value")
    key, query, value = (_linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names)
    found = []
    for vertices, _, part in edges.pieces():
        opened = _added(_at(_at(key, vertices), part.dst), _at(query, part.src))
        gates, values = _activated(opened, lambda rows: 1 / (1 + np.exp(-rows)), step), _at(value, part.src)
        rows, off = gates.rows * values.rows, np.hypot(gates.rows * values.scale, gates.scale * values.rows)
        found.append(_gathered(Scaled(rows, _known(np.abs(rows) + off)), part.of_messages(), None))
    out = _below(found)
    if layer.root_weight:
        out = _added(out, _linear(x, weights["lin_skip.weight"]))
    return _with_bias(out, weights["bias"]) if layer.bias else out


def _gcn_conv(layer: DegreeScaledConv, weights: Weights, x: Scaled, edges: Edges) -> Scaled:
    edges, factor = oracle.gcn_factors(layer, edges)
    at = _gathered(_linear(x, weights["lin.weight"]) if "lin.weight" in weights else x, edges, factor)
    return _with_bias(at, weights["bias"]) if "bias" in weights else at


def _attention_conv(layer: AttentionConv, weights: Weights, x: Scaled, edges: Edges, step: float) -> Scaled:
    edges = attention.looped(layer, edges)
    rows = attention.heads_of(layer, weights, x.rows)
    scales = attention.head_scales(layer, weights, x.rows, x.scale)
    found: list[Scaled] = []
    for h, (of, scale) in enumerate(zip(rows, scales, strict=True)):
        logits = attention.scores(layer, weights, h, of.source[edges.src], of.target[edges.dst])
        far = attention.score_scale(layer, weights, h, of, scale, edges)
        found.append(_softmax(Scaled(of.value, scale.value), Scaled(logits, far), edges, step))
    if layer.concat:
        out = _beside(found)
    else:
        out = Scaled(*(np.mean(columns, axis=0) for columns in zip(*found, strict=True)))
    if isinstance(layer, TransformerConv):
        return _with_skip(layer, weights, x, out, step)
    if "res.weight" in weights:
        out = _added(out, _linear(x, weights["res.weight"]))
    return _with_bias(out, weights["bias"]) if "bias" in weights else out


def _with_skip(layer: TransformerConv, weights: Weights, x: Scaled, out: Scaled, step: float) -> Scaled:
    if not layer.root_weight:
        return out
    skip = _linear(x, weights["lin_skip.weight"], weights.get("lin_skip.bias"))
    if not layer.beta:
        return _added(out, skip)
    both = out, skip, _added(out, Scaled(-skip.rows, skip.scale))
    beside = _beside(both)
    beta = _activated(_linear(beside, weights["lin_beta.weight"]), lambda rows: 1 / (1 + np.exp(-rows)), step)
    rows = beta.rows * skip.rows + (1 - beta.rows) * out.rows
    apart = beta.scale * np.abs(skip.rows - out.rows)
    scale = np.hypot(beta.rows * skip.scale, (1 - beta.rows) * out.scale) + apart
    return Scaled(rows, _known(np.abs(rows) + scale))


def _softmax(values: Scaled, logits: Scaled, edges: Edges, step: float) -> Scaled:
    """Softmax sums over the in-edges: a score that is off takes weight from the others, or gives it to them."""
    alpha = attention.softmax_at_destinations(logits.rows, edges)
    rows = edges.sum_at_destinations(values.rows, alpha)
    size = _past_range(edges.sum_at_destinations(np.abs(values.rows), alpha))
    through = np.sqrt(edges.sum_at_destinations(values.scale**2, alpha**2))
    turned = alpha * np.expm1(2 * step * logits.scale) / step
    away = np.zeros_like(rows)
    np.add.at(away, edges.dst, turned[:, None] * np.abs(values.rows[edges.src] - rows[edges.dst]))
    return Scaled(rows, _known(size + through + away))


def _chain(layers: Sequence[Layer], weights: Weights, prefix: str, x: Scaled, step: float) -> Scaled:
    for i, layer in enumerate(layers):
        start = f"{prefix}{i}."
        x = _dense(layer, {name[len(start) :]: w for name, w in weights.items() if name.startswith(start)}, x, step)
    return x


def _dense(layer: Layer, weights: Weights, x: Scaled, step: float) -> Scaled:
    if isinstance(layer, Linear):
        return _linear(x, weights["weight"], weights.get("bias"))
    if isinstance(layer, BatchNorm):
        return _with_bias(_multiplied(x, weights["scale"]), weights["shift"])
    if isinstance(layer, Identity):
        return x
    behind = scales.apply(layer, weights, *x, step)
    if behind is not None:
        return Scaled(*behind)
    return _activated(x, lambda rows: oracle.dense(layer, weights, rows), step)


def _join(layer: Join, parts: list[Scaled], step: float) -> Scaled:
    if layer.operation == "cat":
        return _beside(parts)
    at = parts[0]
    for other in parts[1:]:
        if layer.operation == "times_length":  # a length is off by no more than the length of what its row is off by
            other = Scaled(*(np.linalg.norm(of, axis=1, keepdims=True) for of in other))
        if layer.operation == "sum":
            added, size = _added(at, other), np.abs(at.rows) + np.abs(other.rows)
            at = Scaled(added.rows, _known(_past_range(size) + added.scale))
        elif layer.operation in ("product", "times_length"):
            through = np.abs(at.rows) * other.scale + np.abs(other.rows) * at.scale + step * at.scale * other.scale
            rows = at.rows * other.rows
            at = Scaled(rows, _known(_past_range(np.abs(rows)) + through))
        else:  # an extremum moves by no more than the value that moves most
            of = np.maximum if layer.operation == "max" else np.minimum
            at = Scaled(of(at.rows, other.rows), np.maximum(at.scale, other.scale))
    return at


# -- steps: the values, the magnitude of what was summed, and what comes through of the scales before ----------------


def _aggregated(kind: str, x: Scaled, edges: Edges, factor: Array | None, step: float) -> Scaled:
    """An aggregate of (factor *) the rows of the in-neighbours."""
    if kind in ("sum", "mean"):
        return _gathered(x, edges, factor, kind == "mean")
    if kind == "var":
        return _variance(x, edges, factor, step)
    if kind == "std":
        return _activated(_variance(x, edges, factor, step), lambda of: np.sqrt(np.where(of <= 1e-5, 0, of)), step)
    size = None if factor is None else np.abs(factor)
    largest, through = (edges.aggregate("max", rows, size) for rows in (np.abs(x.rows), x.scale))
    # a maximum moves by no more than the message that moves most
    return Scaled(edges.aggregate(kind, x.rows, factor), _known(_past_range(largest) + through))


def _variance(x: Scaled, edges: Edges, factor: Array | None, step: float) -> Scaled:
    """A message that is off moves the variance by twice its distance from the mean, and by its error's square."""
    found = []
    for _, here, part in edges.pieces():
        times = np.ones(1) if factor is None else factor[here, None]
        messages, far = x.rows[part.src] * times, (x.scale + np.abs(x.rows))[part.src] * np.abs(times)
        by_edge, count = part.of_messages(), np.maximum(part.count(), 1)[:, None]
        away = messages - by_edge.aggregate("mean", messages)[part.dst]
        first, second = (by_edge.sum_at_destinations(of, None) for of in ((2 * away * far) ** 2, far**2))
        size = _past_range(by_edge.aggregate("mean", messages**2))
        moved = np.sqrt(first) / count + step * second / count + np.where(size < np.inf, 0, np.inf)
        rows = by_edge.aggregate("var", messages)
        found.append(Scaled(rows, _known(rows + moved)))
    return _below(found)


def _gathered(x: Scaled, edges: Edges, factor: Array | None, mean: bool = False) -> Scaled:
    """Sums (or means) of (factor *) the rows of the in-neighbours."""
    square = None if factor is None else factor**2
    rows = edges.sum_at_destinations(x.rows, factor)
    size = _past_range(edges.sum_at_destinations(np.abs(x.rows), None if factor is None else np.abs(factor)))
    through = np.sqrt(edges.sum_at_destinations(x.scale**2, square))
    count = np.maximum(edges.count(), 1)[:, None] if mean else 1
    return Scaled(rows / count, _known((size + through) / count))


def _linear(x: Scaled, weight: Array, bias: Array | None = None) -> Scaled:
    size = _past_range(np.abs(x.rows) @ np.abs(weight).T)
    at = Scaled(x.rows @ weight.T, _known(size + np.sqrt(x.scale**2 @ (weight**2).T)))
    return at if bias is None else _with_bias(at, bias)


def _multiplied(x: Scaled, factor: Array) -> Scaled:
    rows = x.rows * factor
    return Scaled(rows, _known(_past_range(np.abs(rows)) + x.scale * np.abs(factor)))


def _with_bias(x: Scaled, bias: Array) -> Scaled:
    return Scaled(x.rows + bias, x.scale + np.abs(bias))


def _beside(parts: Sequence[Scaled]) -> Scaled:
    """Rows side by side."""
    return Scaled(*(np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True)))


def _below(parts: Sequence[Scaled]) -> Scaled:
    """Runs of rows, one after the other."""
    return Scaled(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _at(x: Scaled, places: slice | Array) -> Scaled:
    return Scaled(x.rows[places], x.scale[places])


def _added(one: Scaled, other: Scaled) -> Scaled:
    return Scaled(one.rows + other.rows, _known(np.hypot(one.scale, other.scale)))


def _activated(x: Scaled, function: Callable[[Array], Array], step: float) -> Scaled:
    """A value by value function, whose kinks and flat ends the difference over a whole step sees."""
    rows, off = function(x.rows), step * x.scale
    change = np.maximum(np.abs(function(x.rows + off) - rows), np.abs(function(x.rows - off) - rows))
    return Scaled(rows, np.where(np.isfinite(x.scale), _known(np.abs(rows) + change / step), np.inf))


def _normalized(x: Scaled) -> Scaled:
    """Rows of length 1: what moves a value moves the length of its row, too."""
    length = np.maximum(np.linalg.norm(x.rows, axis=1, keepdims=True), 1e-12)
    rows = x.rows / length
    of_length = np.abs(rows) * np.linalg.norm(rows * x.scale, axis=1, keepdims=True)
    return Scaled(rows, _known(np.abs(rows) + (x.scale + of_length) / length))


def _past_range(size: Array) -> Array:
    """Infinity where float32 may have run over; the terms of a sum that stays below can't."""
    return np.where(size <= FLOAT32_MAX, size, np.inf)


def _known(scale: Array) -> Array:
    return np.where(np.isnan(scale), np.inf, scale)
