"""Open-addressing hash indexes over the tables. They are rebuilt after a restore and never decide an order.

Linear probing; a removal moves later entries back, so that no tombstones gather.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from partitioner.tables import DST, SRC, TYPE

FIRST_CAPACITY = 1024
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class KeyIndex(NamedTuple):
    """Keys (int64) to rows; a key may stand there more than once."""

    keys: np.ndarray  # (capacity,) int64
    rows: np.ndarray  # (capacity,) int32, -1 where free
    used: np.ndarray  # (1,) int64


class EdgeIndex(NamedTuple):
    """(source, destination, type) to edge rows, compared through the edge table.

    An entry holds the upper half of the hash and the row + 1; its home is in that half, so nothing else is read to
    move it.
    """

    entries: np.ndarray  # (capacity,) uint64, 0 where free
    used: np.ndarray  # (1,) int64


def key_index(capacity: int = FIRST_CAPACITY) -> KeyIndex:
    """An empty index; capacity is a power of two."""
    return KeyIndex(np.zeros(capacity, np.int64), np.full(capacity, -1, np.int32), np.zeros(1, np.int64))


def edge_index(capacity: int = FIRST_CAPACITY) -> EdgeIndex:
    """An empty index; capacity is a power of two."""
    return EdgeIndex(np.zeros(capacity, np.uint64), np.zeros(1, np.int64))


def capacity_for(entries: int) -> int:
    """A power of two that keeps the load below one half."""
    return max(FIRST_CAPACITY, 1 << (2 * entries).bit_length())


@njit(nogil=True, cache=True)
def mix(value: int) -> np.uint64:
    """SplitMix64's finaliser, uint64."""
    z = np.uint64(value) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(nogil=True, cache=True)
def home_of(index: KeyIndex, key: int) -> np.int64:
    """Where the search for a key begins."""
    return np.int64(mix(key) & np.uint64(len(index.rows) - 1))


@njit(nogil=True, cache=True)
def put_key(index: KeyIndex, key: int, row: int) -> None:
    """Add an entry; the caller has made room."""
    mask = len(index.rows) - 1
    at = home_of(index, key)
    while index.rows[at] >= 0:
        at = (at + 1) & mask
    index.keys[at] = key
    index.rows[at] = row
    index.used[0] += 1


@njit(nogil=True, cache=True)
def find_key(index: KeyIndex, key: int) -> int:
    """The row of a key that stands there at most once, or -1."""
    mask = len(index.rows) - 1
    at = home_of(index, key)
    while index.rows[at] >= 0:
        if index.keys[at] == key:
            return index.rows[at]
        at = (at + 1) & mask
    return -1


@njit(nogil=True, cache=True)
def drop_key(index: KeyIndex, key: int, row: int) -> None:
    """Take out an entry that is there."""
    mask = len(index.rows) - 1
    at = home_of(index, key)
    while index.rows[at] != row or index.keys[at] != key:
        at = (at + 1) & mask
    hole = at
    while True:
        at = (at + 1) & mask
        if index.rows[at] < 0:
            break
        home = home_of(index, index.keys[at])
        if (at - home) & mask >= (at - hole) & mask:
            index.keys[hole] = index.keys[at]
            index.rows[hole] = index.rows[at]
            hole = at
    index.rows[hole] = -1
    index.used[0] -= 1


@njit(nogil=True, cache=True)
def rehash_keys(old: KeyIndex, new: KeyIndex) -> None:
    """All entries of `old` into the empty, larger `new`."""
    for at in range(len(old.rows)):
        if old.rows[at] >= 0:
            put_key(new, old.keys[at], old.rows[at])


@njit(nogil=True, cache=True)
def index_keys(index: KeyIndex, keys: np.ndarray, rows: np.ndarray) -> None:
    """Put the keys of these rows into an index that is large enough."""
    for row in rows:
        put_key(index, keys[row], row)


@njit(nogil=True, cache=True)
def _edge_hash(src: int, dst: int, etype: int) -> np.uint64:
    ends = (np.uint64(src) << _HALF) | np.uint64(dst)
    return mix(ends ^ (np.uint64(etype) * np.uint64(0xD6E8FEB86659FD93))) >> _HALF


@njit(nogil=True, cache=True)
def find_edge(index: EdgeIndex, edge: np.ndarray, src: int, dst: int, etype: int) -> np.int64:
    """The row of the edge, or -1."""
    mask = len(index.entries) - 1
    half = _edge_hash(src, dst, etype)
    at = np.int64(half & np.uint64(mask))
    while index.entries[at]:
        if index.entries[at] >> _HALF == half:
            row = np.int64(index.entries[at] & _LOW) - 1
            if edge[row, SRC] == src and edge[row, DST] == dst and edge[row, TYPE] == etype:
                return row
        at = (at + 1) & mask
    return np.int64(-1)


@njit(nogil=True, cache=True)
def _put_entry(index: EdgeIndex, entry: int) -> None:
    mask = len(index.entries) - 1
    at = np.int64((entry >> _HALF) & np.uint64(mask))
    while index.entries[at]:
        at = (at + 1) & mask
    index.entries[at] = entry
    index.used[0] += 1


@njit(nogil=True, cache=True)
def put_edge(index: EdgeIndex, src: int, dst: int, etype: int, row: int) -> None:
    """Add an edge that is not there; the caller has made room."""
    _put_entry(index, (_edge_hash(src, dst, etype) << _HALF) | np.uint64(row + 1))


@njit(nogil=True, cache=True)
def drop_edge(index: EdgeIndex, src: int, dst: int, etype: int, row: int) -> None:
    """Take out an edge that is there."""
    mask = len(index.entries) - 1
    half = _edge_hash(src, dst, etype)
    entry = (half << _HALF) | np.uint64(row + 1)
    at = np.int64(half & np.uint64(mask))
    while index.entries[at] != entry:
        at = (at + 1) & mask
    hole = at
    while True:
        at = (at + 1) & mask
        if index.entries[at] == 0:
            break
        home = np.int64((index.entries[at] >> _HALF) & np.uint64(mask))
        if (at - home) & mask >= (at - hole) & mask:
            index.entries[hole] = index.entries[at]
            hole = at
    index.entries[hole] = 0
    index.used[0] -= 1


@njit(nogil=True, cache=True)
def rehash_edges(old: EdgeIndex, new: EdgeIndex) -> None:
    """All entries of `old` into the empty, larger `new`."""
    for entry in old.entries:
        if entry:
            _put_entry(new, entry)


@njit(nogil=True, cache=True)
def index_edges(index: EdgeIndex, edge: np.ndarray, rows: np.ndarray) -> None:
    """Put these edges into an index that is large enough."""
    for row in rows:
        put_edge(index, edge[row, SRC], edge[row, DST], edge[row, TYPE], row)
