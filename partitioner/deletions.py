"""Edges and vertices that go: by an event, with an end, with their parallel edges, or since their time is over."""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.partitioner import epoch_log as e
from freshet.partitioner import graph_tables as t
from freshet.partitioner.edge_keys import EdgeIndex, count_parallel, first_parallel, unlink_parallel
from freshet.partitioner.edge_types import TypeCounts
from freshet.partitioner.epoch_log import Log, log_edge, log_vertex
from freshet.partitioner.graph_tables import GraphView, stamp
from freshet.state.table import touch

EDGES_PER_EVENT = 2  # that an event logs at most, and vertices too, but for deletions of many edges


@inner
def count_type(types: TypeCounts, etype: int, more: int) -> None:
    """An edge of the type comes or goes; types that are kept for good are not counted."""
    if etype >= types.kept:
        before = types.uses[etype]
        types.uses[etype] = before + more
        types.live[0] += np.int64(before + more > 0) - np.int64(before > 0)


@inner
def fits(log: Log, rows: int, more: int) -> bool:
    """Return whether the log has room for `more` edges, as many vertices (at most all rows), and a rejection."""
    log.counts[e.NEEDED] = more
    counts, vertices = log.counts, min(log.counts[e.LOGGED_VERTICES] + more, rows)
    edges = counts[e.LOGGED_EDGES] + more
    return edges <= len(log.edges) and vertices <= len(log.vertices) and counts[e.REJECTED] < len(log.rejected)


@inner
def delete_edge(g: GraphView, types: TypeCounts, index: EdgeIndex, log: Log, row: int) -> None:
    """The edge in `row`, which is there, goes. Its ends were touched."""
    vertex, edge = g.vertex.data, g.edge.data
    touch(g.edge, row)
    log_edge(log, g, row)
    g.carried[row, t.VALUE] = np.nan
    stamp(g, row, t.NEVER)
    unlink_parallel(index, g, row)
    for way in range(2):
        at, head, following = edge[row, t.SRC + way], t.OUT_HEAD + way, t.OUT_NEXT + 2 * way
        log_vertex(log, vertex, at)
        for step in range(2):  # the edge before gets the edge after as its next one, and the other way round
            near, far = edge[row, following + 1 - step], edge[row, following + step]
            if near >= 0:
                touch(g.edge, near)
                edge[near, following + step] = far
            elif step == 0:
                vertex[at, head] = far
        vertex[at, t.OUT_DEGREE + way] -= 1
    vertex[edge[row, t.DST], t.LOOPS] -= edge[row, t.SRC] == edge[row, t.DST]
    g.scalars[t.EDGES] -= 1
    count_type(types, edge[row, t.TYPE], -1)


@inner
def delete_vertex(g: GraphView, types: TypeCounts, index: EdgeIndex, log: Log, row: int) -> None:
    """The vertex in `row`, which is alive, goes, and its edges first."""
    vertex = g.vertex.data
    touch(g.vertex, row)
    log_vertex(log, vertex, row)
    for way in range(2):
        while vertex[row, t.OUT_HEAD + way] >= 0:
            first = np.int64(vertex[row, t.OUT_HEAD + way])
            touch(g.vertex, g.edge.data[first, t.DST - way])
            delete_edge(g, types, index, log, first)
    vertex[row, t.LIVE] = 0
    g.scalars[t.VERTICES] -= 1


@inner
def parallel_both_ways(g: GraphView, index: EdgeIndex, a: int, b: int, etype: int, mirror: int, ways: int) -> np.int64:
    """Return the number of edges that an event about all keys of a pair acts on; none without keys."""
    count = np.int64(0)
    for way in range(ways if g.key_kind and a >= 0 and b >= 0 else 0):
        src, dst, of = (b, a, mirror) if way else (a, b, etype)
        count += count_parallel(index, g, src, dst, of)
    return count


@inner
def delete_parallel(
    g: GraphView, types: TypeCounts, index: EdgeIndex, log: Log, src: int, dst: int, etype: int
) -> None:
    """Delete all edges of a pair and type, the first one last: the index of pairs changes once."""
    if not g.key_kind or src < 0 or dst < 0:
        return
    first = first_parallel(index, g, src, dst, etype)
    if first < 0:
        return
    while g.keys.data[first, t.PAIR_NEXT] >= 0:
        delete_edge(g, types, index, log, np.int64(g.keys.data[first, t.PAIR_NEXT]))
    delete_edge(g, types, index, log, first)


@kernel
def expire_edges(start: int, before: int, g: GraphView, types: TypeCounts, index: EdgeIndex, log: Log) -> int:
    """Delete the edges whose `ts` is less than `before`, in the order of their rows, from block `start` on.

    Stops before an edge that the log may have no room for, and returns its block; else returns the number of blocks.
    """
    times, edge = g.times.data, g.edge.data
    each, many = g.earliest, g.earliest_of_many
    block = start
    while block < len(each):
        wide = block >> t.BLOCK_SHIFT
        if many[wide] >= before:
            block = (wide + 1) << t.BLOCK_SHIFT
            continue
        if each[block] < before:
            least = np.int64(t.NEVER)
            for row in range(block << t.BLOCK_SHIFT, min((block + 1) << t.BLOCK_SHIFT, len(times))):
                ts = times[row]
                if ts >= before:
                    least = min(least, ts)
                    continue
                if not fits(log, g.scalars[t.VERTEX_ROWS], EDGES_PER_EVENT):
                    return block
                touch(g.vertex, edge[row, t.SRC])
                touch(g.vertex, edge[row, t.DST])
                delete_edge(g, types, index, log, row)
            each[block] = least
        block += 1
        if block & ((1 << t.BLOCK_SHIFT) - 1) == 0 or block == len(each):
            many[wide] = t.NEVER
            for one in range(wide << t.BLOCK_SHIFT, block):
                many[wide] = min(many[wide], each[one])
    return len(each)
