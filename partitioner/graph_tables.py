"""The Partitioner's durable state: the graph, its placement and its free rows, all in tables.

Vertices and edges have row numbers that are reused after a deletion; free rows are chained. Each edge stands in two
doubly linked lists, its source's out-edges and its destination's in-edges, so that adding and deleting take constant
time at hubs too. All that is known of a vertex, or of an edge, is one row of 32-bit words (some pairs of which are
read as one 64-bit value): one touch and one cache miss for all of it. Hash indexes are not durable
(partitioner/hash_index.py).

Rule for kernels: a vertex row is touched when it enters the epoch's log (or is handed out), an edge row too; nothing
else writes a row that is not in the log, but for the links of an edge's neighbours in a list.
"""

from __future__ import annotations

from operator import is_not
from typing import Any, NamedTuple

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.partitioner.ids import STRING, Ids
from freshet.schema import EdgeValues, kept_columns
from freshet.state.entry_lists import HEAD_WORDS, words_for
from freshet.state.table import DIRTY, TableSet, View, touch
from freshet.state.task_parts import DENSE_PARTS

# Rows of `scalars` (int64).
VERTEX_ROWS, FREE_VERTEX, VERTICES, EDGE_ROWS, FREE_EDGE, EDGES = range(6)
# 6 to 9 held counters in states of older versions. ATTR_WIDTH: 1 + the numbers in attr, 0: still open.
TYPES, NAME_TAIL, ATTR_WIDTH = range(10, 13)
LIST_TAIL = 13  # the first word of the pool of lists that was never used yet
RELATIONS = 14  # the number of relations, 0: there are none, whatever types edges have
NAME_FREE = 16  # + k heads the chain of free name chunks of 2**k words
LIST_FREE = 46  # + k heads that of free list chunks of 2**k words
SCALARS = 64

# Columns of `vertex` (int32). A free row is not LIVE and keeps the next free row + 1 in OUT_HEAD.
# AWAY counts the in-edges that live outside the master's part: the vertex is split while it is not 0.
# MARK is the row's entry in the epoch's log + 1, and 0 between epochs. NAME_AT is the name's first word. KIND is 0
# where vertices have no kinds.
OUT_HEAD, IN_HEAD, OUT_DEGREE, IN_DEGREE, LOOPS, MASTER, AWAY, LIVE, MARK, NAME_AT, NAME_BYTES, KIND = range(12)
# For each of P parts, SLOTS + part: the slot there, or -1; SLOTS + P + part: the in-edges that live there;
# SLOTS + 2 P + part: the out-edges that live there. Of more than DENSE_PARTS parts these three columns are the master's
# part's, and at LIST is the head of a list (state/entry_lists.py) of the same for each other part where the vertex is.
SLOTS, LIST = 18, 21
SPARSE_WIDTH = LIST + HEAD_WORDS

# Columns of the same rows, read as 64-bit values: int64, and float64 for the weighted in-degree and the largest
# magnitude that it had since it was last summed afresh.
KEY, SUM, PEAK = 6, 7, 8

# Columns of `edge` (int32, -1 ends a list); VALUE is read as float32, NaN while there is no such edge: the first of the
# values that the graph keeps of an edge. Further ones stand behind these columns.
# A free row keeps the next free row + 1 in SRC.
SRC, DST, TYPE, PART, VALUE, EDGE_MARK, OUT_NEXT, OUT_PREV, IN_NEXT, IN_PREV = range(10)
EDGE_WIDTH = 10

# Columns of `degrees` (float64), once for each relation of which layers read degrees: the number of a vertex's in-edges
# of the relation without self-loops, the sum of what they carry first, the largest magnitude that it had since it was
# last summed from the edges, and whether the epoch changed any of these, 0 between epochs.
NEAR, NEAR_SUM, NEAR_PEAK, NEAR_CHANGED = range(4)
DEGREE_WIDTH = 4

# The table `edge_ts` (int64) of graphs whose edges expire: the `ts` of the last add of the edge in each row, NEVER
# without. Its rows are searched in blocks of 2**BLOCK_SHIFT, and blocks in wide ones of as many. Not durable are lower
# bounds of the times in a block, by which the edges to expire are found: an added edge lowers them, and nothing raises
# them but a search. So an epoch searches blocks alone that have an edge to expire, or have lost or renewed one.
NEVER = 2**63 - 1
BLOCK_SHIFT = 8

