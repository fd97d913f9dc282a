"""The graph that `freshet check` makes again: a snapshot's arrays, and dictionaries for what events add to them.

Millions of edges in dictionaries take minutes and gigabytes; a stream touches few of them. So what a snapshot has stays
in arrays, where events strike edges out and set what they carry; vertices and edges that it does not have are the
reference graph's, one event at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np

from freshet.job.results.plain_rules import Event
from freshet.partitioner.config import NO_RULES, GraphRules
from freshet.partitioner.reference.graph import GraphArrays, Id, ReferenceGraph
from freshet.schema import EdgeRow, EdgeValues, Features, attr_of, kept_of


@dataclass
class SnapshotGraph:
    """The graph of a snapshot; an edge's key is (type * n + source) * n + destination, by rows of `ids`.

    Where vertices have kinds, `ids` are pairs of a kind's name and an id.

    Shapes: ids n ids; x by kind (vertices of the kind, features) float32; keys (m,) int64 ascending, each once; values
    of m edges, with attributes where the graph keeps these; kind (n,) uint8, the number of each vertex's kind
    """

    ids: list[Any]
    x: list[np.ndarray]
    keys: np.ndarray
    values: InitVar[EdgeValues]
    types: list[str]
    kind: np.ndarray | None = None  # None: all are of one
    kept: np.ndarray = field(init=False)  # (values, m) float32: what the graph keeps of each edge
    attr: np.ndarray | None = field(init=False)  # (m, width) float32
    rows: dict[Any, int] = field(init=False)  # of the vertices that are still the snapshot's
    live: np.ndarray = field(init=False)  # which vertices these are
    there: np.ndarray = field(init=False)  # which edges no event has deleted
    x_row: np.ndarray = field(init=False)  # where in x of its kind each vertex has its features
    _into: tuple[np.ndarray, np.ndarray] | None = field(init=False, default=None)

    def __post_init__(self, values: EdgeValues) -> None:
        """Everything is there at first."""
        self.kept, self.attr = values.kept(), values.attr
        self.rows = dict(zip(self.ids, range(len(self.ids)), strict=True))
        self.live, self.there = np.ones(len(self.ids), bool), np.ones(len(self.keys), bool)
        self.x_row = self.numbers()

    def live_of(self, kind: int) -> np.ndarray:
        """Return which vertices are still the snapshot's and of a kind, (n,) bool."""
        return self.live if self.kind is None else self.live & (self.kind == kind)

    def numbers(self) -> np.ndarray:
        """Return the place of each vertex among those of its kind that are still the snapshot's, (n,) int32."""
        numbers = np.zeros(len(self.ids), np.int32)
        for kind in range(len(self.x)):
            live = self.live_of(kind)
            numbers[live] = np.arange(np.count_nonzero(live), dtype=np.int32)
        return numbers

    def set_features(self, row: int, x: np.ndarray) -> None:
        """Replace the features of a vertex."""
        self.x[0 if self.kind is None else int(self.kind[row])][self.x_row[row]] = x

    def with_features(self, kind: int, added: np.ndarray) -> np.ndarray:
        """Return the features of all vertices of a kind: the snapshot's, then those of others, which are kept, too.

        There is one copy of them: those of an earlier call change with the graph.
        """
        live = self.live_of(kind)
        left = np.count_nonzero(live)
        if len(added) or left < len(self.x[kind]):
            self.x[kind] = np.concatenate([self.x[kind][self.x_row[live]], added])
            self.x_row[live] = np.arange(left)
        return self.x[kind]

    def edges_of(self, *types: int) -> tuple[np.ndarray, np.ndarray, EdgeValues]:
        """Return the edges of neighbouring types that are there: rows of sources and of destinations, and values."""
        n = len(self.ids)
        begin, end = self.keys.searchsorted([types[0] * n**2, (types[-1] + 1) * n**2]) if types else (0, 0)
        there = self.there[begin:end]
        src, dst = divmod(self.keys[begin:end][there] % max(1, n**2), max(1, n))
        kept = EdgeValues.of_kept(list(self.kept[:, begin:end][:, there]))
        return src, dst, EdgeValues(kept.edges, kept.given, None if self.attr is None else self.attr[begin:end][there])

    def set_values(self, place: int, values: EdgeRow) -> None:
        """Set what an edge carries, which is there from now on."""
        self.there[place], self.kept[:, place] = True, kept_of(values)
        if self.attr is not None:
            attr = attr_of(values)
            self.attr[place] = 0
            self.attr[place, : len(attr)] = attr

    def find(self, src: Id, dst: Id, name: str) -> int | None:
        """Return the position of an edge, even a deleted one, if both ends are still the snapshot's."""
        a, b = self.rows.get(src), self.rows.get(dst)
        if a is None or b is None or name not in self.types:
            return None
        key = (self.types.index(name) * len(self.ids) + a) * len(self.ids) + b
        place = int(self.keys.searchsorted(key))
        return place if place < len(self.keys) and self.keys[place] == key else None

    def has(self, src: Id, dst: Id, name: str) -> bool:
        """Return whether the graph has the edge."""
        place = self.find(src, dst, name)
        return place is not None and bool(self.there[place])

    def has_edge_of(self, name: str) -> bool:
        """Return whether the graph has an edge of a type."""
        if name not in self.types:
            return False
        begin, end = (self.keys.searchsorted((self.types.index(name) + k) * len(self.ids) ** 2) for k in (0, 1))
        return bool(self.there[begin:end].any())

    def strike_out(self, vertex: Id) -> None:
        """Remove a vertex with its edges; added again, it is no longer the snapshot's."""
        row, n = self.rows.pop(vertex), len(self.ids)
        self.live[row] = False
        for kind in range(len(self.types)):
            begin, end = self.keys.searchsorted([(kind * n + row) * n, (kind * n + row + 1) * n])
            self.there[begin:end] = False
        if self._into is None:
            dst = (self.keys % n).astype(np.int32)
            order = np.argsort(dst, kind="stable").astype(np.int32)
            self._into = dst[order], order
        begin, end = self._into[0].searchsorted(np.array([row, row + 1], np.int32))
        self.there[self._into[1][begin:end]] = False


