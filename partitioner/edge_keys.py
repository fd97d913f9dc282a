"""Keys, which tell apart the edges of one pair and type, and the lists of such parallel edges.

An edge is known by its ends, its type and its key. The edge without a key is one more of them. Lists of parallel edges
are durable, so that what deletes a whole list does so in an order that a restored job knows; the index of pairs, which
has the first edge of each list, is not. A new edge goes behind the first one, and the index stays as it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.partitioner import graph_tables as t
from freshet.partitioner.graph_tables import GraphView
from freshet.partitioner.hash_index import (
    HashIndex,
    after,
    drop,
    find_edge,
    hash_edge,
    home_of,
    make_index,
    matches,
    put,
    replace,
    row_at,
)
from freshet.partitioner.words import drop_text, is_text, put_text, text_hash, words_for
from freshet.state.salt import Salt, mix
from freshet.state.table import touch

_HALF = np.uint64(32)


class Keys(NamedTuple):
    """The keys of an epoch's events; where edges have none, all arrays are empty."""

    numbers: np.ndarray  # (n,) int64: integer keys, or the hashes of texts
    offsets: np.ndarray  # (n + 1,) int64, or (0,)
    data: np.ndarray  # uint8: the texts


class EdgeIndex(NamedTuple):
    """The indexes of edges; where edges have no keys, that of pairs is empty."""

    rows: HashIndex  # by ends and type, and key
    pairs: HashIndex  # by ends and type: the first one of the parallel edges that are there


def no_pairs(salt: Salt) -> HashIndex:
    """Return what stands for the index of pairs where edges have no keys."""
    return make_index(salt)._replace(entries=np.zeros(1, np.uint64))


@kernel
def hash_keys(salt: Salt, offsets: np.ndarray, data: np.ndarray, bits: int, out: np.ndarray) -> None:
    """Write the hashes of texts."""
    for i in range(len(out)):
        out[i] = text_hash(salt, data, offsets[i], offsets[i + 1], bits)


@inner
def hash_keyed(salt: Salt, src: int, dst: int, etype: int, key: int) -> np.uint64:
    """32 bits of hash of an edge between vertex rows with a key, or its hash."""
    ends = (np.uint64(src) << _HALF) | np.uint64(dst)
    return mix(salt, ends + np.uint64(etype) * salt.first + np.uint64(key) * salt.second)


@inner
def hash_of_row(index: EdgeIndex, g: GraphView, row: int, bits: int) -> np.uint64:
    """32 bits of hash of the edge in a row."""
    edge, salt = g.edge.data, index.rows.salt
    src, dst, etype = edge[row, t.SRC], edge[row, t.DST], edge[row, t.TYPE]
    if g.key_kind == t.NO_KEYS:
        return hash_edge(salt, src, dst, etype)
    if g.key_kind == t.INT_KEYS:
        return hash_keyed(salt, src, dst, etype, g.wide_keys[row, 0])
    begin = np.int64(g.keys.data[row, t.KEY_AT]) * 8
    end = begin + g.keys.data[row, t.KEY_BYTES]
    return hash_keyed(salt, src, dst, etype, text_hash(salt, g.words.data.view(np.uint8), begin, end, bits))


@inner
def hash_of_event(index: EdgeIndex, g: GraphView, src: int, dst: int, etype: int, keys: Keys, i: int) -> np.uint64:
    """32 bits of hash of the edge with these ends that has the key of an event."""
    if g.key_kind == t.NO_KEYS:
        return hash_edge(index.rows.salt, src, dst, etype)
    return hash_keyed(index.rows.salt, src, dst, etype, keys.numbers[i])


@inner
def _has_key(g: GraphView, row: int, keys: Keys, i: int) -> bool:
    if g.key_kind == t.INT_KEYS:
        return g.wide_keys[row, 0] == keys.numbers[i]
    at, length = g.keys.data[row, t.KEY_AT], g.keys.data[row, t.KEY_BYTES]
    return is_text(g.words.data, at, length, keys.data, keys.offsets[i], keys.offsets[i + 1])


@inner
def find_row(index: EdgeIndex, g: GraphView, src: int, dst: int, etype: int, keys: Keys, i: int) -> np.int64:
    """The row of the edge that has the key of an event, or -1."""
    edge, rows = g.edge.data, index.rows
    if g.key_kind == t.NO_KEYS:
        return find_edge(rows, edge, src, dst, etype)
    half = hash_of_event(index, g, src, dst, etype, keys, i)
    at = home_of(rows, half)
    while rows.entries[at]:
        if matches(rows, at, half):
            row = row_at(rows, at)
            if edge[row, t.SRC] == src and edge[row, t.DST] == dst and edge[row, t.TYPE] == etype:
                if _has_key(g, row, keys, i):
                    return row
        at = after(rows, at)
    return np.int64(-1)