# The table `edge_key` of graphs whose edges have keys, in which each edge has a row as in `edge`: its key, one int64 or
# the place and the bytes of a text in `words`, and the next and the previous edge among its parallel ones, those of its
# pair and type; -1 ends that list.
KEY_AT, KEY_BYTES, PAIR_NEXT, PAIR_PREV = range(4)
KEY_WIDTH = 4
# The table `loops` of such graphs (float64) has the same columns of a vertex's self-loops as `degrees` has of its other
# in-edges: first those of all types, then of each relation in `degrees`, DEGREE_WIDTH columns behind its place there.
NO_KEYS, INT_KEYS, STRING_KEYS = range(3)  # what `key_kind` may be

# Columns of `types` (int32), by code: LIVE, NAME_AT and NAME_BYTES as of `vertex` (see partitioner/edge_types.py).
TYPE_WIDTH = 12

# Columns of `parts` (int64): the next fresh slot, the first free one + 1, and the loads. Further kinds of vertices have
# slots of their own: the first two columns are those of the first kind, and kind k has two at PART_WIDTH + 2 * (k - 1).
SLOT_TAIL, SLOT_FREE, MASTERS, PART_EDGES, PART_ROWS = range(5)
PART_WIDTH = 8


class GraphView(NamedTuple):
    """View of the tables for kernels."""

    scalars: np.ndarray  # (64,) int64
    parts: np.ndarray  # (P, 8) int64, and two columns for each further kind
    vertex: View  # (vertices, 18 + 3 P or one more; 24 with lists) int32
    wide: np.ndarray  # the same as int64
    real: np.ndarray  # the same as float64
    edge: View  # (edges, 10) int32, and a column for each value beyond the first
    carried: np.ndarray  # the same as float32
    chain: View  # (slots, P kinds) int32: after a free slot the next free one + 1, in column kind * P + part
    words: View  # (words,) int64: UTF-8 bytes of string ids in chunks of 2**k words
    replicas: View  # (words,) int32: the lists of parts
    is_sparse: bool  # whether vertices have lists
    list_room: int  # words of the pool that placing an edge may take
    values: int  # how many the graph keeps of an edge
    times: View  # (edges,) int64, or (0,) where edges do not expire
    earliest: np.ndarray  # of each block of edges, a lower bound of their `times`
    earliest_of_many: np.ndarray  # of each block of these, likewise
    is_timed: bool  # whether edges expire
    keys: View  # (edges, 4) int32, or (0, 4) where edges have no keys
    wide_keys: np.ndarray  # the same as int64
    key_kind: int  # NO_KEYS, INT_KEYS or STRING_KEYS
    degrees: View  # (vertices, 4 for each relation of which layers read degrees) float64
    degree_place: np.ndarray  # (relations,) int32: where those of a relation begin there, -1 without; (0,) if all are
    loops: View  # (vertices, 4 + those of `degrees`) float64, or (0, 4) where edges have no keys


@inner
def value_column(value: int) -> int:
    """Return the place of one value in an edge's row."""
    return VALUE if value == 0 else EDGE_WIDTH + value - 1


@inner
def is_edge(g: GraphView, row: int) -> bool:
    """Return whether there is an edge in this row."""
    return not np.isnan(g.carried[row, VALUE])


