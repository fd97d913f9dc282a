"""Kinds of vertices and relations of edges for `freshet check`: rules and graph, a second time and one by one.

A vertex is a pair here, the name of its kind and its id; an edge's type is the name of its relation.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from freshet.gnn.kinds.model import KindsModel
from freshet.job.results.plain_graph import PlainGraph
from freshet.job.results.plain_rules import Event, PlainRules, float32s
from freshet.kinds import NO_MIRROR, Relation
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.partitioner.reference.kinds import KindsArrays, ReferenceKindsGraph, kinds_of, pair_of
from freshet.schema import ATTR, PLAIN_EDGE, WEIGHT, EdgeRow, EdgeValues, edge_row

KIND_FIELDS = ("kind", "src_kind", "dst_kind")


class PlainKindsRules(PlainRules):
    """The rules of a job whose vertices have kinds."""

    @property
    def more_fields(self) -> tuple[str, ...]:
        """The fields that say kinds; of one kind without a name there are none."""
        return KIND_FIELDS if kinds_of(self.features).are_named else ()

    @property
    def known_types(self) -> tuple[str, ...]:
        """The types of the model's relations."""
        return tuple(one.type for one in kinds_of(self.features).relations)

    def _vertex(self, op: str, record: dict[str, Any]) -> Event | None:
        kinds, vertex, x = kinds_of(self.features), record.get("id"), record.get("x")
        kind = record.get("kind") if kinds.are_named else kinds.names[0]
        if not self._is_id(vertex) or type(kind) is not str or kind not in kinds.names:
            return None
        row = None
        if op == "set_features" or (op == "add_vertex" and x is not None):
            row = float32s(x)
            width = kinds.widths[kinds.names.index(kind)]
            if row is None or len(row) != width:
                return None
            row = row if width else None
        self._id_type = type(vertex)
        return Event(op, (kind, vertex), x=row)

    def _edge(self, op: str, record: dict[str, Any]) -> Event | None:
        kinds, src, dst = kinds_of(self.features), record.get("src"), record.get("dst")
        number = self.relation_of(record)
        if number is None or not (self._is_id(src) and self._is_id(dst) and type(src) is type(dst)):
            return None
        values = self._values(kinds.relations[number], record) if op == "add_edge" else PLAIN_EDGE
        if values is None:
            return None
        self._id_type = type(src)
        source, _, target = kinds.triple(kinds.relations[number])
        return Event(op, (source, src), (target, dst), values=values, type=kinds.relation_names[number])

    def relation_of(self, record: Mapping[str, Any]) -> int | None:
        """Return the one relation that an edge can be of, of those that events bring; None where that is not one."""
        kinds = kinds_of(self.features)
        found, given = list(range(len(kinds.relations))), record.get("type")
        if given is None and not kinds.are_named:
            given = kinds.types[0]
        found = [number for number in found if kinds.relations[number].type == given]
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


class PlainKindsGraph(ReferenceKindsGraph, PlainGraph):
    """A graph whose vertices have kinds, with what a snapshot has in arrays."""

    def count_of(self, kind: str) -> int:
        """Return how many vertices are of a kind."""
        left = np.count_nonzero(self._of.live_of(self.kinds.names.index(kind))) if self._of.ids else 0
        return int(left) + sum(name == kind for name, _ in map(pair_of, self.x))

    def kind_arrays(self) -> KindsArrays:
        """Return the graph as arrays, by kind and by relation; of each, what is left of the snapshot comes first.

        There is one copy of the features: those of an earlier call change with the graph.
        """
        of, numbers = self._of, self._of.numbers()
        ids: dict[str, list[Any]] = {name: [] for name in self.kinds.names}
        for kind, own in map(pair_of, of.rows):
            ids[kind].append(own)
        rows = self._added_rows(ids)
        x = [
            of.with_features(number, self._added_features(name, width))
            for number, (name, width) in enumerate(zip(ids, self.kinds.widths, strict=True))
        ]
        edges = [self._relation_edges(number, numbers, rows) for number in range(len(self.kinds.relations))]
        return KindsArrays(ids, KindsGraph(x, edges))

    def _relation_edges(self, number: int, numbers: np.ndarray, rows: Mapping[Any, int]) -> RelationEdges:
        """Return the edges of a relation; `numbers` of the snapshot's vertices within their kinds, `rows` of others."""
        of, width = self._of, self.kinds.relations[number].edge_width

        def number_of(vertex: Any) -> int:
            row = of.rows.get(vertex)
            return rows[vertex] if row is None else int(numbers[row])

        src, dst, values = self._added_edges(number, number_of)
        if not of.ids:
            return RelationEdges(src, dst, values)
        sources, targets, others = of.edges_of(number)
        src, dst = np.append(numbers[sources], src), np.append(numbers[targets], dst)
        attr = None
        if values.attr is not None:
            attr = np.concatenate([others.full_attr(width)[:, :width], values.attr])
        both = EdgeValues.concatenate([EdgeValues(one.edges, one.given) for one in (others, values)])
        return RelationEdges(src, dst, EdgeValues(len(src), both.given, attr))


def with_learned(model: KindsModel, arrays: KindsArrays) -> KindsArrays:
    """Return a graph whose features have the learned rows of their vertices behind them, zeros for other ids."""
    x = list(arrays.graph.x)
    for kind, declared in model.learned.items():
        tensors, number = model.weights_of(f"learned.{kind}"), list(model.kinds).index(kind)
        if declared.ids == "string":
            places = {bytes(digest): place for place, digest in enumerate(tensors["digests"])}
            asked: list[Any] = [blake2b(str(one).encode(), digest_size=16).digest() for one in arrays.ids[kind]]
        else:
            places = {one: place for place, one in enumerate(tensors["ids"].tolist())}
            asked = list(arrays.ids[kind])
        found = np.zeros((len(asked), declared.width), np.float32)
        for row, one in enumerate(asked):
            if one in places:
                found[row] = tensors["rows"][places[one]]
        x[number] = np.concatenate([x[number], found], axis=1)
    return arrays._replace(graph=arrays.graph._replace(x=x))
