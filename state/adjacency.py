"""Adjacency lists in tables: one growable list of int32 values per row, with an optional float32 beside each value.

A list lives in a chunk of a shared pool (state/chunks.py); one that outgrows its chunk moves to another of twice the
size and gives the old one back, so the pool follows the number of entries and not the number of changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnn.kernel import kernel
from state.chunks import give_back, hand_out, order_of
from state.table import TableSet, View, touch

_AT, _LENGTH, _CAPACITY = 0, 1, 2
_END = 31  # the row of `free` that holds the end of the pool; rows 0..30 head the chains of free chunks
FIRST_CAPACITY = 4
_STRIDE = 16


class ListsView(NamedTuple):
    """What a kernel gets of the lists."""

    head: View  # (rows, 3) int32: place in the pool, length, capacity
    pool: View  # (entries,) int32
    weight: View  # (entries,) float32, or a stand-in where the lists carry none
    free: View  # (32,) int64
    weighted: bool


@kernel
def _leave_chunk(lists: ListsView, at: int, capacity: int) -> None:
    k = order_of(capacity)
    touch(lists.free, k)
    give_back(lists.free.data, lists.pool, at, k)


@kernel
def _grow(lists: ListsView, row: int) -> bool:
    """Move the list of `row` to a chunk of twice the size; False when the pool has no room."""
    head, pool, free = lists.head.data, lists.pool.data, lists.free.data
    old_at, length, old_capacity = head[row, _AT], head[row, _LENGTH], head[row, _CAPACITY]
    capacity = max(FIRST_CAPACITY, old_capacity * 2)
    k, room = order_of(capacity), len(pool)
    if lists.weighted:  # after a restore the two tables may have grown differently
        room = min(room, len(lists.weight.data))
    touch(lists.free, k)
    touch(lists.free, _END)
    at = hand_out(free, free[_END:], pool, room, k)
    if at < 0:
        return False
    for i in range(length):
        touch(lists.pool, at + i)
        pool[at + i] = pool[old_at + i]
    if lists.weighted:
        for i in range(length):
            touch(lists.weight, at + i)
            lists.weight.data[at + i] = lists.weight.data[old_at + i]
    if old_capacity:
        _leave_chunk(lists, old_at, old_capacity)
    touch(lists.head, row)
    head[row, _AT] = at
    head[row, _CAPACITY] = capacity
    return True


@kernel
def append(lists: ListsView, row: int, value: int, weight: float) -> bool:
    """Add an entry to the list of `row`; False, with nothing changed, when the pool must grow first."""
    head = lists.head.data
    if head[row, _LENGTH] == head[row, _CAPACITY] and not _grow(lists, row):
        return False
    at = head[row, _AT] + head[row, _LENGTH]
    touch(lists.pool, at)
    lists.pool.data[at] = value
    if lists.weighted:
        touch(lists.weight, at)
        lists.weight.data[at] = weight
    touch(lists.head, row)
    head[row, _LENGTH] += 1
    return True


@kernel
def find(lists: ListsView, row: int, value: int, weight: float) -> int:
    """Where in the pool the entry stands (with that weight, where weights are kept), or -1."""
    at, length = lists.head.data[row, _AT], lists.head.data[row, _LENGTH]
    pool = lists.pool.data
    begin, end = at, at + length
    while begin + _STRIDE <= end:  # a stride without the value is passed in a few vector instructions
        hit = np.int32(0)
        for i in range(_STRIDE):
            hit |= np.int32(pool[begin + i] == value)
        if hit:
            for i in range(begin, begin + _STRIDE):
                if pool[i] == value and (not lists.weighted or lists.weight.data[i] == np.float32(weight)):
                    return i
        begin += _STRIDE
    for i in range(begin, end):
        if pool[i] == value and (not lists.weighted or lists.weight.data[i] == np.float32(weight)):
            return i
    return -1


@kernel
def remove_at(lists: ListsView, row: int, place: int) -> None:
    """Take out the entry at `place`; the last one moves there. An empty list gives its chunk back."""
    head, pool = lists.head.data, lists.pool.data
    last = head[row, _AT] + head[row, _LENGTH] - 1
    touch(lists.pool, place)
    pool[place] = pool[last]
    if lists.weighted:
        touch(lists.weight, place)
        lists.weight.data[place] = lists.weight.data[last]
    touch(lists.head, row)
    head[row, _LENGTH] -= 1
    if head[row, _LENGTH] == 0:
        _leave_chunk(lists, head[row, _AT], head[row, _CAPACITY])
        head[row, _AT] = 0
        head[row, _CAPACITY] = 0


@kernel
def remove(lists: ListsView, row: int, value: int, weight: float) -> bool:
    """Take out one such entry; False where there is none."""
    place = find(lists, row, value, weight)
    if place < 0:
        return False
    remove_at(lists, row, place)
    return True


class Lists:
    """Lists of int32 per row, in the tables `name.head`, `name.pool`, `name.free` (and `name.weight`)."""

    def __init__(self, tables: TableSet, name: str, weighted: bool = False) -> None:
        self.weighted = weighted
        self.head = tables.add(f"{name}.head", "i4", 3)
        self.pool = tables.add(f"{name}.pool", "i4")
        self.free = tables.add(f"{name}.free", "i8")
        self.weight = tables.add(f"{name}.weight", "f4") if weighted else None
        self.free.reserve(32)

    def reserve(self, rows: int) -> None:
        """Make room for the lists of that many rows."""
        self.head.reserve(rows)

    def reserve_entries(self, entries: int) -> None:
        """Make room in the pool for about that many more entries."""
        self.pool.reserve(int(self.free.data[_END]) + entries)
        if self.weight is not None:
            self.weight.reserve(self.pool.data.shape[0])

    def grow(self) -> None:
        """Make room after a kernel said that the pool is full."""
        self.reserve_entries(max(1024, self.pool.data.shape[0], 4 * int(self.head.data[:, _CAPACITY].max(initial=0))))

    @property
    def view(self) -> ListsView:
        """The lists as kernels see them."""
        stand_in = self.free.view._replace(data=_NO_WEIGHTS)
        weight = stand_in if self.weight is None else self.weight.view
        return ListsView(self.head.view, self.pool.view, weight, self.free.view, self.weighted)

    def of(self, row: int) -> np.ndarray:
        """The values of one list (a view)."""
        at, length = self.head.data[row, _AT], self.head.data[row, _LENGTH]
        return self.pool.data[at : at + length]


_NO_WEIGHTS = np.zeros(1, np.float32)
