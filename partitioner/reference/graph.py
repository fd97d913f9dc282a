"""A slow, obvious reference of what events mean: a graph in plain dicts, one event at a time.

The tests' oracle and `freshet check` hold the partitioner and all that follows against it.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from freshet.partitioner.config import NO_RULES, GraphRules
from freshet.partitioner.events import (
    DEFAULT_TYPE,
    INT,
    NO_TS,
    OP_ADD_EDGE,
    OP_ADD_VERTEX,
    OP_DEL_VERTEX,
    OP_SET_FEATURES,
    STRING,
    Events,
)
from freshet.partitioner.times.reference import ReferenceTimes
from freshet.schema import PLAIN_EDGE, EdgeRow, EdgeValues, Features, Graph, attr_size, kept_of

Id = int | str


class GraphArrays(NamedTuple):
    """A graph as arrays, vertices in the order of their birth.

    Shapes:
        ids: n ids; x: (n, features) float32; src, dst: (m,) int64 rows of `ids`; values of m edges
    """

    ids: list[Id]
    x: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    values: EdgeValues

    @property
    def graph(self) -> Graph:
        """The same without ids, as passes over all of it take it."""
        return Graph(*self[1:])


class _Edges:
    """The edges of one type, both ways round."""

    def __init__(self) -> None:
        self.out: defaultdict[Id, dict[Id, EdgeRow]] = defaultdict(dict)  # source -> destination -> values
        self.into: defaultdict[Id, set[Id]] = defaultdict(set)  # destination -> sources

    def any(self) -> bool:
        """True if there is one."""
        return any(self.out.values())


class ReferenceGraph:
    """The graph after the applied events.

    Args:
        features: those of its vertices.
        rules: those that it follows. An event without a type has the first of their types, else the default of its
            block; a self-loop is mirrored once.

    `rejected` counts edges that break a rule, those whose attr has another width than the first, and events whose `ts`
    is too far ahead. `replaced`, `unchanged` and `nothing_deleted` count accepted events, as the interface names them.
    Deleting what is not there changes nothing.
    """

    def __init__(self, features: Features, rules: GraphRules = NO_RULES) -> None:
        self.features, self.rules = features, rules
        self.default_type = rules.edge_types[0] if rules.edge_types else DEFAULT_TYPE
        self.attr_width: int | None = None
        self.rejected = 0
        self.replaced = self.unchanged = self.nothing_deleted = 0
        self.x: dict[Id, np.ndarray | None] = {}  # None: zero features
        self.edges: defaultdict[str, _Edges] = defaultdict(_Edges)  # by type
        self.times = ReferenceTimes(rules.edge_ttl_ms, rules.jump_ms)

    def apply(self, events: Events, *, snapshot: bool = False) -> None:
        """Apply the events of an epoch in order; at its end edges expire, but for those of a snapshot."""
        collecting = gc.isenabled()
        gc.disable()  # millions of small objects and no cycle: half of the time would go into looking for one
        try:
            self._apply(events, snapshot=snapshot)
        finally:
            if collecting:
                gc.enable()

    def _apply(self, events: Events, *, snapshot: bool) -> None:
        types = [self.default_type if name == DEFAULT_TYPE else name for name in events.types]
        x = events.x.matrix.copy()  # the block's memory is not kept
        times = (
            [None if ts == NO_TS else ts for ts in events.ts.tolist()]
            if events.ts is not None
            else [None] * len(events)
        )
        too_far = set() if snapshot else self.times.too_far_ahead(times)
        for event, (op, a, b, values, etype, row, ts) in enumerate(
            zip(
                events.op.tolist(),
                events.a.to_list(),
                events.b.to_list(),
                events.values.rows(),
                events.etype.tolist(),
                events.x_row.tolist(),
                times,
                strict=True,
            )
        ):
            if event in too_far:
                self.rejected += 1
                continue
            if op == OP_ADD_EDGE:
                self.add_edge(a, b, values, types[etype], ts)
                continue
            self.times.advance(ts)
            if op == OP_DEL_VERTEX:
                self.del_vertex(a)
            elif op in (OP_ADD_VERTEX, OP_SET_FEATURES):
                self.bring_vertex(a, x[row] if row >= 0 else None)
            else:
                self.del_edge(a, b, types[etype])
        if not snapshot:
            self.end_epoch()

    def end_epoch(self) -> None:
        """Delete the edges whose time is over."""
        for src, dst, name in self.times.expired():
            self._take_edge(src, dst, name)

    def bring_vertex(self, vertex: Id, x: np.ndarray | None) -> None:
        """Apply an event that adds a vertex or sets its features."""
        self.unchanged += x is None and self.has_vertex(vertex)
        self.add_vertex(vertex, x)

    def has_vertex(self, vertex: Id) -> bool:
        """Return whether the graph has the vertex."""
        return vertex in self.x

    def add_vertex(self, vertex: Id, x: np.ndarray | None = None) -> None:
        """Make the vertex exist; `x` replaces its features, which are zeros at first."""
        if x is not None or vertex not in self.x:
            self.x[vertex] = x

    def del_vertex(self, vertex: Id) -> None:
        """Remove the vertex and all its edges."""
        if vertex not in self.x:
            self.nothing_deleted += 1
            return
        del self.x[vertex]
        self._drop_edges(vertex)

    def _drop_edges(self, vertex: Id) -> None:
        for edges in self.edges.values():
            for dst in edges.out.pop(vertex, ()):
                edges.into[dst].discard(vertex)
            for src in edges.into.pop(vertex, ()):
                del edges.out[src][vertex]

    def add_edge(
        self, src: Any, dst: Any, values: EdgeRow = PLAIN_EDGE, name: str = DEFAULT_TYPE, ts: int | None = None
    ) -> None:
        """Add the edge, and the one that follows it, or set what they carry, making their ends exist."""
        width = attr_size(values)
        if self._breaks_a_rule(src, dst, width, name):
            self.rejected += 1
            return
        self._count_again(src, dst, values, name, ts)
        self.times.advance(ts)
        self.attr_width = self.attr_width if width < 0 else width
        self.add_vertex(src)
        self.add_vertex(dst)
        for a, b, of in self._both_ways(src, dst, name):
            self._put_edge(a, b, values, of)
            self.times.added((a, b, of), ts)

    def _breaks_a_rule(self, src: Id, dst: Id, attr_width: int, name: str) -> bool:
        """Return whether an edge can't be added, by what the graph has; `attr_width` < 0: it has no attr."""
        return (
            (src == dst and self.rules.forbid_typed_loops and self._has_loop_of_another_type(src, name))
            or (attr_width >= 0 and self.attr_width not in (None, attr_width))
            or self._is_one_type_too_many(name)
        )

    def _both_ways(self, src: Id, dst: Id, name: str) -> list[tuple[Id, Id, str]]:
        """Return the edges that an event acts on, by ends and type: its own, and the one that follows it."""
        return [(src, dst, name), *([(dst, src, name)] if self.rules.undirected else [])]

    def _count_again(self, src: Id, dst: Id, values: EdgeRow, name: str, ts: int | None) -> None:
        """Count an edge that is about to be added, if it is there."""
        before = self._kept_edge(src, dst, name)
        if before is not None:
            self.replaced += 1
            is_same = before == kept_of(values) and not self.features.edge_width
            self.unchanged += is_same and self.times.of((src, dst, name)) == (ts if self.times.ttl_ms else None)

    def _kept_edge(self, src: Id, dst: Id, name: str) -> list[float] | None:
        """Return what the graph keeps of an edge, None where it has no such edge."""
        found = self.edges[name].out.get(src, {}).get(dst) if name in self.edges else None
        return None if found is None else kept_of(found)

    def _put_edge(self, src: Id, dst: Id, values: EdgeRow, name: str) -> None:
        edges = self.edges[name]
        edges.out[src][dst] = values
        edges.into[dst].add(src)

    def _is_one_type_too_many(self, name: str) -> bool:
        default, types_max = self.default_type, self.rules.types_max
        if name == default or len(self.edges) < types_max or (name in self.edges and self._has_edge_of(name)):
            return False
        self.edges = defaultdict(_Edges, {one: edges for one, edges in self.edges.items() if self._has_edge_of(one)})
        return len(self.edges.keys() - {default}) >= types_max

    def _has_edge_of(self, name: str) -> bool:
        return self.edges[name].any()

    def _has_loop_of_another_type(self, vertex: Id, name: str) -> bool:
        return any(vertex in edges.out.get(vertex, ()) for other, edges in self.edges.items() if other != name)

    def del_edge(self, src: Any, dst: Any, name: str = DEFAULT_TYPE) -> None:
        """Remove the edge, and the one that follows it; their ends stay."""
        self.nothing_deleted += self._kept_edge(src, dst, name) is None
        for a, b, of in self._both_ways(src, dst, name):
            self._take_edge(a, b, of)

    def _take_edge(self, src: Id, dst: Id, name: str) -> None:
        edges = self.edges[name]
        if dst in edges.out.get(src, ()):
            del edges.out[src][dst]
            edges.into[dst].remove(src)

    def __len__(self) -> int:
        return len(self.x)

    def arrays(self) -> GraphArrays:
        """The graph as arrays; edges by type, then by source."""
        return self._arrays({vertex: row for row, vertex in enumerate(self.x)})

    def _arrays(self, rows: Mapping[Id, int]) -> GraphArrays:
        x = self.features.zeros(len(self.x))
        given = [row for row, own in enumerate(self.x.values()) if own is not None]
        if given:
            x[given] = [own for own in self.x.values() if own is not None]
        by_source = [item for edges in self.edges.values() for item in edges.out.items()]
        counts = [len(ends) for _, ends in by_source]
        return GraphArrays(
            ids=list(self.x),
            x=x,
            src=np.repeat(np.array([rows[src] for src, _ in by_source], np.int64), counts),
            dst=np.array([rows[dst] for _, ends in by_source for dst in ends], np.int64),
            values=EdgeValues.of_rows([values for _, ends in by_source for values in ends.values()]),
        )

    def edge_types(self) -> list[str]:
        """The type of each edge, aligned with `arrays()`."""
        return [name for name, edges in self.edges.items() for ends in edges.out.values() for _ in ends]

    @property
    def id_kind(self) -> str:
        """The kind of the ids (int for a graph without vertices)."""
        return STRING if isinstance(next(iter(self.x), 0), str) else INT
