"""Runs the plan of a model with kinds on a whole graph at once, by the functions that a job uses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from freshet.gnn.block_pass import VertexBlock, rows_of_block
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.gnn.layers.base import Context
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.oracles.whole_graph import contexts
from freshet.kinds_graph import KindsGraph
from freshet.schema import Graph


def forward(plan: KindsPlan, graph: KindsGraph) -> list[list[Rows]]:
    """Return x_1..x_L of a whole graph by kind, behind each what is carried with it; (n, 0) where a kind has none.

    Shapes: results, for each layer and kind (n, width of the layer for the kind) float32.
    """
    rows = [np.ascontiguousarray(x, np.float32) for x in graph.x]
    targets, degrees_of, outputs = list(map(len, rows)), _degrees_of(graph), list[list[Rows]]()
    for layer in plan.layers:
        rows = rows_of_block(layer, VertexBlock(rows, targets, dict(enumerate(graph.edges))), degrees_of)
        outputs.append(rows)
    return outputs


def _degrees_of(graph: KindsGraph) -> Callable[[int, int | None], Context]:
    @cache
    def degrees(kind: int, number: int | None) -> Context:
        """Return the degrees of the vertices of a kind in a relation within it."""
        assert number is not None
        return contexts(Graph(graph.x[kind], *graph.edges[number]))

    return degrees
