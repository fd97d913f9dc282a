"""Runs a plan on a whole graph at once: what the incremental job must arrive at, by the same layer functions."""

from __future__ import annotations

import numpy as np

from freshet.gnn.numerics.dense import Rows
from freshet.gnn.plan import Context, LayerPlan, Plan
from freshet.schema import Graph


def contexts(graph: Graph) -> Context:
    """Return the context of every vertex of a graph, its out-edges included."""
    x, src, dst, values = graph
    vertices, weight, is_loop = len(x), values.weight, src == dst
    loop = np.bincount(dst[is_loop], weight[is_loop].astype(np.float64), minlength=vertices).astype(np.float32)
    loop[np.bincount(dst[is_loop], minlength=vertices) == 0] = np.nan
    wide = weight[~is_loop].astype(np.float64)
    degree, out = (np.bincount(ends[~is_loop], wide, minlength=vertices).astype(np.float64) for ends in (dst, src))
    counts = (np.bincount(ends, minlength=vertices).astype(np.int32) for ends in (dst, src[~is_loop]))
    return Context(next(counts), degree, loop, next(counts), out)


def forward(plan: Plan, graph: Graph) -> list[Rows]:
    """Return x_1..x_L of a whole graph, through the plan's send and update; behind each what is carried with it.

    Shapes: results (n, width of the layer) float32.
    """
    ctx, rows = contexts(graph), np.ascontiguousarray(graph.x, np.float32)
    outputs = []
    for layer in plan.layers:
        sent = layer.send(rows, ctx)
        own = sent[:, : layer.message_width] if layer.self_is_message else sent[:, layer.message_width :]
        rows = layer.update(aggregate(layer, sent, graph), np.ascontiguousarray(own), ctx)
        outputs.append(rows)
    return outputs


def aggregate(layer: LayerPlan, sent: Rows, graph: Graph) -> Rows:
    """Return the synopsis of every vertex's messages, of shape (n, synopsis_width)."""
    src, dst, values = layer.edge.kept(*graph[1:])
    targets = sent[:, : layer.message_width]
    return layer.synopsis.whole(layer.edge.messages(targets[src], values), dst, targets)
