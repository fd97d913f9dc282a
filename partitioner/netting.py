"""Application of an epoch's events to the graph, one after the other; the log keeps the previous state.

Adding an edge again sets what it carries; deleting what is not there does nothing; edges bring unknown vertices to
life; a deleted vertex takes its edges along; undirected events act both ways, on a self-loop once. Where a relation
mirrors another one, events of that one act on both. Its ends, its type and its key say which edge an event is about.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch, prefetch_row
from freshet.partitioner import epoch_log as e
from freshet.partitioner import graph_tables as t
from freshet.partitioner.config import (
    LOOP_IN_RELATION,
    LOOP_OF_SECOND_KEY,
    LOOP_OF_SECOND_TYPE,
    ONE_TYPE_TOO_MANY,
    OTHER_ATTR_WIDTH,
)
from freshet.partitioner.deletions import (
    EDGES_PER_EVENT,
    count_type,
    delete_edge,
    delete_parallel,
    delete_vertex,
    fits,
    parallel_both_ways,
)
from freshet.partitioner.edge_keys import (
    EdgeIndex,
    Keys,
    find_row,
    first_parallel,
    has_room_for_key,
    hash_of_event,
    link_parallel,
    set_key,
)
from freshet.partitioner.edge_types import TypeCounts
from freshet.partitioner.epoch_log import Log, log_edge, log_vertex, notes_events
from freshet.partitioner.events import OP_ADD_EDGE, OP_DEL_EDGE, OP_DEL_EDGES, OP_DEL_VERTEX
from freshet.partitioner.graph_tables import GraphView, is_edge, stamp, value_column
from freshet.partitioner.hash_index import home_of, put, row_at
from freshet.state.table import touch

AHEAD = 128  # events that are prepared together
ITSELF = -2  # of mirrors: edges of every type, whatever they are, follow those of their own type


class Batch(NamedTuple):
    """An epoch's events over vertex rows; -1 for ids that nobody knows."""

    op: np.ndarray  # (n,) uint8
    a: np.ndarray  # (n,) int32
    b: np.ndarray  # (n,) int32
    values: np.ndarray  # (values, n) float32, of edges that are added
    etype: np.ndarray  # (n,) int32
    x_row: np.ndarray  # (n,) int32
    attr: np.ndarray  # (n,) int32, the size of its attr or -1; or (0,) where no event has attr
    ts: np.ndarray  # (n,) int64, its `ts` or NEVER; or (0,) where no event has one, or none is kept
    keys: Keys


@inner
def _link(g: GraphView, index: EdgeIndex, row: int) -> None:
    """Put an edge in front of its source's out-list and its destination's in-list."""
    link_parallel(index, g, row)
    vertex, edge = g.vertex.data, g.edge.data
    for way in range(2):
        at, head, following = edge[row, t.SRC + way], t.OUT_HEAD + way, t.OUT_NEXT + 2 * way
        first = vertex[at, head]
        edge[row, following] = first
        edge[row, following + 1] = -1
        if first >= 0:
            touch(g.edge, first)
            edge[first, following + 1] = row
        vertex[at, head] = row
        vertex[at, t.OUT_DEGREE + way] += 1
    vertex[edge[row, t.DST], t.LOOPS] += edge[row, t.SRC] == edge[row, t.DST]
    g.scalars[t.EDGES] += 1


@inner
def _new_edge_row(scalars: np.ndarray, edge: np.ndarray) -> int:
    if scalars[t.FREE_EDGE]:
        row = scalars[t.FREE_EDGE] - 1
        scalars[t.FREE_EDGE] = edge[row, t.SRC]
        return row
    scalars[t.EDGE_ROWS] += 1
    return scalars[t.EDGE_ROWS] - 1


@inner
def _carries(g: GraphView, row: int, batch: Batch, i: int) -> bool:
    """Return whether the edge in `row` has the values of the event's edge."""
    for k in range(g.values):
        if g.carried[row, value_column(k)] != batch.values[k, i]:
            return False
    return True


@inner
def _ts_of(batch: Batch, i: int) -> np.int64:
    return np.int64(batch.ts[i]) if len(batch.ts) else np.int64(t.NEVER)


