"""Slots: a vertex's row numbers in its master part and in every part where one of its edges lives."""

from __future__ import annotations

import numpy as np

from partitioner.epoch_log import LOGGED_VERTICES, V_ROW, Log
from partitioner.graph_tables import KEY, LIVE, MASTER, PART_ROWS, SLOT_FREE, SLOT_TAIL, SLOTS, GraphView
from partitioner.net_change import BORN, DEAD, DROPS, FREED, REPLICA, RETIRED, Out
from state.kernel import kernel
from state.table import View, touch


@kernel
def _take_slot(parts: np.ndarray, chain: np.ndarray, part: int) -> int:
    """A slot of the part: the one freed last, else a fresh one."""
    if parts[part, SLOT_FREE]:
        slot = parts[part, SLOT_FREE] - 1
        parts[part, SLOT_FREE] = chain[slot, part]
    else:
        slot = parts[part, SLOT_TAIL]
        parts[part, SLOT_TAIL] = slot + 1
    parts[part, PART_ROWS] += 1
    return slot


@kernel
def _assign_master(g: GraphView, out: Out, row: int) -> None:
    """The slot of a newborn; the end of the slot of a dead vertex."""
    parts, vertex, n = g.parts, g.vertex.data, out.n
    master = np.int64(vertex[row, MASTER])
    if not vertex[row, LIVE]:
        at = n[DEAD]
        n[DEAD] += 1
        out.d[0, at], out.d[1, at] = master, vertex[row, SLOTS + master]
        out.d_key[at] = g.wide[row, KEY]
        out.drop[0, n[DROPS]], out.drop[1, n[DROPS]] = row, master
        n[DROPS] += 1
    elif vertex[row, SLOTS + master] < 0:
        vertex[row, SLOTS + master] = _take_slot(parts, g.chain.data, master)
        at = n[BORN]
        n[BORN] += 1
        out.m[0, at], out.m[1, at], out.m[2, at] = master, vertex[row, SLOTS + master], row
        out.m_key[at] = g.wide[row, KEY]


@kernel
def assign_slots(g: GraphView, log: Log, out: Out) -> None:
    """Hand out and take back slots of all logged vertices; what is taken back stays in place until the epoch's end."""
    parts, vertex, chain, n = g.parts, g.vertex.data, g.chain.data, out.n
    p = len(parts)
    for k in range(log.n[LOGGED_VERTICES]):
        row = np.int64(log.vertices[k, V_ROW])
        live, master = vertex[row, LIVE], vertex[row, MASTER]
        if master < 0:  # born and dead within the epoch, or never born
            continue
        _assign_master(g, out, row)
        home = vertex[row, SLOTS + master]
        for part in range(p):
            slot = vertex[row, SLOTS + part]
            wanted = vertex[row, SLOTS + p + part] + vertex[row, SLOTS + 2 * p + part] > 0
            if part == master or wanted == (slot >= 0):
                continue
            if wanted:
                vertex[row, SLOTS + part] = _take_slot(parts, chain, part)
                at = n[REPLICA]
                n[REPLICA] += 1
                out.r[0, at], out.r[1, at] = part, vertex[row, SLOTS + part]
                out.r[2, at], out.r[3, at] = master, home
                continue
            at = n[FREED]
            n[FREED] += 1
            out.f[0, at], out.f[1, at] = part, slot
            out.drop[0, n[DROPS]], out.drop[1, n[DROPS]] = row, part
            n[DROPS] += 1
            if live:
                at = n[RETIRED]
                n[RETIRED] += 1
                out.rd[0, at], out.rd[1, at], out.rd[2, at] = master, home, part


@kernel
def free_slots(parts: np.ndarray, vertex: np.ndarray, chain: View, drop: np.ndarray, drops: int) -> None:
    """Give the dropped slots back; they are handed out from the next epoch on."""
    for k in range(drops):
        row, part = drop[0, k], drop[1, k]
        slot = vertex[row, SLOTS + part]
        touch(chain, slot)
        chain.data[slot, part] = parts[part, SLOT_FREE]
        parts[part, SLOT_FREE] = slot + 1
        parts[part, PART_ROWS] -= 1
        vertex[row, SLOTS + part] = -1
