"""The reference of what events mean where vertices have kinds: one event at a time, in plain dicts.

A vertex is a pair, the name of its kind and its id; an edge's type is the name of its relation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from freshet.kinds import NO_MIRROR, Kinds
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.partitioner.reference.graph import ReferenceGraph, vertex_of
from freshet.schema import EdgeValues, Features


class KindsArrays(NamedTuple):
    """A graph with kinds of vertices as arrays: the ids of each kind, in the order of the graph's rows."""

    ids: Mapping[str, list[int | str]]
    graph: KindsGraph


def kinds_of(features: Features) -> Kinds:
    """Return the kinds of a model that has them."""
    assert features.kinds is not None
    return features.kinds


def mirrors_of(kinds: Kinds, *, undirected: bool) -> dict[str, str]:
    """Return the relations that follow others, by the names of those; some follow themselves."""
    named = dict(zip(kinds.relation_names, kinds.relations, strict=True))
    found = {kinds.relation_names[one.mirrors]: name for name, one in named.items() if one.mirrors != NO_MIRROR}
    own = {name for name, one in named.items() if one.mirrors == NO_MIRROR} - found.keys()
    return found | {name: name for name in own if undirected}


class ReferenceKindsGraph(ReferenceGraph):
    """A graph whose vertices have kinds; edges are followed by those of the relation that mirrors theirs."""

    @cached_property
    def kinds(self) -> Kinds:
        """The kinds of its vertices, and its relations."""
        return kinds_of(self.features)

    @cached_property
    def _mirror(self) -> Mapping[str, str]:
        return mirrors_of(self.kinds, undirected=self.rules.undirected)

    def _breaks_a_rule(self, src: Any, dst: Any, attr_width: int, name: str) -> bool:
        return False  # the relations say all

    def _both_ways(self, src: Any, dst: Any, name: str) -> list[tuple[Any, Any, str]]:
        return [(src, dst, name), *([(dst, src, self._mirror[name])] if name in self._mirror else [])]

    def kind_arrays(self) -> KindsArrays:
        """Return the graph as arrays, by kind and by relation."""
        ids: dict[str, list[Any]] = {name: [] for name in self.kinds.names}
        rows = self._added_rows(ids)
        x = [self._added_features(*one) for one in zip(ids, self.kinds.widths, strict=True)]
        edges = [self._added_edges(number, rows.__getitem__) for number in range(len(self.kinds.relations))]
        return KindsArrays(ids, KindsGraph(x, edges))

    def _added_rows(self, ids: Mapping[str, list[Any]]) -> dict[Any, int]:
        """Return the row of each vertex within its kind, behind the ids that are there, and append its own."""
        rows: dict[Any, int] = {}
        for one in self.x:
            kind, own = pair_of(one)
            rows[one] = len(ids[kind])
            ids[kind].append(own)
        return rows

    def _added_features(self, kind: str, width: int) -> np.ndarray:
        """Return the features of the vertices of a kind that are in `x`, (n, width) float32."""
        added = [x for one, x in self.x.items() if pair_of(one)[0] == kind]
        found = np.zeros((len(added), width), np.float32)
        for row, own in enumerate(added):
            if own is not None:
                found[row] = own
        return found

    def _added_edges(self, number: int, row_of: Callable[[Any], int]) -> RelationEdges:
        """Return the edges of a relation that are in `edges`; `row_of` a vertex within its kind."""
        name, width = self.kinds.relation_names[number], self.kinds.relations[number].edge_width
        listed = [(src, dst, one) for src, ends in self.edges[name].out.items() for dst, one in ends.items()]
        src = np.array([row_of(one) for one, _, _ in listed], np.int64)
        dst = np.array([row_of(vertex_of(one)) for _, one, _ in listed], np.int64)
        values = EdgeValues.of_rows([one for _, _, one in listed])
        attr = values.full_attr(width)[:, :width] if width else None
        return RelationEdges(src, dst, EdgeValues(len(src), values.given, attr))


def pair_of(vertex: Any) -> tuple[str, Any]:
    """Return the kind and the id of a vertex."""
    kind, own = vertex
    return kind, own
