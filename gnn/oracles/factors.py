"""Factors of messages and aggregates, as layers derive them from the graph."""

from __future__ import annotations

import numpy as np

from freshet.gnn.convs.base import ExistingLoops
from freshet.gnn.declarations import DegreeScaledConv, Laplacian, MessageConv, PinSAGEConv, PNAConv
from freshet.gnn.oracles.edges import SortedEdges
from freshet.schema import WEIGHT, EdgeValues

Array = np.ndarray


def weights_of(edges: SortedEdges) -> Array:
    """Return the weights of the edges, (edges,) float64."""
    return edges.values.weight.astype(np.float64)


def importances(layer: PinSAGEConv, edges: SortedEdges) -> tuple[Array, Array]:
    """Return how important the source of each edge is, and the sum of that at each vertex; infinity where it is 0."""
    factor = weights_of(edges) if layer.edge_weights else np.ones(len(edges.src))
    total = np.bincount(edges.dst, factor, minlength=edges.vertices).astype(factor.dtype)
    return factor, np.where(total == 0, np.inf, total)


def tower_rows(layer: PNAConv, x: Array) -> list[Array]:
    """Return what each tower of the layer reads of rows."""
    return np.split(x, layer.towers, axis=1) if layer.divide_input else [x] * layer.towers


def degree_factors(layer: PNAConv, weights: dict[str, Array], edges: SortedEdges) -> list[Array]:
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


def with_loops(
    edges: SortedEdges,
    weight: Array,
    fill: float | None,
    there: ExistingLoops,
    *,
    keeps: bool,
    attr: Array | None = None,
) -> SortedEdges:
    """Return the edges with a self-loop of weight and attributes `fill` at each vertex; None: with no further ones.

    `there` is what becomes of self-loops that are there; of those that are kept the weight is, if `keeps`.
    Shapes: weight (edges,); attr (edges, width).
    """
    is_loop, every = edges.src == edges.dst, np.arange(0 if fill is None else edges.vertices)
    loop = np.full(len(every), fill or 0.0, weight.dtype)
    if keeps and there == "keep":
        loop[edges.src[is_loop]] = weight[is_loop]
    kept = np.full(len(weight), True) if there == "beside" else ~is_loop
    src, dst = np.r_[edges.src[kept], every], np.r_[edges.dst[kept], every]
    if attr is not None:
        attr = np.r_[attr[kept], np.full((len(every), attr.shape[1]), fill, attr.dtype)]
    made = SortedEdges(edges.vertices, src, dst, EdgeValues(len(src), {WEIGHT: np.r_[weight[kept], loop]}, attr))
    made.passed = edges.passed
    return made


def message_edges(layer: MessageConv, edges: SortedEdges) -> SortedEdges:
    """Return the edges of whose messages a conv makes aggregates."""
    if not layer.add_self_loops and layer.existing_loops != "drop":
        return edges
    attr = edges.values.full_attr(layer.edge_channels) if layer.edge_channels else None
    fill = layer.self_value if layer.add_self_loops else None
    return with_loops(edges, weights_of(edges), fill, layer.existing_loops, keeps=True, attr=attr)


def gcn_factors(layer: DegreeScaledConv, edges: SortedEdges) -> tuple[SortedEdges, Array]:
    """Return the edges with the self-loops that the layer adds, and what it multiplies each message by.

    Shapes: factor (edges,) in the dtype of the weights
    """
    weight = weights_of(edges) if layer.edge_weights else np.ones(len(edges.src))
    if layer.add_self_loops or layer.loops_there == "drop":
        fill = layer.loop_weight if layer.add_self_loops else None
        edges = with_loops(edges, weight, fill, layer.loops_there, keeps=layer.edge_weights)
        weight = weights_of(edges)
    if layer.degrees == "both":
        into, out = (np.maximum(np.bincount(ends, minlength=edges.vertices), 1) for ends in (edges.dst, edges.src))
        weight = weight / np.sqrt(out[edges.src] * into[edges.dst])
    elif layer.degrees == "out":
        scale = np.bincount(edges.src, minlength=edges.vertices).astype(np.float64)
        scale[scale > 0] **= -0.5
        weight = scale[edges.src] * weight * scale[edges.dst]
    elif layer.normalize:
        degree = np.bincount(edges.dst, weight, minlength=edges.vertices).astype(weight.dtype)
        scale = degree**-0.5
        scale[np.isinf(scale)] = 0
        weight = scale[edges.src] * weight * scale[edges.dst]
    return edges, weight


def laplacian_factors(layer: Laplacian, edges: SortedEdges) -> tuple[SortedEdges, Array]:
    """Return the edges of the scaled Laplacian, with a self-loop at every vertex, and its entries.

    Shapes: factor (edges,) float64
    """
    weight = weights_of(edges) if layer.edge_weights else np.ones(len(edges.src))
    other, every = edges.src != edges.dst, np.arange(edges.vertices)
    src, dst, weight = edges.src[other], edges.dst[other], weight[other]
    degree = np.bincount(src, weight, minlength=edges.vertices).astype(np.float64)
    loop = degree if layer.normalization == "none" else np.ones(edges.vertices)
    if layer.normalization != "none":
        scale = degree**-0.5 if layer.normalization == "sym" else 1 / degree
        scale[np.isinf(scale)] = 0
        weight = scale[src] * weight * (scale[dst] if layer.normalization == "sym" else 1)
    times = 2 / layer.lambda_max
    factor = np.r_[-times * weight, times * loop - 1]
    src, dst = np.r_[src, every], np.r_[dst, every]
    order = np.argsort(dst, kind="stable")
    return SortedEdges(edges.vertices, src[order], dst[order], EdgeValues.default(len(src))), factor[order]
