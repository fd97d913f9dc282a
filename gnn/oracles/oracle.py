"""The full-graph forward pass, slow and obvious: every incremental path is compared with it.

It reads the model as it is declared and shares no code with the plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from freshet.gnn.declarations import (
    AttentionConv,
    Conv,
    DegreeScaledConv,
    EdgeConv,
    Elu,
    Gelu,
    GINConv,
    Layer,
    LeakyRelu,
    Linear,
    PinSAGEConv,
    PNAConv,
    PRelu,
    ResGatedGraphConv,
    RootedConv,
    SAGEConv,
)
from freshet.gnn.model import Model
from freshet.gnn.oracles.attention import attention_conv
from freshet.gnn.oracles.edges import Edges
from freshet.gnn.rows import full_pass
from freshet.gnn.rows.jumps import Join, Keep

Array = np.ndarray

_erf = np.vectorize(math.erf, otypes=[np.float64])

_SIMPLE: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.where(x <= 0, 0, x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "identity": lambda x: x,
}


def forward(
    model: Model, x: Array, src: Array, dst: Array, weight: Array | None = None, *, dtype: Any = np.float64
) -> list[Array]:
    """Return the rows after each conv and what follows it; the last ones are the embeddings.

    Shapes: x (n, in_width); src, dst (e,) vertex numbers, one edge per (source, destination, type); weight (e,), 1 by
    default; results (n, width of the layer) dtype.
    """
    weight = np.ones(len(src), dtype) if weight is None else weight.astype(dtype)
    edges = Edges(len(x), np.asarray(src, np.int64), np.asarray(dst, np.int64), weight)
    rows = x.astype(dtype)
    outputs: list[Array] = []
    kept: dict[str, Array] = {}
    with np.errstate(all="ignore"):  # infinities and NaN are results here as in PyG
        for i, layer in enumerate(model.layers):
            weights = {name: w.astype(dtype) for name, w in model.weights_of(f"layers.{i}").items()}
            if isinstance(layer, Conv):
                rows = _conv(layer, weights, rows, edges)
                outputs.append(rows)
            elif isinstance(layer, Keep):
                kept[layer.name] = rows
            else:
                if isinstance(layer, Join):
                    rows = _join(layer, layer.picked(rows, kept))
                else:
                    rows = dense(layer, weights, rows)
                if outputs:
                    outputs[-1] = rows
    return outputs


def logits(model: Model, embedding: Array) -> Array:
    """Return the head's output for embeddings, in their dtype."""
    rows = embedding
    for i, layer in enumerate(model.head):
        weights = {name: w.astype(rows.dtype) for name, w in model.weights_of(f"head.{i}").items()}
        rows = dense(layer, weights, rows)
    return rows


def _conv(layer: Conv, weights: dict[str, Array], x: Array, edges: Edges) -> Array:
    if isinstance(layer, RootedConv):
        return _graph_conv(layer, weights, x, edges)
    if isinstance(layer, SAGEConv):
        return _sage_conv(layer, weights, x, edges)
    if isinstance(layer, PinSAGEConv):
        return _pin_sage_conv(layer, weights, x, edges)
    if isinstance(layer, DegreeScaledConv):
        return _gcn_conv(layer, weights, x, edges)
    if isinstance(layer, GINConv):
        return chain(
            layer.nn, weights, "nn.", ((1 + layer.eps) * x + edges.sum_at_destinations(x, None)).astype(x.dtype)
        )
    if isinstance(layer, PNAConv):
        return _pna_conv(layer, weights, x, edges)
    if isinstance(layer, EdgeConv):
        return _edge_conv(layer, weights, x, edges)
    if isinstance(layer, ResGatedGraphConv):
        return _gated_conv(layer, weights, x, edges)
    if isinstance(layer, AttentionConv):
        return attention_conv(layer, weights, x, edges)
    msg = f"the oracle knows no {type(layer).__name__}"
    raise TypeError(msg)


def _graph_conv(layer: RootedConv, weights: dict[str, Array], x: Array, edges: Edges) -> Array:
    aggregate = edges.aggregate(layer.aggr, x, edges.weight if layer.edge_weights else None)
    out = aggregate @ weights["lin_rel.weight"].T + x @ weights["lin_root.weight"].T
    return out + weights["lin_rel.bias"] if layer.bias else out


