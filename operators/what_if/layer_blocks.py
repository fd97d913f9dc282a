"""The rows of a layer for some vertices of the graph, from rows of the layer before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from freshet.gnn.any_plan import AnyPlan
from freshet.gnn.block_pass import VertexBlock, rows_of_block
from freshet.gnn.layers.base import Context
from freshet.kinds_graph import RelationEdges
from freshet.operators.graph.layer_of_kinds import LayerOfKinds
from freshet.partitioner.inspection import IN, Inspection
from freshet.schema import EdgeValues


def numbers_read(layer: LayerOfKinds) -> np.ndarray | None:
    """Return the numbers of the relations that a layer reads, (k,) int64; None where edges have none."""
    numbers = [number for one in layer.relations for number in (one.numbers or (one.number,))]
    return None if None in numbers else np.array(numbers, np.int64)


RowsBefore = Callable[[list[np.ndarray]], Sequence[np.ndarray]]
"""Rows of the layer before, of these vertices by kind."""


class LayerBlocks:
    """Computes rows of the layers of a plan on the graph as it is."""

    def __init__(self, plan: AnyPlan, values_of: Callable[[np.ndarray], EdgeValues], *, out_degrees: bool) -> None:
        """`values_of` returns what edges carry, by their rows; `out_degrees`: layers read the degrees of out-edges."""
        self._plan, self._values_of, self._out_degrees = plan, values_of, out_degrees
        self._widths = plan.features.widths

    def rows(self, number: int, graph: Inspection, vertices: np.ndarray, before: RowsBefore) -> list[np.ndarray]:
        """Return the rows of layer `number` (from 1 on) of vertices by kind, in their order within the kind.

        Shapes: vertices (n,) int64, each once; results (n of the kind, width) float32, (n, 0) of a kind without rows
        """
        layer: Any = self._plan.layers[number - 1]
        edges = graph.edges_of(vertices, IN).rows
        src, dst, types = graph.ends_of(edges)
        if (read := numbers_read(layer)) is not None:
            some = np.flatnonzero(np.isin(types, read))
            edges, src, dst, types = edges[some], src[some], dst[some], types[some]
        others = np.setdiff1d(src, vertices)
        firsts, rest = self._by_kind(graph, vertices), self._by_kind(graph, others)
        nodes = [np.concatenate(both) for both in zip(firsts, rest, strict=True)]
        place = _Places(nodes)
        by_relation: dict[int | None, RelationEdges] = {}
        for relation in layer.relations:
            for one in relation.numbers or (relation.number,):
                some = np.flatnonzero(types == one) if one is not None else np.arange(len(types))
                values = self._of_relation(self._values_of(edges[some]), one)
                by_relation[one] = RelationEdges(place.of(src[some]), place.of(dst[some]), values)
        degrees: dict[tuple[int, int | None], Context] = {}

        def degrees_of(kind: int, relation: int | None) -> Context:
            if (kind, relation) not in degrees:
                found = graph.degrees_of(nodes[kind], relation, out=self._out_degrees)
                degrees[kind, relation] = Context(*found)
            return degrees[kind, relation]

        block = VertexBlock(before(nodes), [len(one) for one in firsts], by_relation)
        return rows_of_block(layer, block, degrees_of)

    def _by_kind(self, graph: Inspection, vertices: np.ndarray) -> list[np.ndarray]:
        if len(self._widths) == 1:
            return [vertices]
        kinds = graph.kinds_of(vertices)
        return [vertices[kinds == kind] for kind in range(len(self._widths))]

    def _of_relation(self, values: EdgeValues, relation: int | None) -> EdgeValues:
        """Return what edges carry, with attributes as wide as those of their relation."""
        kinds = self._plan.features.kinds
        if kinds is None or relation is None or values.attr is None:
            return values
        width = kinds.relations[relation].edge_width
        return EdgeValues(len(values), values.given, values.attr[:, :width] if width else None)


class _Places:
    """Places of vertices within their kinds."""

    def __init__(self, nodes: Sequence[np.ndarray]) -> None:
        every = np.concatenate(nodes)
        order = np.argsort(every)
        self._sorted = every[order]
        self._places = np.concatenate([np.arange(len(one)) for one in nodes])[order]

    def of(self, vertices: np.ndarray) -> np.ndarray:
        return self._places[np.searchsorted(self._sorted, vertices)]
