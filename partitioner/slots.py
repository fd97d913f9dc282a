"""Places of a vertex in each part: its row number there (slot), and the number of its edges there.

Up to DENSE_PARTS parts a vertex has three columns for each. Past that a vertex is in few of them: its master's part has
three columns, and a list (state/entry_lists.py) has each other part where the vertex is. Both have the same
information.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner
from freshet.kernels.prefetch import prefetch
from freshet.partitioner import graph_tables as t
from freshet.partitioner import net_change as net
from freshet.partitioner.epoch_log import LOGGED_VERTICES, V_ROW, Log
from freshet.partitioner.graph_tables import GraphView
from freshet.partitioner.net_change import Records
from freshet.state.entry_lists import add_entry, entries_of, entry_at, find_entry, remove_entry
from freshet.state.table import touch

_E_SLOT, _E_IN, _E_OUT = 1, 2, 3  # of an entry, whose first word is the part


@inner
def section_of(g: GraphView, row: int, part: int) -> np.int64:
    """The section of a vertex in a part: its slots there are numbered by kind; without kinds it is the part."""
    return np.int64(g.vertex.data[row, t.KIND]) * len(g.parts) + part


@inner
def slot_of(g: GraphView, row: int, part: int) -> np.int64:
    """The slot of a vertex that has a master in a part, -1 where it has none."""
    vertex = g.vertex.data
    if not g.is_sparse:
        return np.int64(vertex[row, t.SLOTS + part])
    if vertex[row, t.MASTER] == part:
        return np.int64(vertex[row, t.SLOTS])
    at = find_entry(g.replicas, vertex, row, t.LIST, part)
    return np.int64(g.replicas.data[at + _E_SLOT]) if at >= 0 else np.int64(-1)


@inner
def home_slot(g: GraphView, row: int) -> np.int64:
    """The slot of a vertex in its master's part."""
    return np.int64(g.vertex.data[row, t.SLOTS if g.is_sparse else t.SLOTS + g.vertex.data[row, t.MASTER]])


@inner
def _set_slot(g: GraphView, row: int, part: int, slot: int) -> None:
    """Write the slot of a vertex in its master's part, or where edges of it live."""
    vertex = g.vertex.data
    if not g.is_sparse:
        vertex[row, t.SLOTS + part] = slot
    elif vertex[row, t.MASTER] == part:
        vertex[row, t.SLOTS] = slot
    else:
        words = g.replicas
        at = find_entry(words, vertex, row, t.LIST, part)
        touch(words, at)
        words.data[at + _E_SLOT] = slot


@inner
def _drop_slot(g: GraphView, row: int, part: int) -> None:
    """The vertex is not in the part any more."""
    if g.is_sparse and g.vertex.data[row, t.MASTER] != part:
        remove_entry(g.replicas, g.scalars[t.LIST_FREE :], g.vertex.data, row, t.LIST, part)
    else:
        _set_slot(g, row, part, -1)


@inner
def count_end(g: GraphView, row: int, part: int, way: int, more: int) -> None:
    """Count an edge that comes (`more` 1) or goes (-1) in its destination (`way` 0) or source (1), in its part."""
    vertex = g.vertex.data
    if not g.is_sparse:
        vertex[row, t.SLOTS + (1 + way) * len(g.parts) + part] += more
    elif vertex[row, t.MASTER] == part:
        vertex[row, t.SLOTS + 1 + way] += more
    else:
        words = g.replicas
        at = find_entry(words, vertex, row, t.LIST, part)
        if at < 0:
            at = add_entry(words, g.scalars[t.LIST_FREE :], g.scalars[t.LIST_TAIL :], vertex, row, t.LIST, part)
            words.data[at + _E_SLOT], words.data[at + _E_IN], words.data[at + _E_OUT] = -1, 0, 0
        touch(words, at)
        words.data[at + _E_IN + way] += more


@inner
def home_in_edges(g: GraphView, row: int) -> np.int64:
    """Return the number of in-edges of a vertex in its master's part."""
    vertex = g.vertex.data
    return np.int64(vertex[row, t.SLOTS + 1 if g.is_sparse else t.SLOTS + len(g.parts) + vertex[row, t.MASTER]])