@inner
def _set_edge(
    g: GraphView, types: TypeCounts, index: EdgeIndex, log: Log, src: int, dst: int, etype: int, batch: Batch, i: int
) -> None:
    """Add an edge between logged vertices, or set what it carries, as the event says."""
    edge = g.edge.data
    row = find_row(index, g, src, dst, etype, batch.keys, i)
    if row < 0:
        row = _new_edge_row(g.scalars, edge)
        touch(g.edge, row)
        edge[row, t.SRC] = src
        edge[row, t.DST] = dst
        edge[row, t.TYPE] = etype
        edge[row, t.PART] = -1
        edge[row, t.EDGE_MARK] = 0
        g.carried[row, t.VALUE] = np.nan
        set_key(g, row, batch.keys, i)
        put(index.rows, hash_of_event(index, g, src, dst, etype, batch.keys, i), row)
    touch(g.edge, row)
    was = is_edge(g, row)
    log_edge(log, g, row)
    if notes_events(log, g):
        log.edges[edge[row, t.EDGE_MARK] - 1, e.E_OLD + g.values] = i
    for k in range(g.values):
        # -0.0 becomes 0.0: equal values have equal bits
        g.carried[row, value_column(k)] = batch.values[k, i] + np.float32(0)
    stamp(g, row, _ts_of(batch, i))
    if not was:
        _link(g, index, row)
        count_type(types, etype, 1)


@inner
def _revive(g: GraphView, log: Log, row: int) -> None:
    """Log a vertex, and bring it to life where it is not alive."""
    at = log_vertex(log, g.vertex.data, row)
    if not g.vertex.data[row, t.LIVE]:
        log.vertices[at, e.V_X] = e.ZEROED
        g.vertex.data[row, t.LIVE] = 1
        g.scalars[t.VERTICES] += 1


@inner
def _find_live(g: GraphView, index: EdgeIndex, src: int, dst: int, etype: int, batch: Batch, i: int) -> np.int64:
    """The row of the edge, or -1 where it is not there (any more)."""
    row = np.int64(-1)
    if src >= 0 and dst >= 0:
        row = find_row(index, g, src, dst, etype, batch.keys, i)
        if row >= 0 and not is_edge(g, row):
            row = np.int64(-1)
    return row


@inner
def _prepare(start: int, stop: int, batch: Batch, g: GraphView, index: EdgeIndex) -> None:
    """Touch the vertices of the next events, and ask for all that these will read, which is mostly waited for."""
    vertex, edge, rows = g.vertex, g.edge.data, index.rows
    for i in range(start, stop):
        a, b = batch.a[i], batch.b[i]
        for row in (a, b):
            if row >= 0:
                touch(vertex, row)
                prefetch_row(vertex.data, row)
        if a >= 0 and b >= 0:
            prefetch(rows.entries, home_of(rows, hash_of_event(index, g, a, b, batch.etype[i], batch.keys, i)))
    for i in range(start, stop):
        a, b = batch.a[i], batch.b[i]
        if a >= 0 and b >= 0:
            same = row_at(rows, home_of(rows, hash_of_event(index, g, a, b, batch.etype[i], batch.keys, i)))
            for row in (same, np.int64(vertex.data[a, t.OUT_HEAD]), np.int64(vertex.data[b, t.IN_HEAD])):
                prefetch_row(edge, max(row, 0))


@inner
def _reason_against(
    batch: Batch, i: int, row: int, g: GraphView, types: TypeCounts, index: EdgeIndex, one_loop: np.ndarray
) -> int:
    """Return the reason to reject an add_edge (of the edge in `row`, -1: a new one), or 0."""
    a, etype, width = batch.a[i], batch.etype[i], g.scalars[t.ATTR_WIDTH]
    if len(batch.attr) and batch.attr[i] >= 0 and width and width != batch.attr[i] + 1:
        return OTHER_ATTR_WIDTH
    if a == batch.b[i] and row < 0 and len(one_loop) and g.vertex.data[a, t.LOOPS]:
        is_parallel = g.key_kind > 0 and first_parallel(index, g, a, a, etype) >= 0
        if g.scalars[t.RELATIONS] == 0:
            return LOOP_OF_SECOND_KEY if is_parallel else LOOP_OF_SECOND_TYPE
        if one_loop[etype] and is_parallel:
            return LOOP_IN_RELATION
    if etype >= types.kept and types.uses[etype] == 0 and types.live[0] >= types.bound:
        return ONE_TYPE_TOO_MANY
    return 0


@inner
def _mirror_of(mirrors: np.ndarray, etype: int) -> np.int64:
    """The type whose edges follow those of a type, the other way round; -1: none does."""
    if len(mirrors) == 0:
        return np.int64(-1)
    return np.int64(etype) if mirrors[0] == ITSELF else np.int64(mirrors[etype])


@inner
def _reject(log: Log, event: int, reason: int) -> None:
    at = log.counts[e.REJECTED]
    log.rejected[at, e.REJECTED_EVENT] = event
    log.rejected[at, e.REJECTED_REASON] = reason
    log.counts[e.REJECTED] = at + 1