class PlainGraph(ReferenceGraph):
    """A graph that takes events one by one; `rejected` counts those that only the graph shows to be wrong.

    Vertices are in the snapshot's rows or in `x`, never in both; so are edges, and those of a vertex that is not the
    snapshot's are in `edges`.
    """

    def __init__(
        self,
        features: Features,
        rules: GraphRules = NO_RULES,
        snapshot: SnapshotGraph | None = None,
    ) -> None:
        super().__init__(features, rules)
        self.began_empty = snapshot is None
        x = [np.empty((0, width), np.float32) for width in features.widths]
        self._of = snapshot or SnapshotGraph([], x, np.empty(0, np.int64), EdgeValues.default(0), [])
        for name in self._of.types:
            self.edges[name]

    def take_epoch(self, events: Iterable[Event]) -> None:
        """Apply the events of an epoch, of which some may be rejected for their `ts`; at its end edges expire."""
        if self.rules.is_timed:
            events = list(events)
            too_far = self.times.too_far_ahead([event.ts for event in events])
            self.rejected += len(too_far)
            events = [event for number, event in enumerate(events) if number not in too_far]
        for event in events:
            self.take(event)
        self.end_epoch()

    def take(self, event: Event) -> None:
        """Apply one event."""
        if event.b is None or event.op == "del_edge":
            self.times.advance(event.ts)
        if event.b is None:
            if event.op == "del_vertex":
                self.del_vertex(event.a)
            else:
                self.bring_vertex(event.a, event.x)
        elif event.op == "del_edge":
            self.del_edge(event.a, event.b, event.type, event.key)
        else:
            self.add_edge(event.a, event.b, event.values, event.type, event.ts, event.key)

    def has_vertex(self, vertex: Id) -> bool:
        """Return whether the graph has the vertex."""
        return vertex in self._of.rows or super().has_vertex(vertex)

    def add_vertex(self, vertex: Id, x: np.ndarray | None = None) -> None:
        """Make the vertex exist; `x` replaces its features, which are zeros at first."""
        row = self._of.rows.get(vertex)
        if row is None:
            super().add_vertex(vertex, x)
        elif x is not None:
            self._of.set_features(row, x)

    def del_vertex(self, vertex: Id) -> None:
        """Remove the vertex and all its edges."""
        if vertex in self._of.rows:
            self._of.strike_out(vertex)
            self._drop_edges(vertex)
        else:
            super().del_vertex(vertex)

    def _kept_edge(self, src: Id, dst: Id, name: str) -> list[float] | None:
        place = self._of.find(src, dst, name)
        if place is None:
            return super()._kept_edge(src, dst, name)
        return list(self._of.kept[:, place].tolist()) if self._of.there[place] else None

    def _put_edge(self, src: Id, dst: Id, values: EdgeRow, name: str) -> None:
        place = self._of.find(src, dst, name)
        if place is None:
            super()._put_edge(src, dst, values, name)
        else:
            self._of.set_values(place, values)

    def _take_edge(self, src: Id, dst: Id, name: str) -> None:
        place = self._of.find(src, dst, name)
        if place is None:
            super()._take_edge(src, dst, name)
        else:
            self._of.there[place] = False

    def _has_edge_of(self, name: str) -> bool:
        return super()._has_edge_of(name) or self._of.has_edge_of(name)

    def _has_loop_of_another_type(self, vertex: Id, name: str) -> bool:
        others = (other for other in self._of.types if other != name)
        return super()._has_loop_of_another_type(vertex, name) or any(
            self._of.has(vertex, vertex, other) for other in others
        )

    def __len__(self) -> int:
        return len(self._of.rows) + len(self.x)

    def arrays(self) -> GraphArrays:
        """Return the graph as arrays: the rest of the snapshot, then later additions.

        There is one copy of the features: those of an earlier call change with the graph.
        """
        of = self._of
        left = {vertex: row for row, vertex in enumerate(of.rows)}
        added = self._arrays(left | {vertex: len(left) + row for row, vertex in enumerate(self.x)})
        if not of.ids:
            return added
        numbers = of.numbers()
        src, dst, values = of.edges_of(*range(len(of.types)))
        return GraphArrays(
            ids=list(left) + added.ids,
            x=of.with_features(0, added.x),
            src=np.append(numbers[src], added.src.astype(np.int32)),
            dst=np.append(numbers[dst], added.dst.astype(np.int32)),
            values=EdgeValues.concatenate([values, added.values]),
        )

    def edge_types(self) -> list[str]:
        """The type of each edge, aligned with `arrays()`."""
        kinds = self._of.keys[self._of.there] // max(1, len(self._of.ids) ** 2)
        return [self._of.types[kind] for kind in kinds.tolist()] + super().edge_types()