@inner
def _ends_in(g: GraphView, row: int, part: int) -> np.int64:
    """Return the number of ends of edges in a part, of a vertex with columns; a self-loop counts twice."""
    vertex, n = g.vertex.data, len(g.parts)
    return np.int64(vertex[row, t.SLOTS + n + part]) + np.int64(vertex[row, t.SLOTS + 2 * n + part])


# Of each of a vertex's places: with columns all parts are places, with lists those where it is but its master's.


@inner
def places_of(g: GraphView, row: int) -> np.int64:
    """Return the number of places of the vertex."""
    return entries_of(g.vertex.data, row, t.LIST) if g.is_sparse else np.int64(len(g.parts))


@inner
def prefetch_places(g: GraphView, row: int) -> None:
    """Ask for the list of a vertex's places, whose row is in the cache; of a long one, for its beginning."""
    if places_of(g, row):
        at = entry_at(g.vertex.data, row, t.LIST, np.int64(0))
        prefetch(g.replicas.data, at)
        prefetch(g.replicas.data, at + 16)


@inner
def part_at(g: GraphView, row: int, k: int) -> np.int64:
    """The part of the k-th place; they are in the order of parts."""
    return np.int64(g.replicas.data[entry_at(g.vertex.data, row, t.LIST, k)]) if g.is_sparse else np.int64(k)


@inner
def _slot_at(g: GraphView, row: int, k: int) -> np.int64:
    """The slot of the vertex in its k-th place, or -1."""
    if not g.is_sparse:
        return np.int64(g.vertex.data[row, t.SLOTS + k])
    return np.int64(g.replicas.data[entry_at(g.vertex.data, row, t.LIST, k) + _E_SLOT])


@inner
def _ends_at(g: GraphView, row: int, k: int) -> np.int64:
    """Return the number of ends of edges of the vertex in its k-th place."""
    if not g.is_sparse:
        return _ends_in(g, row, k)
    words, at = g.replicas.data, entry_at(g.vertex.data, row, t.LIST, k)
    return np.int64(words[at + _E_IN]) + np.int64(words[at + _E_OUT])


@inner
def placed_ends(g: GraphView, row: int) -> np.int64:
    """Return the number of ends of the vertex's edges that have a part."""
    vertex, ends = g.vertex.data, np.int64(0)
    for k in range(places_of(g, row)):
        ends += _ends_at(g, row, k)
    if g.is_sparse:
        ends += np.int64(vertex[row, t.SLOTS + 1]) + np.int64(vertex[row, t.SLOTS + 2])
    return ends


@inner
def next_row(g: GraphView, row: int, part: int, k: int) -> np.int64:
    """The first part from `part` on where the vertex has a row, or gets one this epoch; the number of parts without.

    `k`: number of earlier such parts beside its master's.
    """
    vertex, n = g.vertex.data, len(g.parts)
    master = np.int64(vertex[row, t.MASTER])
    if g.is_sparse:
        found = part_at(g, row, k) if k < places_of(g, row) else np.int64(n)
        return min(found, master) if master >= part else found
    for p in range(part, n):
        if p == master or vertex[row, t.SLOTS + p] >= 0 or _ends_in(g, row, p) > 0:
            return np.int64(p)
    return np.int64(n)


@inner
def assign_slots(g: GraphView, log: Log, out: Records) -> None:
    """Hand out the slots that the logged vertices need, and note those that they drop, which stay until the end."""
    vertex = g.vertex.data
    for k in range(log.counts[LOGGED_VERTICES]):
        row = np.int64(log.vertices[k, V_ROW])
        if vertex[row, t.MASTER] >= 0:  # else born and dead within the epoch, or never born
            _change_master(g, out, row)
            _change_replicas(g, out, row)


