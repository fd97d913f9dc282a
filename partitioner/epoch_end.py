"""The end of an epoch: from the log to the net change, with placement, slots, contexts, and free rows given back.

Invariants (tests/unit/partitioner checks them against a slow reference):
    a vertex has a slot in part q if and only if q is its master or one of its edges lives in q;
    degree = sum of the weights of the in-edges that are no self-loops, exactly 0 where there are none;
    a slot that is freed in an epoch is handed out again from the next epoch on.
"""

from __future__ import annotations

import numpy as np

from partitioner.degrees import emit_vertices, weigh
from partitioner.epoch_log import E_OLD, E_ROW, LOGGED_EDGES, LOGGED_VERTICES, V_CONTEXT, V_ROW, V_WAS_LIVE, Log
from partitioner.graph_tables import (
    AWAY,
    DST,
    EDGE_MARK,
    FREE_EDGE,
    FREE_VERTEX,
    KEY,
    LIVE,
    MARK,
    MASTER,
    MASTERS,
    OUT_HEAD,
    PART,
    PART_EDGES,
    SLOTS,
    SRC,
    TYPE,
    WEIGHT,
    GraphView,
)
from partitioner.hash_index import HashIndex, drop, hash_edge
from partitioner.net_change import DELETED, DROPS, NEW, REWEIGHTED, Out
from partitioner.placement import Rule, place_edges, place_isolated
from partitioner.slots import assign_slots, free_slots
from partitioner.string_ids import free_name, stored_hash
from state.kernel import kernel
from state.salt import mix


@kernel
def _emit_edge(records: np.ndarray, at: int, vertex: np.ndarray, edge: np.ndarray, row: int) -> None:
    part = edge[row, PART]
    records[0, at] = part
    records[1, at] = vertex[edge[row, SRC], SLOTS + part]
    records[2, at] = vertex[edge[row, DST], SLOTS + part]


@kernel
def _unplace(parts: np.ndarray, vertex: np.ndarray, edge: np.ndarray, row: int) -> None:
    """A deleted edge leaves counts and loads."""
    src, dst, part = edge[row, SRC], edge[row, DST], edge[row, PART]
    n = len(parts)
    vertex[dst, SLOTS + n + part] -= 1
    vertex[src, SLOTS + 2 * n + part] -= 1
    vertex[dst, AWAY] -= vertex[dst, MASTER] != part
    parts[part, PART_EDGES] -= 1


@kernel
def _net_edges(g: GraphView, log: Log, out: Out) -> None:
    """Sort the logged edges into deleted, reweighted and added ones; the first two are done with here."""
    vertex, edge, weight, n = g.vertex.data, g.edge.data, g.weight, out.n
    gone, rew = out.gone.view(np.float32), out.rew.view(np.float32)
    for k in range(log.n[LOGGED_EDGES]):
        row, old = log.edges[k, E_ROW], log.old[k, E_OLD]
        new = weight[row, WEIGHT]
        was, now = not np.isnan(old), not np.isnan(new)
        if (not was and not now) or old == new:
            continue
        src, dst = edge[row, SRC], edge[row, DST]
        log.vertices[vertex[dst, MARK] - 1, V_CONTEXT] = 1
        if src != dst:
            weigh(g.real, dst, old, new)
        if not was:
            out.added[n[NEW]] = row
            n[NEW] += 1
        elif now:
            at = n[REWEIGHTED]
            n[REWEIGHTED] += 1
            _emit_edge(out.rew, at, vertex, edge, row)
            rew[3, at], rew[4, at] = old, new
        else:
            at = n[DELETED]
            n[DELETED] += 1
            _emit_edge(out.gone, at, vertex, edge, row)
            gone[3, at] = old
            _unplace(g.parts, vertex, edge, row)


@kernel
def _unload_dead(n: np.ndarray, entries: np.ndarray, parts: np.ndarray, vertex: np.ndarray) -> None:
    for k in range(n[LOGGED_VERTICES]):
        row = entries[k, V_ROW]
        if entries[k, V_WAS_LIVE] and not vertex[row, LIVE]:
            parts[vertex[row, MASTER], MASTERS] -= 1


@kernel
def _emit_added(vertex: np.ndarray, edge: np.ndarray, weight: np.ndarray, added: np.ndarray, add: np.ndarray) -> None:
    weights = add.view(np.float32)
    for k in range(len(added)):
        _emit_edge(add, k, vertex, edge, added[k])
        weights[3, k] = weight[added[k], WEIGHT]


@kernel
def _free_edges(scalars: np.ndarray, edge: np.ndarray, weight: np.ndarray, log: Log, index: HashIndex) -> None:
    for k in range(log.n[LOGGED_EDGES]):
        row = log.edges[k, E_ROW]
        edge[row, EDGE_MARK] = 0
        if np.isnan(weight[row, WEIGHT]):
            drop(index, hash_edge(index.salt, edge[row, SRC], edge[row, DST], edge[row, TYPE]), row)
            edge[row, SRC] = scalars[FREE_EDGE]
            scalars[FREE_EDGE] = row + 1


@kernel
def _free_vertices(g: GraphView, log: Log, index: HashIndex, strings: bool, bits: int) -> None:
    scalars, vertex = g.scalars, g.vertex.data
    for k in range(log.n[LOGGED_VERTICES]):
        row = log.vertices[k, V_ROW]
        vertex[row, MARK] = 0
        if vertex[row, LIVE]:
            continue
        key = g.wide[row, KEY]
        drop(index, mix(index.salt, key), row)
        if strings:
            hashed = stored_hash(index.salt, vertex, g.words.data, row, bits)
            if hashed != key:
                drop(index, mix(index.salt, hashed), row)
            free_name(scalars, vertex, g.words, row)
        vertex[row, OUT_HEAD] = scalars[FREE_VERTEX]
        scalars[FREE_VERTEX] = row + 1


@kernel
def close_epoch(
    g: GraphView, log: Log, out: Out, keys: HashIndex, edges: HashIndex, strings: bool, bits: int, rule: Rule
) -> None:
    """Write the net change of the logged epoch to `out`, and bring all tables to the state after it."""
    vertex, edge = g.vertex.data, g.edge.data
    out.n[:] = 0
    _net_edges(g, log, out)
    added = out.added[: out.n[NEW]]
    _unload_dead(log.n, log.vertices, g.parts, vertex)
    place_edges(g.parts, vertex, g.wide, edge, added, rule)
    place_isolated(log.n, log.vertices, g.parts, vertex, g.wide, rule)
    assign_slots(g, log, out)
    _emit_added(vertex, edge, g.weight, added, out.add)
    emit_vertices(g, log, out, edges)
    free_slots(g.parts, vertex, g.chain, out.drop, out.n[DROPS])
    _free_edges(g.scalars, edge, g.weight, log, edges)
    _free_vertices(g, log, keys, strings, bits)