class GraphTables:
    """The tables by name, their growth, and what kernels see of them.

    `is_timed`: edges expire, and their times are kept. `key_kind`: what keys edges have, if any. `kinds` and
    `relations`: how many there are, if any. `degree_relations`: those of which layers read degrees.
    """

    def __init__(
        self,
        parts: int,
        kinds: int = 1,
        relations: int = 0,
        degree_relations: tuple[int, ...] = (),
        *,
        is_timed: bool = False,
        key_kind: int = NO_KEYS,
    ) -> None:
        self.n_parts = parts
        self._tails = SLOT_TAIL if kinds == 1 else [SLOT_TAIL, *range(PART_WIDTH, PART_WIDTH + 2 * (kinds - 1), 2)]
        self.set = tables = TableSet()
        self.scalars = tables.add("scalars", "i8")
        self.parts = tables.add("parts", "i8", PART_WIDTH + 2 * (kinds - 1))
        self.is_sparse = parts > DENSE_PARTS
        width = SPARSE_WIDTH if self.is_sparse else SLOTS + 3 * parts
        self.vertex = tables.add("vertex", "i4", width + width % 2)
        self.values = len(kept_columns())
        self.edge = tables.add("edge", "i4", EDGE_WIDTH + self.values - 1)
        self.chain = tables.add("chain", "i4", parts * kinds)
        self.words = tables.add("words", "i8")
        self.types = tables.add("types", "i4", TYPE_WIDTH)
        self.lists = (tables if self.is_sparse else TableSet()).add("lists", "i4")
        self.list_room = 2 * words_for(parts)
        self.is_timed = is_timed
        self.times = (tables if is_timed else TableSet()).add("edge_ts", "i8", fill=NEVER)
        self.key_kind = key_kind
        self.keys = (tables if key_kind else TableSet()).add("edge_key", "i4", KEY_WIDTH)
        self.earliest = [np.full(1, NEVER, np.int64) for _ in range(2)]  # of blocks, and of blocks of these
        self.has_degrees = bool(degree_relations)
        width = DEGREE_WIDTH * max(1, len(degree_relations))
        self.degrees = (tables if self.has_degrees else TableSet()).add("degrees", "f8", width)
        self.loops = (tables if key_kind else TableSet()).add("loops", "f8", DEGREE_WIDTH * (1 + len(degree_relations)))
        self.degree_place = np.full(relations if self.has_degrees else 0, -1, np.int32)
        self.degree_place[list(degree_relations)] = DEGREE_WIDTH * np.arange(len(degree_relations))
        self.scalars.reserve(SCALARS)
        self.parts.reserve(parts)
        self._small = [(table, np.arange(0, table.rows, table.page_rows)) for table in (self.scalars, self.parts)]
        self._viewed = [self.scalars, self.parts, self.vertex, self.edge, self.chain, self.words, self.lists]
        self._viewed += [self.times, self.keys, self.degrees, self.loops]
        self._view: GraphView | None = None
        self._view_of: list[Any] = []
        self.scalars.data[RELATIONS] = relations

    @property
    def view(self) -> GraphView:
        """The tables as kernels see them; stale after any growth."""
        # those that are made again when they are stale, by which it is seen whether this one is
        of: list[Any] = [table.view for table in self._viewed]
        of += self.earliest
        if self._view is None or any(map(is_not, of, self._view_of)):
            self._view, self._view_of = self._make_view(), of
        return self._view

    def _make_view(self) -> GraphView:
        vertex, edge = self.vertex.view, self.edge.view
        return GraphView(
            self.scalars.data,
            self.loads,
            vertex,
            vertex.data.view(np.int64),
            vertex.data.view(np.float64),
            edge,
            edge.data.view(np.float32),
            self.chain.view,
            self.words.view,
            self.lists.view,
            self.is_sparse,
            self.list_room,
            self.values,
            self.times.view,
            self.earliest[0],
            self.earliest[1],
            self.is_timed,
            self.keys.view,
            self.keys.data.view(np.int64),
            self.key_kind,
            self.degrees.view,
            self.degree_place,
            self.loops.view,
        )

    @property
    def loads(self) -> np.ndarray:
        """The row of each part."""
        return self.parts.data[: self.n_parts]

    def scalar(self, row: int) -> int:
        """One of the scalars."""
        return int(self.scalars.data.item(row))

    def touch_small(self) -> None:
        """Touch, before an epoch, the two small tables that every epoch writes."""
        for table, firsts in self._small:  # the first row of each page
            if table.view.flags.tolist().count(DIRTY) < len(firsts):
                table.touch_rows(firsts)

    def reserve_vertices(self, more: int) -> None:
        """Room for that many vertices beside those that the dictionary knows."""
        self.vertex.reserve(self.scalar(VERTEX_ROWS) + more)
        if self.has_degrees:
            self.degrees.reserve(self.scalar(VERTEX_ROWS) + more)
        if self.key_kind:
            self.loops.reserve(self.scalar(VERTEX_ROWS) + more)

    def reserve_edges(self, more: int) -> None:
        """Room for that many edges beside those there are."""
        self.edge.reserve(self.scalar(EDGE_ROWS) + more)
        if self.key_kind:
            self.keys.reserve(self.scalar(EDGE_ROWS) + more)
        if self.is_timed:
            self.times.reserve(self.scalar(EDGE_ROWS) + more)
            for level, shift in enumerate((BLOCK_SHIFT, 2 * BLOCK_SHIFT)):
                bounds, blocks = self.earliest[level], -(-self.times.stride >> shift)
                if len(bounds) < blocks:
                    self.earliest[level] = np.append(bounds, np.full(blocks - len(bounds), NEVER, np.int64))

    def reserve_slots(self, more: int) -> None:
        """Room for that many fresh slots in every part, of each kind."""
        loads = self.loads
        tail = loads.item(0, SLOT_TAIL) if loads.size == PART_WIDTH else int(loads[:, self._tails].max())
        self.chain.reserve(tail + more)

    def reserve_words(self, more: int) -> None:
        """Room for that many more words of names."""
        self.words.reserve(self.scalar(NAME_TAIL) + more)

    def reserve_lists(self) -> None:
        """Room for what placing one more edge may add to lists, and for more once that grows."""
        if self.is_sparse:
            self.lists.reserve(self.scalar(LIST_TAIL) + self.list_room)

    def read_ahead(self, *rows: np.ndarray) -> None:
        """Have the rows of these vertices in memory soon, and the first edges of their lists, if they may lie on disk.

        What is no row of a vertex is left out.
        """
        if not self.edge.memory.may_be_away:
            return
        vertices = np.unique(np.concatenate(rows))
        vertices = vertices[(vertices >= 0) & (vertices < self.scalar(VERTEX_ROWS))]
        self.vertex.read_ahead(vertices)
        edges = self.vertex.data[vertices[:, None], (OUT_HEAD, IN_HEAD)]
        self.edge.read_ahead(edges[edges >= 0])

    def live_vertices(self) -> np.ndarray:
        """Rows of all live vertices, ascending."""
        return np.flatnonzero(self.vertex.data[: self.scalar(VERTEX_ROWS), LIVE])

    def live_edges(self) -> np.ndarray:
        """Rows of all edges, ascending."""
        return np.flatnonzero(~np.isnan(self.edge.data.view(np.float32)[: self.scalar(EDGE_ROWS), VALUE]))

    def values_of(self, edges: np.ndarray) -> EdgeValues:
        """Return the values of the edges in these rows."""
        carried = self.edge.data.view(np.float32)
        return EdgeValues.of_kept([carried[edges, k] for k in (VALUE, *range(EDGE_WIDTH, carried.shape[1]))])

    def keys_of(self, edges: np.ndarray) -> Ids | None:
        """Return the keys of the edges in these rows; None where edges have none."""
        if self.key_kind == NO_KEYS:
            return None
        if self.key_kind == INT_KEYS:
            return Ids.of_ints(self.keys.data.view(np.int64)[edges, 0])
        offsets = np.zeros(edges.size + 1, np.int64)
        np.cumsum(self.keys.data[edges, KEY_BYTES], out=offsets[1:])
        begin = 8 * self.keys.data[edges, KEY_AT].astype(np.int64) - offsets[:-1]
        at = np.repeat(begin, np.diff(offsets)) + np.arange(offsets[-1])
        return Ids(STRING, offsets=offsets, data=self.words.data.view(np.uint8)[at])

    def vertex_keys(self) -> np.ndarray:
        """Keys of all vertex rows in use."""
        return self.vertex.data.view(np.int64)[: self.scalar(VERTEX_ROWS), KEY]


@inner
def stamp(g: GraphView, row: int, ts: int) -> None:
    """Set the `ts` of the edge in `row` (NEVER: it has none), where edges have any."""
    if not g.is_timed or g.times.data[row] == ts:
        return
    touch(g.times, row)
    g.times.data[row] = ts
    block = row >> BLOCK_SHIFT
    if ts < g.earliest[block]:
        g.earliest[block] = ts
        wide = block >> BLOCK_SHIFT
        g.earliest_of_many[wide] = min(g.earliest_of_many[wide], ts)


@kernel
def find_earliest(g: GraphView) -> None:
    """Compute the bounds of all blocks."""
    for block in range(len(g.earliest)):
        g.earliest[block] = NEVER
    for wide in range(len(g.earliest_of_many)):
        g.earliest_of_many[wide] = NEVER
    for row in range(len(g.times.data)):
        block = row >> BLOCK_SHIFT
        g.earliest[block] = min(g.earliest[block], g.times.data[row])
    for block in range(len(g.earliest)):
        wide = block >> BLOCK_SHIFT
        g.earliest_of_many[wide] = min(g.earliest_of_many[wide], g.earliest[block])
