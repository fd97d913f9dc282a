"""The id dictionary: finds the vertex rows of the ids in an epoch's events.

An event that may create its vertex gets a row at once; the vertex itself comes to life when the event is applied, and
a row whose vertex is not alive at the end of the epoch is given back.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch
from freshet.partitioner.epoch_log import LOGGED_VERTICES, Log, log_vertex
from freshet.partitioner.events import OP_ADD_EDGE, OP_DEL_EDGE, OP_DEL_VERTEX
from freshet.partitioner.graph_tables import (
    FREE_VERTEX,
    IN_HEAD,
    KEY,
    KIND,
    MASTER,
    NAME_TAIL,
    OUT_HEAD,
    SLOTS,
    VERTEX_ROWS,
    GraphView,
)
from freshet.partitioner.hash_index import HashIndex, find_key, has_room, hash_vertex, home_of, put, row_at
from freshet.partitioner.string_ids import find_name, free_key, index_name, name_hash, store_name, words_for
from freshet.state.table import View, touch

MORE = 4  # entries that one event may add to the index: two vertices, each under hash and key
_AHEAD = 8  # events between asking for where an id may stand and reading it


@inner
def _kind_at(kinds: np.ndarray, end: int, i: int) -> np.int64:
    """The kind of an event's vertex; the first where no kinds are given."""
    return np.int64(kinds[end, i]) if kinds.shape[1] else np.int64(0)


@inner
def _new_row(scalars: np.ndarray, slots: int, vertex: View, log: Log, kind: int) -> int:
    """A vertex row, not alive yet, and in the log."""
    data = vertex.data
    if scalars[FREE_VERTEX]:
        row = scalars[FREE_VERTEX] - 1
        scalars[FREE_VERTEX] = data[row, OUT_HEAD]
    else:
        row = scalars[VERTEX_ROWS]
        scalars[VERTEX_ROWS] = row + 1
    touch(vertex, row)
    data[row, :] = 0
    for column in (OUT_HEAD, IN_HEAD, MASTER):
        data[row, column] = -1
    for column in range(SLOTS, SLOTS + slots):
        data[row, column] = -1
    data[row, KIND] = kind
    log_vertex(log, data, row)
    return row


@inner
def _prefetch_keys(index: HashIndex, wide: np.ndarray, ids: np.ndarray, kinds: np.ndarray, end: int, i: int) -> None:
    """Ask for the entry at which the search for an id begins, and for the key of a nearer one's."""
    if i + 2 * _AHEAD < len(ids):
        kind = _kind_at(kinds, end, i + 2 * _AHEAD)
        prefetch(index.entries, home_of(index, hash_vertex(index.salt, ids[i + 2 * _AHEAD], kind)))
    if i + _AHEAD < len(ids):
        kind = _kind_at(kinds, end, i + _AHEAD)
        row = row_at(index, home_of(index, hash_vertex(index.salt, ids[i + _AHEAD], kind)))
        prefetch(wide, max(row, np.int64(0)) * wide.shape[1] + KEY)


@kernel
def resolve_ints(
    start: int,
    op: np.ndarray,
    kinds: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    g: GraphView,
    index: HashIndex,
    log: Log,
    rows_a: np.ndarray,
    rows_b: np.ndarray,
) -> int:
    """Rows of the ids of the events from `start` on, -1 for unknown ids; returns where room ran out, or n.

    Shapes: kinds (2, n) uint8, those of a and of b, or (2, 0) where there are none
    """
    scalars, vertex, wide, slots = g.scalars, g.vertex, g.wide, 1 if g.is_sparse else len(g.parts)
    for i in range(start, len(op)):
        if scalars[VERTEX_ROWS] + 2 > len(wide) or not has_room(index, index.used[0] + MORE):
            return i
        if log.counts[LOGGED_VERTICES] + 2 > len(log.vertices):
            return i
        _prefetch_keys(index, wide, a, kinds, 0, i)
        _prefetch_keys(index, wide, b, kinds, 1, i)
        creates = op[i] != OP_DEL_VERTEX and op[i] != OP_DEL_EDGE
        rows_b[i] = -1
        for end in range(2 if op[i] >= OP_ADD_EDGE else 1):
            wanted = b[i] if end else a[i]
            kind = _kind_at(kinds, end, i)
            row = find_key(index, vertex.data, wide, wanted, kind, kinds.shape[1] > 0)
            if row < 0 and creates:
                row = _new_row(scalars, slots, vertex, log, kind)
                wide[row, KEY] = wanted
                put(index, hash_vertex(index.salt, wanted, kind), row)
            if end:
                rows_b[i] = row
            else:
                rows_a[i] = row
    return len(op)


@kernel
def resolve_names(
    start: int,
    op: np.ndarray,
    kinds: np.ndarray,
    a_offsets: np.ndarray,
    a_data: np.ndarray,
    b_offsets: np.ndarray,
    b_data: np.ndarray,
    g: GraphView,
    index: HashIndex,
    log: Log,
    rows_a: np.ndarray,
    rows_b: np.ndarray,
    bits: int,
) -> int:
    """`resolve_ints` for string ids."""
    scalars, vertex, wide, words = g.scalars, g.vertex, g.wide, g.words
    slots = 1 if g.is_sparse else len(g.parts)
    for i in range(start, len(op)):
        longest = max(a_offsets[i + 1] - a_offsets[i], b_offsets[i + 1] - b_offsets[i])
        if scalars[VERTEX_ROWS] + 2 > len(wide) or not has_room(index, index.used[0] + MORE):
            return i
        if log.counts[LOGGED_VERTICES] + 2 > len(log.vertices):
            return i
        if scalars[NAME_TAIL] + 2 * words_for(longest) > len(words.data):
            return i
        creates = op[i] != OP_DEL_VERTEX and op[i] != OP_DEL_EDGE
        rows_b[i] = -1
        for end in range(2 if op[i] >= OP_ADD_EDGE else 1):
            offsets, data = (b_offsets, b_data) if end else (a_offsets, a_data)
            kind = _kind_at(kinds, end, i)
            hashed = name_hash(index.salt, data, offsets[i], offsets[i + 1], bits)
            row = find_name(index, vertex.data, words.data, hashed, kind, data, offsets[i], offsets[i + 1])
            if row < 0 and creates:
                row = _new_row(scalars, slots, vertex, log, kind)
                store_name(scalars, vertex.data, words, row, data, offsets[i], offsets[i + 1])
                wide[row, KEY] = free_key(index, vertex.data, wide, hashed, kind)
                index_name(index, row, hashed, wide[row, KEY], kind)
            if end:
                rows_b[i] = row
            else:
                rows_a[i] = row
    return len(op)
