"""The end of an epoch: the log of what it touched becomes its net change, and the tables the state after it.

Invariants (tests/unit/partitioner checks them against a slow reference):
    a vertex has a slot in part q if and only if q is its master or one of its edges lives in q;
    a slot that is freed in an epoch is handed out again from the next epoch on.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.partitioner import epoch_log as e
from freshet.partitioner import graph_tables as t
from freshet.partitioner import net_change as net
from freshet.partitioner.degrees import emit_degrees, emit_masters, note_context, note_degree
from freshet.partitioner.edge_keys import EdgeIndex, drop_key, hash_of_row
from freshet.partitioner.epoch_log import Log, notes_events
from freshet.partitioner.graph_tables import GraphView, is_edge, value_column
from freshet.partitioner.hash_index import HashIndex, drop, hash_vertex
from freshet.partitioner.id_lookup import free_name, stored_hash
from freshet.partitioner.net_change import Records
from freshet.partitioner.placement.rules import Rule, count_edge, place_edges, place_isolated
from freshet.partitioner.slots import assign_slots, give_back_slots, slot_of


@kernel
def close_epoch(
    start: int,
    g: GraphView,
    log: Log,
    out: Records,
    keys: HashIndex,
    edges: EdgeIndex,
    strings: bool,
    bits: int,
    rule: Rule,
) -> int:
    """Write the net change of the logged epoch to `out`, and bring all tables to the state after it.

    Loads lose what goes before new edges are placed. Dropped slots are given back last: records still name them.
    Returns the number of added edges, or at how many it stopped because lists need room, to be called again from there;
    the room that there is on every call is enough for one edge.
    """
    if start == 0:
        out.counts[:] = 0
        _emit_old_edges(g, log, out)
        _unload_dead(g, log)
    placed = place_edges(g, out.added_rows[: out.counts[net.ADDED]], start, rule)
    if placed < out.counts[net.ADDED]:
        return placed
    place_isolated(g, log, rule)
    assign_slots(g, log, out)
    _emit_added_edges(g, log, out)
    emit_masters(g, log, out, edges)
    emit_degrees(g, log, out, edges)
    give_back_slots(g, out)
    _free_edges(g, log, edges, bits)
    _free_vertices(g, log, keys, strings, bits)
    return placed


@inner
def _emit_old_edges(g: GraphView, log: Log, out: Records) -> None:
    """Emit the deleted and the changed ones of the logged edges, and collect the rows of the added ones.

    Where edges have attributes, each one that was added again may have changed: whether it did, who keeps them knows.
    """
    counts, deleted, reweighted = out.counts, out.deleted.view(np.float32), out.reweighted.view(np.float32)
    for k in range(log.counts[e.LOGGED_EDGES]):
        row = log.edges[k, e.E_ROW]
        was, now = not np.isnan(log.old[k, e.E_OLD]), is_edge(g, row)
        same = _is_as_before(g, log, k)
        if (not was and not now) or (same and not notes_events(log, g)):
            continue
        if not same:
            note_context(g, log, k, len(out.out_degrees) > 0)
            note_degree(g, log, k)
        if not was:
            out.added_rows[counts[net.ADDED]] = row
            counts[net.ADDED] += 1
        elif now:
            at = counts[net.REWEIGHTED]
            counts[net.REWEIGHTED] += 1
            _emit_edge(out.reweighted, at, g, row)
            for value in range(g.values):
                reweighted[net.EDGE_VALUES + value, at] = log.old[k, e.E_OLD + value]
                reweighted[net.EDGE_VALUES + g.values + value, at] = g.carried[row, value_column(value)]
            _emit_attributes(out.reweighted, net.EDGE_VALUES + 2 * g.values, at, g, log, row)
        else:
            at = counts[net.DELETED]
            counts[net.DELETED] += 1
            _emit_edge(out.deleted, at, g, row)
            for value in range(g.values):
                deleted[net.EDGE_VALUES + value, at] = log.old[k, e.E_OLD + value]
            if notes_events(log, g) or g.key_kind:
                out.deleted[net.EDGE_VALUES + g.values, at] = _number_of(g, row)
            count_edge(g, row, -1)


@inner
def _is_as_before(g: GraphView, log: Log, k: int) -> bool:
    """Return whether a logged edge has the values that it had before the epoch."""
    row = log.edges[k, e.E_ROW]
    for value in range(g.values):
        if log.old[k, e.E_OLD + value] != g.carried[row, value_column(value)]:
            return False
    return True


@inner
def _emit_attributes(records: np.ndarray, first: int, at: int, g: GraphView, log: Log, row: int) -> None:
    """Write what tells an edge from others, and the event that added it last, where edges have attributes."""
    if notes_events(log, g) or g.key_kind:
        records[first, at] = _number_of(g, row)
    if notes_events(log, g):
        records[first + 1, at] = log.edges[g.edge.data[row, t.EDGE_MARK] - 1, e.E_OLD + g.values]


@inner
def _number_of(g: GraphView, row: int) -> np.int32:
    """Return what tells an edge from others of its pair: its type or, where edges have keys, its row."""
    return np.int32(row) if g.key_kind else g.edge.data[row, t.TYPE]


@inner
def _emit_added_edges(g: GraphView, log: Log, out: Records) -> None:
    """The added edges, whose ends have slots by now."""
    added = out.added.view(np.float32)
    for k in range(out.counts[net.ADDED]):
        row = out.added_rows[k]
        _emit_edge(out.added, k, g, row)
        for value in range(g.values):
            added[net.EDGE_VALUES + value, k] = g.carried[row, value_column(value)]
        _emit_attributes(out.added, net.EDGE_VALUES + g.values, k, g, log, row)


@inner
def _emit_edge(records: np.ndarray, at: int, g: GraphView, row: int) -> None:
    """Write the location of an edge: the part, with its relation, and the slots of its ends there."""
    edge = g.edge.data
    part = np.int64(edge[row, t.PART])
    records[net.TO, at] = part + edge[row, t.TYPE] * len(g.parts) if g.scalars[t.RELATIONS] else part
    records[net.SLOT, at] = slot_of(g, np.int64(edge[row, t.SRC]), part)
    records[net.DST_SLOT, at] = slot_of(g, np.int64(edge[row, t.DST]), part)


@inner
def _unload_dead(g: GraphView, log: Log) -> None:
    """Vertices that were alive before the epoch, and are not now, are no load any more."""
    vertex = g.vertex.data
    for k in range(log.counts[e.LOGGED_VERTICES]):
        row = log.vertices[k, e.V_ROW]
        if log.vertices[k, e.V_WAS_LIVE] and not vertex[row, t.LIVE]:
            g.parts[vertex[row, t.MASTER], t.MASTERS] -= 1


@inner
def _free_edges(g: GraphView, log: Log, index: EdgeIndex, bits: int) -> None:
    """Take the logged edges out of the log, and give back the rows of those that are gone."""
    scalars, edge = g.scalars, g.edge.data
    for k in range(log.counts[e.LOGGED_EDGES]):
        row = log.edges[k, e.E_ROW]
        edge[row, t.EDGE_MARK] = 0
        if not is_edge(g, row):
            drop(index.rows, hash_of_row(index, g, row, bits), row)
            drop_key(g, row)
            edge[row, t.SRC] = scalars[t.FREE_EDGE]
            scalars[t.FREE_EDGE] = row + 1


@inner
def _free_vertices(g: GraphView, log: Log, index: HashIndex, strings: bool, bits: int) -> None:
    """Take the logged vertices out of the log, and give back the rows and names of those that are not alive."""
    scalars, vertex = g.scalars, g.vertex.data
    for k in range(log.counts[e.LOGGED_VERTICES]):
        row = log.vertices[k, e.V_ROW]
        vertex[row, t.MARK] = 0
        if vertex[row, t.LIVE]:
            continue
        key, kind = g.wide[row, t.KEY], vertex[row, t.KIND]
        drop(index, hash_vertex(index.salt, key, kind), row)
        if strings:
            hashed = stored_hash(index.salt, vertex, g.words.data, row, bits)
            if hashed != key:
                drop(index, hash_vertex(index.salt, hashed, kind), row)
            free_name(scalars, vertex, g.words, row)
        vertex[row, t.OUT_HEAD] = scalars[t.FREE_VERTEX]
        scalars[t.FREE_VERTEX] = row + 1
