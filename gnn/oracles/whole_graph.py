"""Runs a plan on a whole graph at once: what the incremental job must arrive at, by the same layer functions."""

from __future__ import annotations

import numpy as np

from freshet.gnn.block_pass import VertexBlock, rows_of_block
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.plan import Context, Plan
from freshet.kinds_graph import RelationEdges
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
    ctx, rows, edges = contexts(graph), np.ascontiguousarray(graph.x, np.float32), RelationEdges(*graph[1:])
    outputs = []
    for layer in plan.layers:
        (rows,) = rows_of_block(layer, VertexBlock([rows], [len(rows)], {None: edges}), lambda kind, number: ctx)
        outputs.append(rows)
    return outputs