@inner
def has_room_for_key(g: GraphView, keys: Keys, i: int) -> bool:
    """Return whether the pool of words has room for the key of an event, twice."""
    if g.key_kind != t.STRING_KEYS:
        return True
    return g.scalars[t.NAME_TAIL] + 2 * words_for(keys.offsets[i + 1] - keys.offsets[i]) <= len(g.words.data)


@inner
def set_key(g: GraphView, row: int, keys: Keys, i: int) -> None:
    """Have the key of an event in a new row."""
    if g.key_kind == t.NO_KEYS:
        return
    touch(g.keys, row)
    if g.key_kind == t.INT_KEYS:
        g.wide_keys[row, 0] = keys.numbers[i]
        return
    begin, end = keys.offsets[i], keys.offsets[i + 1]
    g.keys.data[row, t.KEY_AT] = put_text(g.scalars, g.words, keys.data, begin, end) if end > begin else np.int64(0)
    g.keys.data[row, t.KEY_BYTES] = end - begin


@inner
def drop_key(g: GraphView, row: int) -> None:
    """Give back the memory of the key of a row that is free from now on."""
    if g.key_kind == t.STRING_KEYS and g.keys.data[row, t.KEY_BYTES]:
        drop_text(g.scalars, g.words, np.int64(g.keys.data[row, t.KEY_AT]), np.int64(g.keys.data[row, t.KEY_BYTES]))


@inner
def first_parallel(index: EdgeIndex, g: GraphView, src: int, dst: int, etype: int) -> np.int64:
    """The first of the edges that are there of a pair and type, or -1; edges have keys."""
    return find_edge(index.pairs, g.edge.data, src, dst, etype)


@inner
def count_parallel(index: EdgeIndex, g: GraphView, src: int, dst: int, etype: int) -> np.int64:
    """Return the number of edges that are there of a pair and type; edges have keys."""
    count, row = np.int64(0), first_parallel(index, g, src, dst, etype)
    while row >= 0:
        count += 1
        row = np.int64(g.keys.data[row, t.PAIR_NEXT])
    return count


@inner
def _pair_hash(index: EdgeIndex, g: GraphView, row: int) -> np.uint64:
    edge = g.edge.data
    return hash_edge(index.pairs.salt, edge[row, t.SRC], edge[row, t.DST], edge[row, t.TYPE])


@inner
def link_parallel(index: EdgeIndex, g: GraphView, row: int) -> None:
    """Put an edge, which is there from now on, among its parallel ones."""
    if g.key_kind == t.NO_KEYS:
        return
    edge, keys = g.edge.data, g.keys.data
    first, following = first_parallel(index, g, edge[row, t.SRC], edge[row, t.DST], edge[row, t.TYPE]), np.int64(-1)
    touch(g.keys, row)
    if first < 0:
        put(index.pairs, _pair_hash(index, g, row), row)
    else:
        following = np.int64(keys[first, t.PAIR_NEXT])
        touch(g.keys, first)
        keys[first, t.PAIR_NEXT] = row
        if following >= 0:
            touch(g.keys, following)
            keys[following, t.PAIR_PREV] = row
    keys[row, t.PAIR_PREV], keys[row, t.PAIR_NEXT] = first, following


@inner
def unlink_parallel(index: EdgeIndex, g: GraphView, row: int) -> None:
    """Take an edge, which is there no more, out of the list of its parallel ones."""
    if g.key_kind == t.NO_KEYS:
        return
    keys = g.keys.data
    before, following = np.int64(keys[row, t.PAIR_PREV]), np.int64(keys[row, t.PAIR_NEXT])
    if before >= 0:
        touch(g.keys, before)
        keys[before, t.PAIR_NEXT] = following
    elif following >= 0:
        replace(index.pairs, _pair_hash(index, g, row), row, following)
    else:
        drop(index.pairs, _pair_hash(index, g, row), row)
    if following >= 0:
        touch(g.keys, following)
        keys[following, t.PAIR_PREV] = before


@kernel
def index_edges(index: EdgeIndex, g: GraphView, rows: np.ndarray, bits: int) -> None:
    """Put these edges into indexes that are large enough."""
    for row in rows:
        put(index.rows, hash_of_row(index, g, row, bits), row)
        if g.key_kind != t.NO_KEYS and g.keys.data[row, t.PAIR_PREV] < 0:
            put(index.pairs, _pair_hash(index, g, row), row)
