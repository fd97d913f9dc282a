"""Vertices and edges touched in an epoch, with their previous state: memory from which the net change is read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner
from freshet.partitioner.graph_tables import AWAY, EDGE_MARK, LIVE, MARK, GraphView, value_column

LOGGED_EDGES, LOGGED_VERTICES, REJECTED, EFFECTS = range(4)  # positions in `counts`; the `Effects` go from there on
REPLACED, NO_CHANGE, DELETIONS, NOTHING_DELETED = range(EFFECTS, EFFECTS + 4)
NEEDED = EFFECTS + 4  # edges that the event may log for which there was no room
# Columns of `edges`. From E_OLD on: the edge's values before, float32; the first is NaN where there was no edge. Behind
# them, where edges have attributes, is the epoch's event that added the edge last.
E_ROW, E_OLD = range(2)
# Columns of `vertices`. V_X: the row of x that sets its features; V_CONTEXT: whether its in-edges changed.
V_ROW, V_WAS_LIVE, V_WAS_SPLIT, V_X, V_CONTEXT = range(5)
REJECTED_EVENT, REJECTED_REASON = range(2)  # columns of `rejected`
UNCHANGED, ZEROED = -1, -2  # values of V_X beside rows of x
ENTRIES_MIN = 1024


class Log(NamedTuple):
    """First touches of edges and vertices in the order of the events, and rejected events."""

    counts: np.ndarray  # (8,) int64
    edges: np.ndarray  # (capacity, 1 + values, or one more) int32
    old: np.ndarray  # the same as float32
    vertices: np.ndarray  # (capacity, 5) int32
    rejected: np.ndarray  # (capacity, 2) int32


def empty_log(values: int, *, attributed: bool = False) -> Log:
    """A log without room, for edges of `values` values each, and attributes."""
    edges = np.empty((0, E_OLD + values + attributed), np.int32)
    vertices, rejected = np.empty((0, 5), np.int32), np.empty((0, 2), np.int32)
    return Log(np.zeros(8, np.int64), edges, edges.view(np.float32), vertices, rejected)


def grow_log(log: Log, vertices: int, edges: int, events: int) -> Log:
    """The log with room for at least that many entries in all."""

    def grown(array: np.ndarray, rows: int) -> np.ndarray:
        if rows <= len(array):
            return array
        larger = np.empty((max(rows, len(array) + len(array) // 2, ENTRIES_MIN), array.shape[1]), array.dtype)
        larger[: len(array)] = array
        return larger

    if vertices <= len(log.vertices) and edges <= len(log.edges) and events <= len(log.rejected):
        return log
    more = grown(log.edges, edges)
    return Log(log.counts, more, more.view(np.float32), grown(log.vertices, vertices), grown(log.rejected, events))


@inner
def notes_events(log: Log, g: GraphView) -> bool:
    """Return whether entries of edges say which event added the edge last: that one has its attributes."""
    return log.edges.shape[1] > E_OLD + g.values


@inner
def log_vertex(log: Log, vertex: np.ndarray, row: int) -> int:
    """The entry of a vertex (a row that was touched), made when it is first asked for."""
    if vertex[row, MARK]:
        return vertex[row, MARK] - 1
    entries, at = log.vertices, log.counts[LOGGED_VERTICES]
    log.counts[LOGGED_VERTICES] = at + 1
    vertex[row, MARK] = at + 1
    entries[at, V_ROW] = row
    entries[at, V_WAS_LIVE] = vertex[row, LIVE]
    entries[at, V_WAS_SPLIT] = vertex[row, AWAY] > 0
    entries[at, V_X] = UNCHANGED
    entries[at, V_CONTEXT] = 0
    return at


@inner
def log_edge(log: Log, g: GraphView, row: int) -> None:
    """Make the entry of an edge (a row that was touched) with what it carries, if it has none."""
    edge = g.edge.data
    if edge[row, EDGE_MARK] == 0:
        at = log.counts[LOGGED_EDGES]
        log.counts[LOGGED_EDGES] = at + 1
        edge[row, EDGE_MARK] = at + 1
        log.edges[at, E_ROW] = row
        for k in range(g.values):
            log.old[at, E_OLD + k] = g.carried[row, value_column(k)]
