"""The events of an epoch, one after the other, on the graph itself; the log keeps what was there before.

Adding an edge again sets its weight; deleting what is not there is counted; edges bring unknown vertices to life; a
deleted vertex takes its edges along; undirected events act both ways, on a self-loop once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from partitioner.config import LOOP_OF_SECOND_TYPE
from partitioner.events import OP_ADD_EDGE, OP_DEL_EDGE, OP_DEL_VERTEX
from partitioner.index import EdgeIndex, find_edge, put_edge
from partitioner.log import LOGGED_EDGES, LOGGED_VERTICES, REJECTED, V_X, ZEROED, Log, log_edge, log_vertex
from partitioner.tables import (
    DST,
    EDGE_MARK,
    EDGE_ROWS,
    EDGES,
    FREE_EDGE,
    IN_DEGREE,
    IN_HEAD,
    LIVE,
    LOOPS,
    MARK,
    MISSING_EDGE_DELETES,
    MISSING_VERTEX_DELETES,
    OUT_DEGREE,
    OUT_HEAD,
    OUT_NEXT,
    PART,
    SRC,
    TYPE,
    UNCHANGED_EDGES,
    UNCHANGED_VERTICES,
    VERTEX_ROWS,
    VERTICES,
    WEIGHT,
    GraphView,
)
from state.table import View, touch


@njit(nogil=True, cache=True)
def _attach(scalars: np.ndarray, vertex: np.ndarray, edge: View, row: int) -> None:
    """Put an edge in front of its source's out-list and its destination's in-list."""
    data = edge.data
    for way in range(2):
        at, head, following = data[row, SRC + way], OUT_HEAD + way, OUT_NEXT + 2 * way
        first = vertex[at, head]
        data[row, following] = first
        data[row, following + 1] = -1
        if first >= 0:
            touch(edge, first)
            data[first, following + 1] = row
        vertex[at, head] = row
        vertex[at, OUT_DEGREE + way] += 1
    vertex[data[row, DST], LOOPS] += data[row, SRC] == data[row, DST]
    scalars[EDGES] += 1


@njit(nogil=True, cache=True)
def _detach(scalars: np.ndarray, vertex: np.ndarray, edge: View, row: int) -> None:
    """Take an edge out of its lists."""
    data = edge.data
    for way in range(2):
        at, head, following = data[row, SRC + way], OUT_HEAD + way, OUT_NEXT + 2 * way
        for step in range(2):  # the edge before gets the edge after as its next one, and the other way round
            near, far = data[row, following + 1 - step], data[row, following + step]
            if near >= 0:
                touch(edge, near)
                data[near, following + step] = far
            elif step == 0:
                vertex[at, head] = far
        vertex[at, OUT_DEGREE + way] -= 1
    vertex[data[row, DST], LOOPS] -= data[row, SRC] == data[row, DST]
    scalars[EDGES] -= 1


@njit(nogil=True, cache=True)
def _delete(scalars: np.ndarray, vertex: View, edge: View, weight: np.ndarray, log: Log, row: int) -> None:
    """The edge in `row`, which is there, goes."""
    log_edge(log.n, log.edges, log.old, edge, row, weight[row, WEIGHT])
    for way in range(2):
        log_vertex(log.n, log.vertices, vertex, edge.data[row, SRC + way])
    weight[row, WEIGHT] = np.nan
    _detach(scalars, vertex.data, edge, row)


@njit(nogil=True, cache=True)
def _new_edge(scalars: np.ndarray, edge: np.ndarray) -> int:
    if scalars[FREE_EDGE]:
        row = scalars[FREE_EDGE] - 1
        scalars[FREE_EDGE] = edge[row, SRC]
        return row
    scalars[EDGE_ROWS] += 1
    return scalars[EDGE_ROWS] - 1


@njit(nogil=True, cache=True)
def _add(
    scalars: np.ndarray,
    vertex: np.ndarray,
    edge: View,
    weight: np.ndarray,
    index: EdgeIndex,
    log: Log,
    src: int,
    dst: int,
    etype: int,
    value: float,
) -> bool:
    """Add the edge between logged vertices, or set its weight; False where nothing changes."""
    row = find_edge(index, edge.data, src, dst, etype)
    if row >= 0:
        old = weight[row, WEIGHT]
        if old == value:
            return False
        log_edge(log.n, log.edges, log.old, edge, row, old)
        weight[row, WEIGHT] = value
        if np.isnan(old):
            _attach(scalars, vertex, edge, row)
        return True
    row = _new_edge(scalars, edge.data)
    touch(edge, row)
    edge.data[row, SRC] = src
    edge.data[row, DST] = dst
    edge.data[row, TYPE] = etype
    edge.data[row, PART] = -1
    edge.data[row, EDGE_MARK] = 0
    weight[row, WEIGHT] = np.nan
    log_edge(log.n, log.edges, log.old, edge, row, weight[row, WEIGHT])
    weight[row, WEIGHT] = value
    put_edge(index, src, dst, etype, row)
    _attach(scalars, vertex, edge, row)
    return True


@njit(nogil=True, cache=True)
def _revive(scalars: np.ndarray, vertex: View, log: Log, row: int) -> bool:
    """Log a vertex and bring it to life; False where it was there already."""
    at = log_vertex(log.n, log.vertices, vertex, row)
    if vertex.data[row, LIVE]:
        return False
    log.vertices[at, V_X] = ZEROED
    vertex.data[row, LIVE] = 1
    scalars[VERTICES] += 1
    return True


@njit(nogil=True, cache=True)
def _find_live(index: EdgeIndex, edge: np.ndarray, weight: np.ndarray, src: int, dst: int, etype: int) -> int:
    """The row of the edge, or -1 where it is not there (any more)."""
    if src < 0 or dst < 0:
        return -1
    row = find_edge(index, edge, src, dst, etype)
    return row if row >= 0 and not np.isnan(weight[row, WEIGHT]) else -1


@njit(nogil=True, cache=True)
def _fits(log: Log, rows: int, more: int) -> bool:
    """Whether `more` edges, and as many vertices but no more than there are rows, fit the log."""
    vertices = min(log.n[LOGGED_VERTICES] + more, rows)
    return log.n[LOGGED_EDGES] + more <= len(log.edges) and vertices <= len(log.vertices)


@njit(nogil=True, cache=True)
def apply_events(
    start: int,
    op: np.ndarray,
    rows_a: np.ndarray,
    rows_b: np.ndarray,
    weights: np.ndarray,
    etypes: np.ndarray,
    x_rows: np.ndarray,
    g: GraphView,
    index: EdgeIndex,
    log: Log,
    undirected: bool,
    one_loop: bool,
) -> int:
    """Apply the events from `start` on; stops before a vertex deletion that the log has no room for."""
    scalars, vertex, edge, weight = g.scalars, g.vertex, g.edge, g.weight
    for i in range(start, len(op)):
        a, b, etype = np.int64(rows_a[i]), np.int64(rows_b[i]), etypes[i]
        if op[i] == OP_ADD_EDGE:
            if one_loop and a == b and vertex.data[a, LOOPS] and _find_live(index, edge.data, weight, a, a, etype) < 0:
                log.rejected[log.n[REJECTED], 0] = i
                log.rejected[log.n[REJECTED], 1] = LOOP_OF_SECOND_TYPE
                log.n[REJECTED] += 1
                continue
            for end in (a, b):
                _revive(scalars, vertex, log, end)
            value = weights[i] + np.float32(0)  # -0.0 becomes 0.0: equal weights have equal bits
            changed = False
            for way in range(2 if undirected and a != b else 1):
                src, dst = (b, a) if way else (a, b)
                changed |= _add(scalars, vertex.data, edge, weight, index, log, src, dst, etype, value)
            scalars[UNCHANGED_EDGES] += not changed
        elif op[i] == OP_DEL_EDGE:
            missing = True
            for way in range(2 if undirected and a != b else 1):
                src, dst = (b, a) if way else (a, b)
                row = _find_live(index, edge.data, weight, src, dst, etype)
                if row >= 0:
                    missing = False
                    _delete(scalars, vertex, edge, weight, log, row)
            scalars[MISSING_EDGE_DELETES] += missing
        elif op[i] == OP_DEL_VERTEX:
            if a < 0 or not vertex.data[a, LIVE]:
                scalars[MISSING_VERTEX_DELETES] += 1
                continue
            edges = vertex.data[a, OUT_DEGREE] + vertex.data[a, IN_DEGREE]
            if not _fits(log, scalars[VERTEX_ROWS], edges + 2 * (len(op) - i)):  # a later event logs up to two
                return i
            log_vertex(log.n, log.vertices, vertex, a)
            for head in range(OUT_HEAD, IN_HEAD + 1):
                while vertex.data[a, head] >= 0:
                    _delete(scalars, vertex, edge, weight, log, np.int64(vertex.data[a, head]))
            vertex.data[a, LIVE] = 0
            scalars[VERTICES] -= 1
        else:
            born = _revive(scalars, vertex, log, a)
            if x_rows[i] >= 0:
                log.vertices[vertex.data[a, MARK] - 1, V_X] = x_rows[i]
            else:
                scalars[UNCHANGED_VERTICES] += not born
    return len(op)