@inner
def _change_master(g: GraphView, out: Records, row: int) -> None:
    """A newborn gets its slot; a dead vertex drops it."""
    vertex, counts = g.vertex.data, out.counts
    master = np.int64(vertex[row, t.MASTER])
    if not vertex[row, t.LIVE]:
        at = counts[net.DEAD]
        counts[net.DEAD] += 1
        out.dead[net.TO, at], out.dead[net.SLOT, at] = section_of(g, row, master), home_slot(g, row)
        out.dead_keys[at] = g.wide[row, t.KEY]
        _note_dropped(out, row, master)
    elif home_slot(g, row) < 0:
        section = section_of(g, row, master)
        _set_slot(g, row, master, _hand_out_slot(g, row, master))
        at = counts[net.BORN]
        counts[net.BORN] += 1
        out.born[net.TO, at], out.born[net.SLOT, at] = section, home_slot(g, row)
        out.born[net.VERTEX_ROW, at] = row
        out.born_keys[at] = g.wide[row, t.KEY]


@inner
def _change_replicas(g: GraphView, out: Records, row: int) -> None:
    """The vertex has a replica in every part but its master's where one of its edges lives, and nowhere else."""
    vertex, counts = g.vertex.data, out.counts
    master, home = np.int64(vertex[row, t.MASTER]), home_slot(g, row)
    for k in range(places_of(g, row)):
        part, wanted = part_at(g, row, k), _ends_at(g, row, k) > 0
        slot = _slot_at(g, row, k)
        if part == master or wanted == (slot >= 0):
            continue
        section = section_of(g, row, part)
        if wanted:
            slot = _hand_out_slot(g, row, part)
            _set_slot(g, row, part, slot)
            at = counts[net.REPLICAS]
            counts[net.REPLICAS] += 1
            out.replicas[net.TO, at], out.replicas[net.SLOT, at] = section, slot
            out.replicas[net.HOME_PART, at], out.replicas[net.HOME_SLOT, at] = master, home
            continue
        at = counts[net.FREED]
        counts[net.FREED] += 1
        out.freed[net.TO, at], out.freed[net.SLOT, at] = section, slot
        _note_dropped(out, row, part)
        if vertex[row, t.LIVE]:
            at = counts[net.RETIRED]
            counts[net.RETIRED] += 1
            out.retired[net.TO, at], out.retired[net.SLOT, at] = section_of(g, row, master), home
            out.retired[net.REPLICA_PART, at] = part


@inner
def _note_dropped(out: Records, row: int, part: int) -> None:
    at = out.counts[net.DROPPED]
    out.counts[net.DROPPED] += 1
    out.dropped[net.DROPPED_ROW, at], out.dropped[net.DROPPED_PART, at] = row, part


@inner
def _tail_of(g: GraphView, row: int) -> np.int64:
    """The column of a part's next fresh slot for the kind of the vertex; the first free one is in the next column."""
    kind = np.int64(g.vertex.data[row, t.KIND])
    return np.int64(t.SLOT_TAIL) if kind == 0 else t.PART_WIDTH + 2 * (kind - 1)


@inner
def _hand_out_slot(g: GraphView, row: int, part: int) -> int:
    """A slot of the part for a vertex: the one of its kind that was freed last, else a fresh one."""
    parts, tail = g.parts, _tail_of(g, row)
    if parts[part, tail + 1]:
        slot = parts[part, tail + 1] - 1
        parts[part, tail + 1] = g.chain.data[slot, section_of(g, row, part)]
    else:
        slot = parts[part, tail]
        parts[part, tail] = slot + 1
    parts[part, t.PART_ROWS] += 1
    return slot


@inner
def give_back_slots(g: GraphView, out: Records) -> None:
    """Free the dropped slots; they are handed out again from the next epoch on."""
    parts, chain = g.parts, g.chain
    for k in range(out.counts[net.DROPPED]):
        row, part = np.int64(out.dropped[net.DROPPED_ROW, k]), np.int64(out.dropped[net.DROPPED_PART, k])
        slot, free = slot_of(g, row, part), _tail_of(g, row) + 1
        touch(chain, slot)
        chain.data[slot, section_of(g, row, part)] = parts[part, free]
        parts[part, free] = slot + 1
        parts[part, t.PART_ROWS] -= 1
        _drop_slot(g, row, part)
