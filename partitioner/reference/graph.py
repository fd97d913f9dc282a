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
    ALL_KEYS,
    DEFAULT_TYPE,
    NO_TS,
    OP_ADD_EDGE,
    OP_ADD_VERTEX,
    OP_DEL_EDGES,
    OP_DEL_VERTEX,
    OP_SET_FEATURES,
    Events,
)
from freshet.partitioner.ids import INT, NO_KEY, STRING
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


class KeyedEnd(NamedTuple):
    """An end of an edge with a key; the end of one without is its vertex alone."""

    vertex: Any
    key: Id


def vertex_of(end: Any) -> Any:
    """Return the vertex at the end of an edge."""
    return end.vertex if isinstance(end, KeyedEnd) else end


def _end(vertex: Any, key: Id | None) -> Any:
    return vertex if key is None else KeyedEnd(vertex, key)


def _other(end: Any, vertex: Any) -> Any:
    """Return the other end, at this vertex, of an edge."""
    return KeyedEnd(vertex, end.key) if isinstance(end, KeyedEnd) else vertex


class _Edges:
    """The edges of one type, both ways round."""

    def __init__(self) -> None:
        self.out: defaultdict[Id, dict[Any, EdgeRow]] = defaultdict(dict)  # source -> end at the destination -> values
        self.into: defaultdict[Id, set[Any]] = defaultdict(set)  # destination -> ends at the sources
        self.keys: defaultdict[tuple[Id, Id], dict[Id, None]] = defaultdict(dict)  # source, destination -> keys

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
        for event, (op, a, b, values, etype, row, ts, key) in enumerate(
            zip(
                events.op.tolist(),
                events.a.to_list(),
                events.b.to_list(),
                events.values.rows(),
                events.etype.tolist(),
                events.x_row.tolist(),
                times,
                _keys_of(events),
                strict=True,
            )
        ):
            if event in too_far:
                self.rejected += 1
                continue
            if op == OP_ADD_EDGE:
                self.add_edge(a, b, values, types[etype], ts, key)
                continue
            self.times.advance(ts)
            if op == OP_DEL_VERTEX:
                self.del_vertex(a)
            elif op in (OP_ADD_VERTEX, OP_SET_FEATURES):
                self.bring_vertex(a, x[row] if row >= 0 else None)
            else:
                self.del_edge(a, b, types[etype], ALL_KEYS if op == OP_DEL_EDGES else key)
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
            for end in edges.out.pop(vertex, ()):
                edges.into[vertex_of(end)].discard(_other(end, vertex))
                edges.keys.pop((vertex, vertex_of(end)), None)
            for end in edges.into.pop(vertex, ()):
                del edges.out[vertex_of(end)][_other(end, vertex)]
                edges.keys.pop((vertex_of(end), vertex), None)

    def add_edge(
        self,
        src: Any,
        dst: Any,
        values: EdgeRow = PLAIN_EDGE,
        name: str = DEFAULT_TYPE,
        ts: int | None = None,
        key: Id | None = None,
    ) -> None:
        """Add the edge, and the one that follows it, or set what they carry, making their ends exist."""
        width = attr_size(values)
        if self._breaks_a_rule(src, dst, width, name) or self._is_second_loop(src, dst, name, key):
            self.rejected += 1
            return
        self._count_again(src, _end(dst, key), values, name, ts)
        self.times.advance(ts)
        self.attr_width = self.attr_width if width < 0 else width
        self.add_vertex(src)
        self.add_vertex(dst)
        for a, b, of in self._both_ways(src, dst, name):
            self._put_edge(a, _end(b, key), values, of)
            self.times.added((a, _end(b, key), of), ts)

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

    def _count_again(self, src: Id, dst: Any, values: EdgeRow, name: str, ts: int | None) -> None:
        """Count an edge that is about to be added, if it is there."""
        before = self._kept_edge(src, dst, name)
        if before is not None:
            self.replaced += 1
            is_same = before == kept_of(values) and not self.features.edge_width
            self.unchanged += is_same and self.times.of((src, dst, name)) == (ts if self.times.ttl_ms else None)

    def _kept_edge(self, src: Id, dst: Any, name: str) -> list[float] | None:
        """Return what the graph keeps of an edge, None where it has no such edge."""
        found = self.edges[name].out.get(src, {}).get(dst) if name in self.edges else None
        return None if found is None else kept_of(found)

    def _put_edge(self, src: Id, dst: Any, values: EdgeRow, name: str) -> None:
        edges = self.edges[name]
        edges.out[src][dst] = values
        edges.into[vertex_of(dst)].add(_other(dst, src))
        if isinstance(dst, KeyedEnd):
            edges.keys[src, dst.vertex][dst.key] = None

    def _is_one_type_too_many(self, name: str) -> bool:
        default, types_max = self.default_type, self.rules.types_max
        if name == default or len(self.edges) < types_max or (name in self.edges and self._has_edge_of(name)):
            return False
        self.edges = defaultdict(_Edges, {one: edges for one, edges in self.edges.items() if self._has_edge_of(one)})
        return len(self.edges.keys() - {default}) >= types_max

    def _has_edge_of(self, name: str) -> bool:
        return self.edges[name].any()

    def _has_loop_of_another_type(self, vertex: Id, name: str) -> bool:
        return any(
            vertex in edges.out.get(vertex, ()) or edges.keys.get((vertex, vertex))
            for other, edges in self.edges.items()
            if other != name
        )

    def _is_second_loop(self, src: Id, dst: Id, name: str, key: Id | None) -> bool:
        """Return whether a self-loop differs in its key alone from one that is there, where there may be one."""
        known = self.features.kinds.relation_names if self.features.kinds else ()
        one_alone = self.rules.forbid_typed_loops or name in [known[one] for one in self.rules.one_loop_relations]
        if src != dst or not self.rules.edge_keys or not one_alone:
            return False
        return any(end != _end(dst, key) for end in self._parallel(src, dst, name))

    def _parallel(self, src: Id, dst: Id, name: str) -> list[Any]:
        """Return the ends at the destination of all edges of a pair and type."""
        keys = self.edges[name].keys.get((src, dst), ()) if name in self.edges else ()
        plain = [] if self._kept_edge(src, dst, name) is None else [dst]
        return [*plain, *(KeyedEnd(dst, key) for key in keys)]

    def del_edge(self, src: Any, dst: Any, name: str = DEFAULT_TYPE, key: Id | None = None) -> None:
        """Remove the edge, or those of all keys, and the ones that follow them; their ends stay."""
        every, gone = key == ALL_KEYS, 0
        for a, b, of in self._both_ways(src, dst, name):
            for end in self._parallel(a, b, of) if every else [_end(b, key)]:
                gone += self._kept_edge(a, end, of) is not None
                self._take_edge(a, end, of)
        self.nothing_deleted += gone == 0

    def _take_edge(self, src: Id, dst: Any, name: str) -> None:
        edges = self.edges[name]
        if dst in edges.out.get(src, ()):
            del edges.out[src][dst]
            edges.into[vertex_of(dst)].remove(_other(dst, src))
            if isinstance(dst, KeyedEnd):
                del edges.keys[src, dst.vertex][dst.key]

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
            dst=np.array([rows[vertex_of(dst)] for _, ends in by_source for dst in ends], np.int64),
            values=EdgeValues.of_rows([values for _, ends in by_source for values in ends.values()]),
        )

    def edge_types(self) -> list[str]:
        """The type of each edge, aligned with `arrays()`."""
        return [name for name, edges in self.edges.items() for ends in edges.out.values() for _ in ends]

    def edge_keys(self) -> list[Id | None]:
        """The key of each edge, None without, aligned with `arrays()`."""
        ends = [end for edges in self.edges.values() for ends in edges.out.values() for end in ends]
        return [end.key if isinstance(end, KeyedEnd) else None for end in ends]

    @property
    def id_kind(self) -> str:
        """The kind of the ids (int for a graph without vertices)."""
        return STRING if isinstance(next(iter(self.x), 0), str) else INT


def _keys_of(events: Events) -> list[Id | None]:
    """The key of each event, None without."""
    if events.keys is None:
        return [None] * len(events)
    return [None if key in (NO_KEY, "") else key for key in events.keys.to_list()]
