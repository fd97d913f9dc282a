"""The graph of the Partitioner between two epochs, to be read: rows of ids, edges and degrees, what an epoch touched.

Vertices and edges are known by their rows in the tables (graph_tables.py). Nothing here changes the graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.partitioner import epoch_log as e
from freshet.partitioner import graph_tables as t
from freshet.partitioner.degrees import list_degrees
from freshet.partitioner.edge_keys import EdgeIndex
from freshet.partitioner.edge_types import EdgeTypes
from freshet.partitioner.epoch_log import Log
from freshet.partitioner.graph_tables import GraphTables, GraphView
from freshet.partitioner.hash_index import HashIndex, find_key
from freshet.partitioner.id_lookup import find_name, ids_of_rows
from freshet.partitioner.ids import INT, NO_KEY, Ids
from freshet.partitioner.words import text_hash
from freshet.schema import EdgeValues

OUT, IN = 0, 1
_ALL_RELATIONS = -1


class VertexDegrees(NamedTuple):
    """Degrees of n vertices, over the edges of one relation or over all.

    Shapes: in_count (n,) int32, in-edges with self-loops; degree (n,) float64, what in-edges without self-loops
    carry first, summed; loop (n,) float32, that of self-loops, NaN without any; out_count (n,) int32 and out_degree
    (n,) float64, of out-edges without self-loops, (0,) where they are not asked for
    """

    in_count: np.ndarray
    degree: np.ndarray
    loop: np.ndarray
    out_count: np.ndarray
    out_degree: np.ndarray


class EdgesOf(NamedTuple):
    """The edges at some vertices. Shapes: ends (vertices + 1,) int64, those of vertex v from ends[v] on; rows (n,)."""

    ends: np.ndarray
    rows: np.ndarray

    @property
    def places(self) -> np.ndarray:
        """The place of its vertex for each edge, (n,) int64."""
        return np.repeat(np.arange(len(self.ends) - 1), np.diff(self.ends))


class Touched(NamedTuple):
    """Rows that the last epoch touched.

    Shapes: born, featured, contexts: rows of live vertices that are new, whose features were set, whose edges came,
    went or carry something else first, (k,) int64; x, of `featured` the rows of the events' x, negative for zeros;
    edges (m,) int64, rows of edges that are there; events (m,) int64, of each the event of the epoch that brought its
    attributes, empty where the graph keeps none
    """

    born: np.ndarray
    featured: np.ndarray
    x: np.ndarray
    contexts: np.ndarray
    edges: np.ndarray
    events: np.ndarray


class Inspection(NamedTuple):
    """The graph between two epochs; stale after the next one."""

    tables: GraphTables
    ids: HashIndex
    edges: EdgeIndex
    log: Log
    types: EdgeTypes
    id_kind: str
    key_bits: int

    def find(self, ids: Ids, kinds: np.ndarray, *, has_kinds: bool) -> np.ndarray:
        """Return the rows of live vertices by id, (n,) int64, -1 for unknown ones. Shapes: kinds (n,) uint8."""
        found, view = np.empty(len(ids), np.int64), self.tables.view
        if ids.kind == INT:
            _find_ints(self.ids, view.vertex.data, view.wide, ids.ints, kinds, has_kinds, found)
        else:
            one = ids.compact()
            text = one.offsets.copy(), one.data.copy()  # kernels are compiled for writable ones
            _find_names(self.ids, view.vertex.data, view.words.data, *text, kinds, self.key_bits, found)
        return found

    @property
    def rows(self) -> int:
        """Number of rows of vertices in use or free."""
        return self.tables.scalar(t.VERTEX_ROWS)

    @property
    def edge_rows(self) -> int:
        """Number of rows of edges in use or free."""
        return self.tables.scalar(t.EDGE_ROWS)

    def ids_of(self, rows: np.ndarray) -> Ids:
        """Return the ids of live vertices."""
        return ids_of_rows(self.tables, rows, self.id_kind)

    def degree_counts(self, rows: np.ndarray, way: int) -> np.ndarray:
        """Return the numbers of out-edges (`way` OUT) or in-edges (IN) of vertices, (n,) int64."""
        return self.tables.vertex.data[rows, t.OUT_DEGREE + way].astype(np.int64)

    def kinds_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the kinds of vertices, (n,) int32."""
        return self.tables.vertex.data[rows, t.KIND]

    def places_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the parts of vertices' masters, and the slots there, (n,) int64 each."""
        data = self.tables.vertex.data
        master = data[rows, t.MASTER].astype(np.int64)
        return master, data[rows, t.SLOTS + (0 if self.tables.is_sparse else master)].astype(np.int64)

    def edges_of(self, rows: np.ndarray, way: int) -> EdgesOf:
        """Return the out-edges (`way` OUT) or in-edges (IN) of vertices."""
        view = self.tables.view
        ends = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(self.degree_counts(rows, way), out=ends[1:])
        found = np.empty(int(ends[-1]), np.int64)
        _list_edges(view, rows, way, ends, found)
        return EdgesOf(ends, found)

    def ends_of(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return sources, destinations and codes of the types of edges, (n,) int64 each."""
        src, dst, of = (self.tables.edge.data[edges, column].astype(np.int64) for column in (t.SRC, t.DST, t.TYPE))
        return src, dst, of

    def values_of(self, edges: np.ndarray) -> EdgeValues:
        """Return what the graph keeps of edges, without attributes."""
        return self.tables.values_of(edges)

    def keys_of(self, edges: np.ndarray) -> list[int | str]:
        """Return the keys of edges; NO_KEY or an empty string of an edge without one."""
        found = self.tables.keys_of(edges)
        return [NO_KEY] * len(edges) if found is None else list(found.to_list())

    def times_of(self, edges: np.ndarray) -> np.ndarray:
        """Return the `ts` of the last add of edges, (n,) int64, NEVER without one or where edges do not expire."""
        return self.tables.times.data[edges] if self.tables.is_timed else np.full(len(edges), t.NEVER)

    def degrees_of(self, rows: np.ndarray, relation: int | None, *, out: bool) -> VertexDegrees:
        """Return the degrees of vertices: of all edges (None), or in a relation of which layers read them."""
        n = len(rows)
        found = VertexDegrees(
            np.empty(n, np.int32), np.empty(n, np.float64), np.empty(n, np.float32),
            np.empty(n if out else 0, np.int32), np.empty(n if out else 0, np.float64),
        )  # fmt: skip
        list_degrees(self.tables.view, self.edges, rows, _ALL_RELATIONS if relation is None else relation, *found)
        return found

    def touched(self) -> Touched:
        """Return what the last epoch touched, in the order of its events."""
        log, vertex = self.log, self.tables.vertex.data
        entries = log.vertices[: int(log.counts[e.LOGGED_VERTICES])].astype(np.int64)
        entries = entries[vertex[entries[:, e.V_ROW], t.LIVE] != 0]
        rows, x = entries[:, e.V_ROW], entries[:, e.V_X]
        edges = log.edges[: int(log.counts[e.LOGGED_EDGES])].astype(np.int64)
        edges = edges[~np.isnan(self.tables.edge.data.view(np.float32)[edges[:, e.E_ROW], t.VALUE])]
        noted = log.edges.shape[1] > e.E_OLD + self.tables.values
        return Touched(
            rows[entries[:, e.V_WAS_LIVE] == 0],
            rows[x != e.UNCHANGED],
            x[x != e.UNCHANGED],
            rows[entries[:, e.V_CONTEXT] != 0],
            edges[:, e.E_ROW],
            edges[:, -1] if noted else edges[:0, 0],
        )


@kernel
def _find_ints(
    index: HashIndex, vertex: np.ndarray, wide: np.ndarray, ids: np.ndarray, kinds: np.ndarray, has_kinds: bool,
    out: np.ndarray,
) -> None:  # fmt: skip
    for i in range(len(ids)):
        row = find_key(index, vertex, wide, ids[i], np.int64(kinds[i]), has_kinds)
        out[i] = row if row >= 0 and vertex[row, t.LIVE] else -1


@kernel
def _find_names(
    index: HashIndex, vertex: np.ndarray, words: np.ndarray, offsets: np.ndarray, data: np.ndarray, kinds: np.ndarray,
    bits: int, out: np.ndarray,
) -> None:  # fmt: skip
    for i in range(len(out)):
        begin, end = offsets[i], offsets[i + 1]
        hashed = text_hash(index.salt, data, begin, end, bits)
        row = find_name(index, vertex, words, hashed, np.int64(kinds[i]), data, begin, end)
        out[i] = row if row >= 0 and vertex[row, t.LIVE] else -1


@kernel
def _list_edges(g: GraphView, rows: np.ndarray, way: int, ends: np.ndarray, out: np.ndarray) -> None:
    for i in range(len(rows)):
        at, following = g.vertex.data[rows[i], t.OUT_HEAD + way], ends[i]
        while at >= 0:
            out[following] = at
            following += 1
            at = g.edge.data[at, t.OUT_NEXT + 2 * way]