def _sage_conv(layer: SAGEConv, weights: dict[str, Array], x: Array, edges: Edges) -> Array:
    source = x
    if layer.project:
        source = _SIMPLE["relu"](x @ weights["lin.weight"].T + weights["lin.bias"])
    kinds = (layer.aggr,) if isinstance(layer.aggr, str) else layer.aggr
    aggregate = np.concatenate([edges.aggregate(kind, source) for kind in kinds], axis=1)
    out = aggregate @ weights["lin_l.weight"].T
    if layer.bias:
        out = out + weights["lin_l.bias"]
    if layer.root_weight:
        out = out + x @ weights["lin_r.weight"].T
    if layer.normalize:
        out = out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-12)
    return out


def _pin_sage_conv(layer: PinSAGEConv, weights: dict[str, Array], x: Array, edges: Edges) -> Array:
    source = _SIMPLE["relu"](x @ weights["lin_neighbour.weight"].T + weights["lin_neighbour.bias"])
    factor, total = importances(layer, edges)
    mean = edges.sum_at_destinations(source, factor) / total[:, None]
    return np.concatenate([x, mean], axis=1) @ weights["lin.weight"].T + weights["lin.bias"]


def importances(layer: PinSAGEConv, edges: Edges) -> tuple[Array, Array]:
    """Return how important the source of each edge is, and the sum of that at each vertex; infinity where it is 0."""
    factor = edges.weight if layer.edge_weights else np.ones_like(edges.weight)
    total = np.bincount(edges.dst, factor, minlength=edges.vertices).astype(factor.dtype)
    return factor, np.where(total == 0, np.inf, total)


def _pna_conv(layer: PNAConv, weights: dict[str, Array], x: Array, edges: Edges) -> Array:
    made, factors = [], degree_factors(layer, weights, edges)
    for t, mine in enumerate(tower_rows(layer, x)):
        target, source = (mine @ half.T for half in np.split(weights[f"pre.{t}.weight"], 2, axis=1))
        target = target + weights[f"pre.{t}.bias"]
        found = []
        for vertices, _, part in edges.pieces():
            messages, by_edge = target[vertices][part.dst] + source[part.src], part.of_messages()
            messages = chain(layer.pre, weights, f"pre.{t}.", messages)
            aggregates = np.concatenate([by_edge.aggregate(kind, messages) for kind in layer.aggregators], axis=1)
            rows = np.concatenate([mine[vertices], *(factor[vertices] * aggregates for factor in factors)], axis=1)
            rows = rows @ weights[f"post.{t}.first.weight"].T + weights[f"post.{t}.first.bias"]
            found.append(chain(layer.post, weights, f"post.{t}.", rows))
        made.append(np.concatenate(found))
    return np.concatenate(made, axis=1) @ weights["lin.weight"].T + weights["lin.bias"]


def _edge_conv(layer: EdgeConv, weights: dict[str, Array], x: Array, edges: Edges) -> Array:
    found, kinds = [], (layer.aggr,) if isinstance(layer.aggr, str) else layer.aggr
    for vertices, _, part in edges.pieces():
        target, source = x[vertices][part.dst], x[part.src]
        messages = chain(layer.nn, weights, "nn.", np.concatenate([target, source - target], axis=1))
        found.append(np.concatenate([part.of_messages().aggregate(kind, messages) for kind in kinds], axis=1))
    return np.concatenate(found)


def _gated_conv(layer: ResGatedGraphConv, weights: dict[str, Array], x: Array, edges: Edges) -> Array:
    key, query, value = (x @ weights[f"lin_{k}.weight"].T + weights[f"lin_{k}.bias"] for k in ("key", "query", "value"))
    found = []
    for vertices, _, part in edges.pieces():
        gates = _SIMPLE["sigmoid"](key[vertices][part.dst] + query[part.src])
        found.append(part.of_messages().sum_at_destinations(gates * value[part.src], None))
    out = np.concatenate(found)
    if layer.root_weight:
        out = out + x @ weights["lin_skip.weight"].T
    return out + weights["bias"] if layer.bias else out


def tower_rows(layer: PNAConv, x: Array) -> list[Array]:
    """Return what each tower of the layer reads of rows."""
    return np.split(x, layer.towers, axis=1) if layer.divide_input else [x] * layer.towers


