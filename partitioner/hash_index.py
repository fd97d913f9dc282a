"""Open-addressing hash indexes over the tables. They are rebuilt after a restore and never decide an order.

An entry holds 32 bits of the hash and the row + 1; its home is in those bits, so that nothing else is read to move it.
Linear probing; a removal moves later entries back, so that no tombstones gather. Rows are compared through the tables.
Homes ascend with hashes, so entries go to a larger index nearly in order, and it may be larger by any part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.partitioner.graph_tables import DST, KEY, KIND, SRC, TYPE
from freshet.state.salt import Salt, mix

FIRST_CAPACITY = 1024
_CAPACITY_MAX = 1 << 32
_TAKEN, _OF = 2, 3  # an index is full at two thirds of its places
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class HashIndex(NamedTuple):
    """From hashes to rows; several entries may have one hash."""

    entries: np.ndarray  # (capacity,) uint64, 0 where free; capacity is at most 2**32
    used: np.ndarray  # (1,) int64
    salt: Salt


def make_index(salt: Salt, entries: int = 0) -> HashIndex:
    """Return an empty index with room for `entries` entries and an eighth more."""
    return _with_capacity(salt, max(FIRST_CAPACITY, _capacity_for(entries + entries // 8)))


def _capacity_for(entries: int) -> int:
    return _OF * entries // _TAKEN + 4


def _with_capacity(salt: Salt, capacity: int) -> HashIndex:
    return HashIndex(np.zeros(min(capacity, _CAPACITY_MAX), np.uint64), np.zeros(1, np.int64), salt)


def grown(index: HashIndex, entries: int) -> HashIndex:
    """Return the index, or a larger one with the same entries if it has no room for `entries` in all."""
    if _OF * entries <= _TAKEN * len(index.entries):  # as `has_room`, which only kernels call
        return index
    capacity = len(index.entries)
    larger = _with_capacity(index.salt, max(_capacity_for(entries), capacity + capacity // 4))
    _rehash(index, larger)
    return larger


@inner
def has_room(index: HashIndex, entries: int) -> bool:
    """Return whether the index may have `entries` entries in all."""
    return _OF * entries <= _TAKEN * len(index.entries)


@inner
def hash_edge(salt: Salt, src: int, dst: int, etype: int) -> np.uint64:
    """32 bits of hash of an edge between vertex rows."""
    ends = (np.uint64(src) << _HALF) | np.uint64(dst)
    return mix(salt, ends + np.uint64(etype) * salt.first)


@inner
def hash_vertex(salt: Salt, key: int, kind: int) -> np.uint64:
    """32 bits of hash of a vertex; of the first kind they are those of its key alone."""
    return mix(salt, np.uint64(key) + np.uint64(kind) * salt.second)


@inner
def home_of(index: HashIndex, half: int) -> np.int64:
    """Return where the search for a hash begins."""
    return np.int64((half * np.uint64(len(index.entries))) >> _HALF)


@inner
def after(index: HashIndex, at: int) -> np.int64:
    """Return the place where a search goes on behind this one."""
    return np.int64(at + 1 if at + 1 < len(index.entries) else 0)


@inner
def _behind(index: HashIndex, first: int, at: int) -> np.int64:
    """Return how many places a search goes from `first` to `at`."""
    return np.int64(at - first if at >= first else at - first + len(index.entries))


@inner
def row_at(index: HashIndex, at: int) -> np.int64:
    """The row in this place, or -1."""
    return np.int64(index.entries[at] & _LOW) - 1


@inner
def matches(index: HashIndex, at: int, half: int) -> bool:
    """Return whether the entry in this place has the hash."""
    return index.entries[at] >> _HALF == half


@inner
def put(index: HashIndex, half: int, row: int) -> None:
    """Add an entry; the caller has made room."""
    at = home_of(index, half)
    while index.entries[at]:
        at = after(index, at)
    index.entries[at] = (half << _HALF) | np.uint64(row + 1)
    index.used[0] += 1


@inner
def drop(index: HashIndex, half: int, row: int) -> None:
    """Take out an entry that is there."""
    entry = (half << _HALF) | np.uint64(row + 1)
    at = home_of(index, half)
    while index.entries[at] != entry:
        at = after(index, at)
    hole = at
    while True:
        at = after(index, at)
        if index.entries[at] == 0:
            break
        home = home_of(index, index.entries[at] >> _HALF)
        if _behind(index, home, at) >= _behind(index, hole, at):
            index.entries[hole] = index.entries[at]
            hole = at
    index.entries[hole] = 0
    index.used[0] -= 1


@inner
def replace(index: HashIndex, half: int, row: int, by: int) -> None:
    """Have another row with the same hash in the place of one that is there."""
    entry = (half << _HALF) | np.uint64(row + 1)
    at = home_of(index, half)
    while index.entries[at] != entry:
        at = after(index, at)
    index.entries[at] = (half << _HALF) | np.uint64(by + 1)


@kernel
def _rehash(old: HashIndex, new: HashIndex) -> None:
    for entry in old.entries:
        if entry:
            put(new, entry >> _HALF, np.int64(entry & _LOW) - 1)


@inner
def find_key(index: HashIndex, vertex: np.ndarray, wide: np.ndarray, key: int, kind: int, has_kinds: bool) -> np.int64:
    """The row of the vertex of the kind with this key, or -1.

    Without kinds none is read: it may stand in another cache line than the key.
    """
    half = hash_vertex(index.salt, key, kind)
    at = home_of(index, half)
    while index.entries[at]:
        row = row_at(index, at)
        if matches(index, at, half) and wide[row, KEY] == key and (not has_kinds or vertex[row, KIND] == kind):
            return row
        at = after(index, at)
    return np.int64(-1)


@inner
def find_edge(index: HashIndex, edge: np.ndarray, src: int, dst: int, etype: int) -> np.int64:
    """The row of the edge, or -1."""
    half = hash_edge(index.salt, src, dst, etype)
    at = home_of(index, half)
    while index.entries[at]:
        if matches(index, at, half):
            row = row_at(index, at)
            if edge[row, SRC] == src and edge[row, DST] == dst and edge[row, TYPE] == etype:
                return row
        at = after(index, at)
    return np.int64(-1)


@kernel
def index_keys(index: HashIndex, vertex: np.ndarray, wide: np.ndarray, rows: np.ndarray) -> None:
    """Put these vertices into an index that is large enough."""
    for row in rows:
        put(index, hash_vertex(index.salt, wide[row, KEY], vertex[row, KIND]), row)