@inner
def _renew(g: GraphView, row: int, other: int, ts: int) -> bool:
    """Set the time of an edge that was added again, and of that which follows it; return whether it had that time."""
    same = not g.is_timed or g.times.data[row] == ts
    stamp(g, row, ts)
    if other >= 0:
        stamp(g, other, ts)
    return same


@inner
def _count_deletion(log: Log, of_nothing: bool) -> None:
    log.counts[e.DELETIONS] += 1
    log.counts[e.NOTHING_DELETED] += of_nothing


@inner
def _delete_edges(
    g: GraphView, types: TypeCounts, index: EdgeIndex, log: Log, batch: Batch, i: int, mirror: int, ways: int
) -> None:
    """Delete the edge of an event, or all edges of its pair, and those that follow them."""
    a, b, etype, edges = np.int64(batch.a[i]), np.int64(batch.b[i]), np.int64(batch.etype[i]), g.scalars[t.EDGES]
    for way in range(ways):
        src, dst, of = (b, a, mirror) if way else (a, b, etype)
        if batch.op[i] == OP_DEL_EDGES:
            delete_parallel(g, types, index, log, src, dst, of)
        else:
            row = _find_live(g, index, src, dst, of, batch, i)
            if row >= 0:
                delete_edge(g, types, index, log, row)
    _count_deletion(log, g.scalars[t.EDGES] == edges)


@kernel
def apply_events(
    start: int, stop: int, batch: Batch, g: GraphView, types: TypeCounts, index: EdgeIndex, log: Log,
    mirrors: np.ndarray, one_loop: np.ndarray,
) -> int:  # fmt: skip
    """Apply the events `start` to `stop`; stops before one that the log may have no room for, else returns `stop`.

    Shapes: mirrors (types,) int32, by type the one that follows it; (0,): none does; (1,) of ITSELF: each does.
    one_loop (relations,) bool, those in which a vertex has one self-loop at most; without relations any one number says
    so of all types; (0,): it may have several
    """
    op, prepared = batch.op, start
    for i in range(start, stop):
        if i == prepared:
            prepared = min(i + AHEAD, stop)
            _prepare(i, prepared, batch, g, index)
        if not fits(log, g.scalars[t.VERTEX_ROWS], EDGES_PER_EVENT) or not has_room_for_key(g, batch.keys, i):
            return i
        a, b, etype = np.int64(batch.a[i]), np.int64(batch.b[i]), np.int64(batch.etype[i])
        mirror = _mirror_of(mirrors, etype)
        ways = 2 if mirror >= 0 and (a != b or mirror != etype) else 1
        if op[i] == OP_ADD_EDGE:
            row = _find_live(g, index, a, b, etype, batch, i)
            reason = _reason_against(batch, i, row, g, types, index, one_loop)
            if reason:
                _reject(log, i, reason)
                continue
            if len(batch.attr) and batch.attr[i] >= 0:
                g.scalars[t.ATTR_WIDTH] = batch.attr[i] + 1
            log.counts[e.REPLACED] += row >= 0
            if row >= 0 and _carries(g, row, batch, i) and not notes_events(log, g):
                both = ways == 2 and g.is_timed
                other = _find_live(g, index, b, a, mirror, batch, i) if both else np.int64(-1)
                log.counts[e.NO_CHANGE] += _renew(g, row, other, _ts_of(batch, i))
                continue
            for way in range(2):
                _revive(g, log, b if way else a)
            for way in range(ways):
                src, dst, of = (b, a, mirror) if way else (a, b, etype)
                _set_edge(g, types, index, log, src, dst, of, batch, i)
        elif op[i] >= OP_DEL_EDGE:
            if op[i] == OP_DEL_EDGES:
                count = parallel_both_ways(g, index, a, b, etype, mirror, ways)
                if not fits(log, g.scalars[t.VERTEX_ROWS], count + 1):
                    return i
            _delete_edges(g, types, index, log, batch, i, mirror, ways)
        elif op[i] == OP_DEL_VERTEX:
            if a < 0 or not g.vertex.data[a, t.LIVE]:
                _count_deletion(log, True)
                continue
            edges = g.vertex.data[a, t.OUT_DEGREE] + g.vertex.data[a, t.IN_DEGREE]
            if not fits(log, g.scalars[t.VERTEX_ROWS], edges + 1):
                return i
            _count_deletion(log, False)
            delete_vertex(g, types, index, log, a)
        else:
            log.counts[e.NO_CHANGE] += g.vertex.data[a, t.LIVE] != 0 and batch.x_row[i] < 0
            _revive(g, log, a)
            if batch.x_row[i] >= 0:
                log.vertices[g.vertex.data[a, t.MARK] - 1, e.V_X] = batch.x_row[i]
    return stop