def degree_factors(layer: PNAConv, weights: dict[str, Array], edges: Edges) -> list[Array]:
    """Return what each scaler of the layer multiplies by; (vertices, 1) each."""
    count = edges.count()[:, None].astype(weights["lin.weight"].dtype)
    degree, log_degree = weights["average_degree"], weights["average_log_degree"]
    factors = {
        "identity": np.ones_like(count),
        "amplification": np.log(count + 1) / log_degree,
        "attenuation": log_degree / np.log(np.maximum(count, 1) + 1),
        "linear": count / degree,
        "inverse_linear": degree / np.maximum(count, 1),
    }
    return [factors[scaler] for scaler in layer.scalers]


def _gcn_conv(layer: DegreeScaledConv, weights: dict[str, Array], x: Array, edges: Edges) -> Array:
    edges, factor = gcn_factors(layer, edges)
    sent = x @ weights["lin.weight"].T if "lin.weight" in weights else x
    out = edges.sum_at_destinations(sent, factor)
    return out + weights["bias"] if "bias" in weights else out


def gcn_factors(layer: DegreeScaledConv, edges: Edges) -> tuple[Edges, Array]:
    """Return the edges with the self-loops that the layer adds, and what it multiplies each message by.

    Shapes: factor (edges,) in the dtype of the weights
    """
    weight = edges.weight if layer.edge_weights else np.ones_like(edges.weight)
    if layer.add_self_loops:  # an existing self-loop keeps its weight
        is_loop = edges.src == edges.dst
        loop = np.full(edges.vertices, layer.loop_weight, weight.dtype)
        loop[edges.src[is_loop]] = weight[is_loop]
        every = np.arange(edges.vertices)
        src, dst = np.r_[edges.src[~is_loop], every], np.r_[edges.dst[~is_loop], every]
        edges = Edges(edges.vertices, src, dst, np.r_[weight[~is_loop], loop])
        weight = edges.weight
    if layer.normalize:
        degree = np.bincount(edges.dst, weight, minlength=edges.vertices).astype(weight.dtype)
        scale = degree**-0.5
        scale[np.isinf(scale)] = 0
        weight = scale[edges.src] * weight * scale[edges.dst]
    return edges, weight


def _join(layer: Join, rows: list[Array]) -> Array:
    if layer.operation == "cat":
        return np.concatenate(rows, axis=1)
    if layer.operation == "times_length":
        return rows[0] * np.linalg.norm(rows[1], axis=1, keepdims=True)
    ufunc: np.ufunc = {"sum": np.add, "product": np.multiply, "max": np.maximum, "min": np.minimum}[layer.operation]
    result: Array = ufunc.reduce(rows)
    return result


def chain(layers: Sequence[Layer], weights: dict[str, Array], prefix: str, x: Array) -> Array:
    """Return what layers without neighbours make of rows; their weights begin with the prefix and their number."""
    for i, layer in enumerate(layers):
        start = f"{prefix}{i}."
        x = dense(layer, {name[len(start) :]: w for name, w in weights.items() if name.startswith(start)}, x)
    return x


def dense(layer: Layer, weights: dict[str, Array], x: Array) -> Array:
    """Return what a layer without neighbours makes of rows, in their dtype."""
    made = full_pass.apply(layer, weights, x)
    if made is not None:
        out = made
    elif isinstance(layer, Linear):
        out = x @ weights["weight"].T
        out = out + weights["bias"] if layer.bias else out
    elif isinstance(layer, PRelu):
        out = np.where(x > 0, x, x * weights["weight"])
    elif isinstance(layer, LeakyRelu):
        out = np.where(x > 0, x, x * layer.slope)
    elif isinstance(layer, Elu):
        out = np.where(x > 0, x, layer.alpha * np.expm1(np.minimum(x, 0)))
    elif isinstance(layer, Gelu) and layer.approximate == "none":
        out = 0.5 * x * (1 + _erf(x * math.sqrt(0.5)))
    elif isinstance(layer, Gelu):
        out = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    else:
        out = _SIMPLE[layer.type](x)  # type: ignore[attr-defined]
    return out.astype(x.dtype, copy=False)
