"""The id dictionary: finds the vertex rows of the ids in an epoch's events.

An event that may create its vertex gets a row at once; the vertex itself comes to life when the event is applied, and
a row whose vertex is not alive at the end of the epoch is given back.

String ids have their bytes in a pool of 8-byte words, and a key: a 64-bit hash of these, salted by the job, moved up by
one while another live id of the kind has it. The index holds each id under its hash, and once more under its key where
the two differ.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import allocating, inner, kernel
from freshet.kernels.prefetch import prefetch
from freshet.partitioner import graph_tables as t
from freshet.partitioner.epoch_log import LOGGED_VERTICES, Log, log_vertex
from freshet.partitioner.events import OP_ADD_EDGE, OP_DEL_EDGE, OP_DEL_VERTEX
from freshet.partitioner.graph_tables import KEY, KIND, LIVE, NAME_AT, NAME_BYTES, GraphView
from freshet.partitioner.hash_index import (
    HashIndex,
    after,
    find_key,
    has_room,
    hash_vertex,
    home_of,
    matches,
    put,
    row_at,
)
from freshet.partitioner.ids import STRING, Ids
from freshet.partitioner.words import drop_text, is_text, put_text, text_hash, words_for
from freshet.state.salt import Salt
from freshet.state.table import View, touch


@kernel
def store_name(
    scalars: np.ndarray, vertex: np.ndarray, words: View, row: int, data: np.ndarray, begin: int, end: int
) -> None:
    """Keep data[begin:end] as the name of `row`; the caller has made room."""
    vertex[row, NAME_AT] = put_text(scalars, words, data, begin, end)
    vertex[row, NAME_BYTES] = end - begin


@kernel
def free_name(scalars: np.ndarray, vertex: np.ndarray, words: View, row: int) -> None:
    """Give the chunk of a name back."""
    drop_text(scalars, words, np.int64(vertex[row, NAME_AT]), np.int64(vertex[row, NAME_BYTES]))


@inner
def stored_hash(salt: Salt, vertex: np.ndarray, words: np.ndarray, row: int, bits: int) -> np.int64:
    """The hash of a kept name."""
    begin = np.int64(vertex[row, NAME_AT]) * 8
    return text_hash(salt, words.view(np.uint8), begin, begin + vertex[row, NAME_BYTES], bits)


@inner
def find_name(
    index: HashIndex,
    vertex: np.ndarray,
    words: np.ndarray,
    hashed: int,
    kind: int,
    data: np.ndarray,
    begin: int,
    end: int,
) -> np.int64:
    """The row of the vertex of the kind that is called data[begin:end], which has this hash, or -1."""
    half = hash_vertex(index.salt, hashed, kind)
    at = home_of(index, half)
    while index.entries[at]:
        row = row_at(index, at)
        if matches(index, at, half) and vertex[row, KIND] == kind:
            if is_text(words, vertex[row, NAME_AT], vertex[row, NAME_BYTES], data, begin, end):
                return row
        at = after(index, at)
    return np.int64(-1)


@inner
def free_key(index: HashIndex, vertex: np.ndarray, wide: np.ndarray, wanted: int, kind: int) -> int:
    """The first key from `wanted` on that no vertex of the kind has."""
    while True:
        at = home_of(index, hash_vertex(index.salt, wanted, kind))
        taken = False
        while index.entries[at]:
            row = row_at(index, at)
            taken |= wide[row, KEY] == wanted and vertex[row, KIND] == kind
            at = after(index, at)
        if not taken:
            return wanted
        wanted += 1


@inner
def index_name(index: HashIndex, row: int, hashed: int, key: int, kind: int) -> None:
    """Put a vertex in under its name's hash, and under its key where that is another."""
    put(index, hash_vertex(index.salt, hashed, kind), row)
    if key != hashed:
        put(index, hash_vertex(index.salt, key, kind), row)


@kernel
def index_names(
    index: HashIndex, vertex: np.ndarray, wide: np.ndarray, words: np.ndarray, rows: int, bits: int
) -> None:
    """Put all live vertices into an index that is large enough."""
    for row in range(rows):
        if vertex[row, LIVE]:
            hashed = stored_hash(index.salt, vertex, words, row, bits)
            index_name(index, row, hashed, wide[row, KEY], vertex[row, KIND])


