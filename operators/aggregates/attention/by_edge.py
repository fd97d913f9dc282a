"""Softmax sums of additive scores that have a term of the edge, made of its attributes."""

from __future__ import annotations

import numpy as np

from freshet.gnn.synopses.softmax import EdgeSoftmaxSynopsis
from freshet.operators.aggregates.attention.fold import NONE_AWAY, AttentionFold
from freshet.operators.aggregates.attention.kernels import EdgeTerms
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.operators.graph.edge_table import EdgeTable
from freshet.state.table import TableSet


class EdgeAttentionFold(AttentionFold):
    """Softmax sums per head, in which the term of an edge joins that of its source. Shapes: see kernels.Attention.

    An edge's term is made of its attributes whenever a kernel reads it; nothing more is kept of an edge. A
    message whose attributes change is taken back before they do, and brought afterwards.
    """

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: EdgeSoftmaxSynopsis) -> None:
        super().__init__(tables, name, width, synopsis)
        self._w = np.ascontiguousarray(synopsis.edge.T, np.float64)
        self._attributes: EdgeTable | None = None
        self._away = NONE_AWAY

    def read_attributes(self, attributes: EdgeTable) -> None:
        """Have messages whose weights are the numbers of edges in this table."""
        self._attributes = attributes

    def leave(
        self, edges: Edges, gone: Messages, kept: Messages, moves: Moves, rows: np.ndarray, *, same_weights: bool
    ) -> None:
        """Begin an epoch."""
        assert self._attributes is not None
        if not same_weights:
            self._away = np.zeros(len(self._attributes.attr.data), np.uint8)
            self._away[self._attributes.changing] = 1
        super().leave(edges, gone, kept, moves, rows, same_weights=same_weights)

    def arrive(self, edges: Edges, kept: Messages, come: Messages, serial: int) -> np.ndarray:
        """End the epoch."""
        touched = super().arrive(edges, kept, come, serial)
        self._away = NONE_AWAY
        return touched

    def _edge_terms(self, edges: Edges) -> EdgeTerms:
        """Return what scores read of edges."""
        assert self._attributes is not None
        attr, numbers = self._attributes.attr, edges.inn.weight.data.view(np.int32)
        return EdgeTerms(True, attr.data, self._w, numbers, attr.stride, self._away)
