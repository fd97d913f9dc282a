"""Sums over many relations between the same kinds, RGCNConv's: what each makes of its messages, added up."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise

import numpy as np
from typing_extensions import override

from freshet.gnn.declarations import Conv, SAGEConv
from freshet.gnn.kind_layers.grouping import added
from freshet.gnn.kind_layers.relation_conv import Count, RelationConvPlan
from freshet.gnn.kind_layers.sums import NeighbourRelation
from freshet.gnn.numerics.dense import Rows, matmul

MANY = 8
"""Relations that have stores of their own; more of them, of one kind of conv, have one for their pairs."""


def alike_sums(spec: Conv) -> Hashable | None:
    """Return what convs that may share a store have in common; None for a conv that shares none."""
    if isinstance(spec, SAGEConv) and not spec.normalize and not spec.project:
        return SAGEConv, spec.aggr, spec.in_channels, spec.out_channels
    return None


class TypedSums(RelationConvPlan):
    """sum_r W_r aggr_r(x_u) over the relations of which a vertex has in-edges, and the roots of all convs.

    Its synopses are of (vertex, relation) pairs. `update` gets their fold, which is out_width wide.
    """

    def __init__(self, convs: Sequence[NeighbourRelation]) -> None:
        """Take the convs of all relations, which differ in weights alone and multiply no sources."""
        first = convs[0]
        self.name, self.edge, self.out_width = first.name, first.edge, first.out_width
        self.source, self.synopsis = first.source, first.synopsis
        self.root = added([conv.root for conv in convs])
        self._weights = [conv.after for conv in convs if conv.after is not None]
        assert len(self._weights) == len(convs), "a conv whose sources are multiplied"

    def folded(self, vertices: int, places: np.ndarray, relations: np.ndarray, states: Rows, counts: Count) -> Rows:
        """Return for each vertex the sum of what relations make of the synopses of its pairs.

        A row's bits depend on the vertex's pairs alone, which are added in the order of relations. Shapes: places,
        relations (pairs,) of integers; states (pairs, synopsis width) float32; counts (pairs,) int32; result (vertices,
        out_width) float32.
        """
        out = np.zeros((vertices, self.out_width), np.float32)
        rows = self.synopsis.read(states, counts)
        order = np.argsort(relations, kind="stable")
        rows, places, relations = rows[order], places[order], relations[order]
        begins = [0, *(np.flatnonzero(np.diff(relations)) + 1).tolist(), relations.size] if relations.size else []
        for begin, end in pairwise(begins):
            out[places[begin:end]] += matmul(rows[begin:end], self._weights[relations[begin]])
        return out

    @override
    def update(self, agg: Rows, own: Sequence[Rows], count: Count) -> Rows:
        return agg.copy()


def typed_sums(convs: Sequence[RelationConvPlan]) -> TypedSums:
    """Return the sum of convs that `alike_sums` says the same of."""
    return TypedSums([conv for conv in convs if isinstance(conv, NeighbourRelation)])
