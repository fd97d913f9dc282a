"""Kinds of vertices and relations of edges for `freshet check`: rules and graph, a second time and one by one.

A vertex is a pair here, the name of its kind and its id; an edge's type is the name of its relation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from freshet.job.results.plain_graph import PlainGraph
from freshet.job.results.plain_rules import Event, PlainRules, float32s
from freshet.kinds import NO_MIRROR, Kinds, Relation
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.partitioner.config import GraphRules
from freshet.schema import ATTR, PLAIN_EDGE, WEIGHT, EdgeRow, EdgeValues, Features, edge_row

KIND_FIELDS = ("kind", "src_kind", "dst_kind")


def kinds_of(features: Features) -> Kinds:
    """Return the kinds of a model that has them."""
    assert features.kinds is not None
    return features.kinds


class PlainKindsRules(PlainRules):
    """The rules of a job whose vertices have kinds."""

    @property
    def more_fields(self) -> tuple[str, ...]:
        """The fields that say kinds; of one kind without a name there are none."""
        return KIND_FIELDS if kinds_of(self.features).are_named else ()

    def _vertex(self, op: str, record: dict[str, Any]) -> Event | None:
        kinds, vertex, x = kinds_of(self.features), record.get("id"), record.get("x")
        kind = record.get("kind") if kinds.are_named else kinds.names[0]
        if not self._is_id(vertex) or type(kind) is not str or kind not in kinds.names:
            return None
        row = None
        if op == "set_features" or (op == "add_vertex" and x is not None):
            row = float32s(x)
            if row is None or len(row) != kinds.widths[kinds.names.index(kind)]:
                return None
        self._id_type = type(vertex)
        return Event(op, (kind, vertex), x=row)

    def _edge(self, op: str, record: dict[str, Any]) -> Event | None:
        kinds, src, dst = kinds_of(self.features), record.get("src"), record.get("dst")
        number = self._relation(record)
        if number is None or not (self._is_id(src) and self._is_id(dst) and type(src) is type(dst)):
            return None
        values = self._values(kinds.relations[number], record) if op == "add_edge" else PLAIN_EDGE
        if values is None:
            return None
        self._id_type = type(src)
        source, _, target = kinds.triple(kinds.relations[number])
        return Event(op, (source, src), (target, dst), values=values, type=kinds.relation_names[number])

    def _relation(self, record: dict[str, Any]) -> int | None:
        """The one relation that an edge can be of, of those that events bring."""
        kinds = kinds_of(self.features)
        found = [number for number, one in enumerate(kinds.relations) if one.type == record.get("type")]
        for field, place in (("src_kind", 0), ("dst_kind", 2)):
            given = record.get(field) if kinds.are_named else None
            found = [k for k in found if given is None or kinds.triple(kinds.relations[k])[place] == given]
        found = [number for number in found if kinds.relations[number].mirrors == NO_MIRROR]
        return found[0] if len(found) == 1 else None

    def _values(self, relation: Relation, record: dict[str, Any]) -> EdgeRow | None:
        """Return what an edge carries; None where it may not come."""
        single, listed = record.get(WEIGHT), record.get(ATTR)
        carried: dict[str, float] = {}
        if single is not None:
            if (number := float32s([single])) is None:
                return None
            carried[WEIGHT] = float(number[0])
        if listed is None:
            return edge_row(carried)
        numbers = float32s(listed)
        if numbers is None or (relation.edge_width and len(numbers) != relation.edge_width):
            return None
        if relation.edge_width:
            return edge_row(carried, numbers.tolist())
        return edge_row(carried | {ATTR: len(numbers)})


class KindsArrays(NamedTuple):
    """A graph with kinds of vertices as arrays: the ids of each kind, in the order of the graph's rows."""

    ids: Mapping[str, list[int | str]]
    graph: KindsGraph


class PlainKindsGraph(PlainGraph):
    """A graph whose vertices have kinds; edges are followed by those of the relation that mirrors theirs."""

    def __init__(self, features: Features, rules: GraphRules) -> None:
        super().__init__(features, rules)
        self.kinds = kinds_of(features)
        named = dict(zip(self.kinds.relation_names, self.kinds.relations, strict=True))
        names = self.kinds.relation_names
        self._mirror = {names[one.mirrors]: name for name, one in named.items() if one.mirrors != NO_MIRROR}
        if rules.undirected:
            own = {name for name, one in named.items() if one.mirrors == NO_MIRROR} - self._mirror.keys()
            self._mirror |= {name: name for name in own}

    def add_edge(self, src: Any, dst: Any, values: EdgeRow = PLAIN_EDGE, name: str = "", ts: int | None = None) -> None:
        """Add the edge, and the one that follows it, or set what they carry."""
        self.times.advance(ts)
        for one, other, relation in self._both_ways(src, dst, name):
            self.add_vertex(one)
            self.add_vertex(other)
            self._put_edge(one, other, values, relation)
            self.times.added((one, other, relation), ts)

    def del_edge(self, src: Any, dst: Any, name: str = "") -> None:
        """Remove the edge, and the one that follows it; their ends stay."""
        for one, other, relation in self._both_ways(src, dst, name):
            self._take_edge(one, other, relation)

    def _both_ways(self, src: Any, dst: Any, name: str) -> list[tuple[Any, Any, str]]:
        return [(src, dst, name), *([(dst, src, self._mirror[name])] if name in self._mirror else [])]

    def count_of(self, kind: str) -> int:
        """Return how many vertices are of a kind."""
        return sum(name == kind for name, _ in map(_pair, self.x))

    def kind_arrays(self) -> KindsArrays:
        """Return the graph as arrays, by kind and by relation."""
        rows: dict[str, dict[Any, int]] = {name: {} for name in self.kinds.names}
        for kind, vertex in map(_pair, self.x):
            rows[kind][vertex] = len(rows[kind])
        x = [np.zeros((len(rows[name]), n), np.float32) for name, n in zip(rows, self.kinds.widths, strict=True)]
        for one, own in self.x.items():
            if own is not None:
                kind, vertex = _pair(one)
                x[self.kinds.names.index(kind)][rows[kind][vertex]] = own
        edges = [self._relation_edges(number, rows) for number in range(len(self.kinds.relations))]
        return KindsArrays({name: list(found) for name, found in rows.items()}, KindsGraph(x, edges))

    def _relation_edges(self, number: int, rows: Mapping[str, Mapping[Any, int]]) -> RelationEdges:
        relation, name = self.kinds.relations[number], self.kinds.relation_names[number]
        listed = [(src, dst, one) for src, ends in self.edges[name].out.items() for dst, one in ends.items()]
        source, target = rows[self.kinds.names[relation.source]], rows[self.kinds.names[relation.target]]
        src = np.array([source[_pair(one)[1]] for one, _, _ in listed], np.int64)
        dst = np.array([target[_pair(one)[1]] for _, one, _ in listed], np.int64)
        carried, width = EdgeValues.of_rows([one for _, _, one in listed]), relation.edge_width
        attr = carried.full_attr(width) if width else None
        return RelationEdges(src, dst, EdgeValues(len(listed), carried.given, attr))


def _pair(vertex: Any) -> tuple[str, Any]:
    """Return the kind and the id of a vertex."""
    kind, own = vertex
    return kind, own
