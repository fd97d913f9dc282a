"""Slots: a vertex's row numbers in its master part and in every part where one of its edges lives."""

from __future__ import annotations

import numpy as np

from gnn.kernel import inner
from partitioner.epoch_log import LOGGED_VERTICES, V_ROW, Log
from partitioner.graph_tables import KEY, LIVE, MASTER, PART_ROWS, SLOT_FREE, SLOT_TAIL, SLOTS, GraphView
from partitioner.net_change import (
    BORN,
    DEAD,
    DROPPED,
    DROPPED_PART,
    DROPPED_ROW,
    FREED,
    HOME_PART,
    HOME_SLOT,
    REPLICA_PART,
    REPLICAS,
    RETIRED,
    SLOT,
    TO,
    VERTEX_ROW,
    Records,
)
from partitioner.placement import edges_at
from state.table import touch


@inner
def assign_slots(g: GraphView, log: Log, out: Records) -> None:
    """Hand out the slots that the logged vertices need, and note those that they drop, which stay until the end."""
    vertex = g.vertex.data
    for k in range(log.counts[LOGGED_VERTICES]):
        row = np.int64(log.vertices[k, V_ROW])
        if vertex[row, MASTER] >= 0:  # else born and dead within the epoch, or never born
            _change_master(g, out, row)
            _change_replicas(g, out, row)


@inner
def _change_master(g: GraphView, out: Records, row: int) -> None:
    """A newborn gets its slot; a dead vertex drops it."""
    vertex, counts = g.vertex.data, out.counts
    master = np.int64(vertex[row, MASTER])
    if not vertex[row, LIVE]:
        at = counts[DEAD]
        counts[DEAD] += 1
        out.dead[TO, at], out.dead[SLOT, at] = master, vertex[row, SLOTS + master]
        out.dead_keys[at] = g.wide[row, KEY]
        _note_dropped(out, row, master)
    elif vertex[row, SLOTS + master] < 0:
        vertex[row, SLOTS + master] = _hand_out_slot(g.parts, g.chain.data, master)
        at = counts[BORN]
        counts[BORN] += 1
        out.born[TO, at], out.born[SLOT, at] = master, vertex[row, SLOTS + master]
        out.born[VERTEX_ROW, at] = row
        out.born_keys[at] = g.wide[row, KEY]


@inner
def _change_replicas(g: GraphView, out: Records, row: int) -> None:
    """The vertex has a replica in every part but its master's where one of its edges lives, and nowhere else."""
    parts, vertex, counts = g.parts, g.vertex.data, out.counts
    n, master = len(parts), np.int64(vertex[row, MASTER])
    home = vertex[row, SLOTS + master]
    for part in range(n):
        slot = vertex[row, SLOTS + part]
        wanted = edges_at(vertex, n, row, part) > 0
        if part == master or wanted == (slot >= 0):
            continue
        if wanted:
            vertex[row, SLOTS + part] = _hand_out_slot(parts, g.chain.data, part)
            at = counts[REPLICAS]
            counts[REPLICAS] += 1
            out.replicas[TO, at], out.replicas[SLOT, at] = part, vertex[row, SLOTS + part]
            out.replicas[HOME_PART, at], out.replicas[HOME_SLOT, at] = master, home
            continue
        at = counts[FREED]
        counts[FREED] += 1
        out.freed[TO, at], out.freed[SLOT, at] = part, slot
        _note_dropped(out, row, part)
        if vertex[row, LIVE]:
            at = counts[RETIRED]
            counts[RETIRED] += 1
            out.retired[TO, at], out.retired[SLOT, at] = master, home
            out.retired[REPLICA_PART, at] = part


@inner
def _note_dropped(out: Records, row: int, part: int) -> None:
    at = out.counts[DROPPED]
    out.counts[DROPPED] += 1
    out.dropped[DROPPED_ROW, at], out.dropped[DROPPED_PART, at] = row, part


@inner
def _hand_out_slot(parts: np.ndarray, chain: np.ndarray, part: int) -> int:
    """A slot of the part: the one freed last, else a fresh one."""
    if parts[part, SLOT_FREE]:
        slot = parts[part, SLOT_FREE] - 1
        parts[part, SLOT_FREE] = chain[slot, part]
    else:
        slot = parts[part, SLOT_TAIL]
        parts[part, SLOT_TAIL] = slot + 1
    parts[part, PART_ROWS] += 1
    return slot


@inner
def give_back_slots(g: GraphView, out: Records) -> None:
    """Free the dropped slots; they are handed out again from the next epoch on."""
    parts, vertex, chain = g.parts, g.vertex.data, g.chain
    for k in range(out.counts[DROPPED]):
        row, part = out.dropped[DROPPED_ROW, k], out.dropped[DROPPED_PART, k]
        slot = vertex[row, SLOTS + part]
        touch(chain, slot)
        chain.data[slot, part] = parts[part, SLOT_FREE]
        parts[part, SLOT_FREE] = slot + 1
        parts[part, PART_ROWS] -= 1
        vertex[row, SLOTS + part] = -1