@allocating
def gather_names(vertex: np.ndarray, words: np.ndarray, rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The bytes of the names of these rows, one after the other; `offsets` (n + 1) int64 is filled in."""
    offsets[0] = 0
    for k in range(len(rows)):
        offsets[k + 1] = offsets[k] + vertex[rows[k], NAME_BYTES]
    out = np.empty(offsets[len(rows)], np.uint8)
    pool = words.view(np.uint8)
    for k in range(len(rows)):
        begin = np.int64(vertex[rows[k], NAME_AT]) * 8
        for i in range(vertex[rows[k], NAME_BYTES]):
            out[offsets[k] + i] = pool[begin + i]
    return out


def ids_of_rows(tables: t.GraphTables, rows: np.ndarray, id_kind: str) -> Ids:
    """Return the ids of live vertices by their rows."""
    if id_kind != STRING:
        return Ids.of_ints(tables.vertex_keys()[rows])
    offsets = np.empty(rows.size + 1, np.int64)
    data = gather_names(tables.vertex.data, tables.words.data, rows.astype(np.int32), offsets)
    return Ids(STRING, offsets=offsets, data=data)


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
    if scalars[t.FREE_VERTEX]:
        row = scalars[t.FREE_VERTEX] - 1
        scalars[t.FREE_VERTEX] = data[row, t.OUT_HEAD]
    else:
        row = scalars[t.VERTEX_ROWS]
        scalars[t.VERTEX_ROWS] = row + 1
    touch(vertex, row)
    data[row, :] = 0
    for column in (t.OUT_HEAD, t.IN_HEAD, t.MASTER):
        data[row, column] = -1
    for column in range(t.SLOTS, t.SLOTS + slots):
        data[row, column] = -1
    data[row, t.KIND] = kind
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
        prefetch(wide, max(row, np.int64(0)) * wide.shape[1] + t.KEY)


@kernel
def resolve_ints(
    start: int,
    stop: int,
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
    """Rows of the ids of the events from `start` to `stop`, -1 for unknown ids; returns where room ran out, or `stop`.

    Shapes: kinds (2, n) uint8, those of a and of b, or (2, 0) where there are none
    """
    scalars, vertex, wide, slots = g.scalars, g.vertex, g.wide, 1 if g.is_sparse else len(g.parts)
    for i in range(start, stop):
        if scalars[t.VERTEX_ROWS] + 2 > len(wide) or not has_room(index, index.used[0] + MORE):
            return i
        if log.counts[LOGGED_VERTICES] + 2 > len(log.vertices):
            return i
        _prefetch_keys(index, wide, a, kinds, 0, i)
        _prefetch_keys(index, wide, b, kinds, 1, i)
        creates = op[i] != OP_DEL_VERTEX and op[i] < OP_DEL_EDGE
        rows_b[i] = -1
        for end in range(2 if op[i] >= OP_ADD_EDGE else 1):
            wanted = b[i] if end else a[i]
            kind = _kind_at(kinds, end, i)
            row = find_key(index, vertex.data, wide, wanted, kind, kinds.shape[1] > 0)
            if row < 0 and creates:
                row = _new_row(scalars, slots, vertex, log, kind)
                wide[row, t.KEY] = wanted
                put(index, hash_vertex(index.salt, wanted, kind), row)
            if end:
                rows_b[i] = row
            else:
                rows_a[i] = row
    return stop


@kernel
def resolve_names(
    start: int,
    stop: int,
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
    for i in range(start, stop):
        longest = max(a_offsets[i + 1] - a_offsets[i], b_offsets[i + 1] - b_offsets[i])
        if scalars[t.VERTEX_ROWS] + 2 > len(wide) or not has_room(index, index.used[0] + MORE):
            return i
        if log.counts[LOGGED_VERTICES] + 2 > len(log.vertices):
            return i
        if scalars[t.NAME_TAIL] + 2 * words_for(longest) > len(words.data):
            return i
        creates = op[i] != OP_DEL_VERTEX and op[i] < OP_DEL_EDGE
        rows_b[i] = -1
        for end in range(2 if op[i] >= OP_ADD_EDGE else 1):
            offsets, data = (b_offsets, b_data) if end else (a_offsets, a_data)
            kind = _kind_at(kinds, end, i)
            hashed = text_hash(index.salt, data, offsets[i], offsets[i + 1], bits)
            row = find_name(index, vertex.data, words.data, hashed, kind, data, offsets[i], offsets[i + 1])
            if row < 0 and creates:
                row = _new_row(scalars, slots, vertex, log, kind)
                store_name(scalars, vertex.data, words, row, data, offsets[i], offsets[i + 1])
                wide[row, t.KEY] = free_key(index, vertex.data, wide, hashed, kind)
                index_name(index, row, hashed, wide[row, t.KEY], kind)
            if end:
                rows_b[i] = row
            else:
                rows_a[i] = row
    return stop
