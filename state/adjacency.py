"""Adjacency lists in tables: one growable list of int32 values per row, with an optional float32 beside each value.

A list lives in a chunk of a shared pool (state/chunks.py); one that outgrows its chunk moves to another of twice the
size and gives the old one back, so the pool follows the number of entries and not the number of changes.

A long list that is searched has an index in memory (state/memory/list_index.py), so that a hub costs no more. A kernel
that is about to search asks first whether one is missing (`lacks_index`), and leaves making it to `Lists.make_index`.

Each part in a table has a pool of its own: what stands in a part's tables does not depend on those beside it.
Tagged lists have a number beside each value, of which no two entries of a list have the same: an entry is known by it
and not by its value, which many may have. A chunk's first half has the values, its second half the tags.
Entries are slots of their part: of the same rows, or of the rows of the lists at the other end (`Lists.end_at`).
"""

from __future__ import annotations

from operator import is_not
from typing import Any, NamedTuple

import numpy as np

from freshet.kernels.kernel import apart, inner, kernel
from freshet.kernels.prefetch import prefetch
from freshet.state.chunks import hand_out, order_of
from freshet.state.memory import list_index
from freshet.state.memory.list_index import read_through
from freshet.state.table import TableSet, View, align, touch

_AT, _LENGTH, _CAPACITY = 0, 1, 2
_FREE_ROWS = 32  # of `free`, for each part
_END = 31  # the one of them that holds the end of the pool; rows 0..30 head the chains of free chunks
FIRST_CAPACITY = 4
_GROWTH = 4  # a pool grows by a quarter: those of all edges are much of a job's memory
_AHEAD = 16  # lists
_READ_FIRST = 2  # of a list with an index, so many bits of `short`: many entries of one value may begin there


class ListsView(NamedTuple):
    """View of the lists for kernels."""

    head: View  # (rows, 3) int32: place in the part's pool, length, capacity
    pool: View  # (parts * stride,) int32
    weight: View  # (parts * stride,) float32, or a stand-in where the lists carry none
    free: View  # (parts * 32,) int64
    weighted: bool
    tagged: bool
    stride: int  # entries of a part's pool
    shift: int  # row >> shift is the index of the row's part
    far: int  # likewise, of the rows whose slots are the entries
    short: int  # entries of the longest list that never has an index
    numbers: np.ndarray  # (n,) int32: where entries stand in long lists (state/memory/list_index.py)


class Data(NamedTuple):
    """Read-only view of a table for kernels."""

    data: np.ndarray


class ListsRead(NamedTuple):
    """Read-only view of lists for kernels, without weights: each array takes time to pass."""

    head: Data  # (rows, 3) int32, as of ListsView
    pool: Data  # (parts * stride,) int32
    stride: int
    shift: int
    far: int


def read_alone(lists: ListsView) -> ListsRead:
    """Return a read-only view of the lists, for a kernel that only reads them."""
    return ListsRead(Data(lists.head.data), Data(lists.pool.data), lists.stride, lists.shift, lists.far)


@inner
def place_of(lists: ListsView | ListsRead, row: int) -> np.int64:
    """Return the position in the pools where the list of `row` begins."""
    return np.int64(row >> lists.shift) * lists.stride + np.int64(lists.head.data[row, _AT])


@inner
def length_of(lists: ListsView | ListsRead, row: int) -> np.int64:
    """Return the number of entries in the list of `row`."""
    return np.int64(lists.head.data[row, _LENGTH])


@inner
def _known_from(lists: ListsView, row: int) -> np.int64:
    """Return where that begins in the pools by which entries of the list of `row` are known: values, or tags."""
    return place_of(lists, row) + ((lists.head.data[row, _CAPACITY] >> 1) if lists.tagged else 0)


@inner
def base_of(lists: ListsView | ListsRead, row: int) -> int:
    """The row of slot 0 at the other end, in this row's part: lists hold slots, everything else rows."""
    return (row >> lists.shift) << lists.far


@inner
def _slot_of(lists: ListsView, row: int) -> int:
    return row - ((row >> lists.shift) << lists.shift)


@inner
def _leave_chunk(lists: ListsView, row: int, at: int, capacity: int) -> None:
    part = np.int64(row >> lists.shift)
    head, first = part * _FREE_ROWS + order_of(capacity), part * lists.stride + at
    touch(lists.free, head)
    touch(lists.pool, first)
    lists.pool.data[first] = lists.free.data[head]
    lists.free.data[head] = at + 1


@apart
def _grow(lists: ListsView, row: int) -> bool:
    """Move the list of `row` to a chunk of twice the size; False when the pool has no room."""
    head, pool, free = lists.head.data, lists.pool.data, lists.free.data
    part = np.int64(row >> lists.shift)
    base, heads = part * lists.stride, part * _FREE_ROWS
    old_at, length, old_capacity = np.int64(head[row, _AT]), head[row, _LENGTH], head[row, _CAPACITY]
    capacity = max(FIRST_CAPACITY, old_capacity * 2)
    k = order_of(capacity)
    touch(lists.free, heads + k)
    touch(lists.free, heads + _END)
    at = hand_out(free[heads:], free[heads + _END :], pool[base:], lists.stride, k, 0)
    if at < 0:
        return False
    new, old = base + at, base + old_at
    for i in range(length):
        touch(lists.pool, new + i)
        pool[new + i] = pool[old + i]
    if lists.weighted:
        for i in range(length):
            touch(lists.weight, new + i)
            lists.weight.data[new + i] = lists.weight.data[old + i]
    if lists.tagged:
        new_half, old_half = new + (capacity >> 1), old + (old_capacity >> 1)
        for i in range(length):
            touch(lists.pool, new_half + i)
            pool[new_half + i] = pool[old_half + i]
    if old_capacity:
        _leave_chunk(lists, row, old_at, old_capacity)
    touch(lists.head, row)
    head[row, _AT] = at
    head[row, _CAPACITY] = capacity
    return True


@inner
def lengthen(lists: ListsView, row: int, more: int) -> bool:
    """Have up to FIRST_CAPACITY more entries, of tagged lists half as many; False, unchanged, if the pool is full."""
    head = lists.head.data
    room = head[row, _CAPACITY] >> 1 if lists.tagged else head[row, _CAPACITY]
    if head[row, _LENGTH] + more > room and not _grow(lists, row):
        return False
    touch(lists.head, row)
    head[row, _LENGTH] += more
    return True


@inner
def shorten(lists: ListsView, row: int, less: int) -> None:
    """Remove the last `less` entries of a list. An empty list gives its chunk back."""
    head = lists.head.data
    touch(lists.head, row)
    head[row, _LENGTH] -= less
    if head[row, _LENGTH] == 0:
        _leave_chunk(lists, row, np.int64(head[row, _AT]), head[row, _CAPACITY])
        head[row, _AT] = 0
        head[row, _CAPACITY] = 0


@kernel
def append(lists: ListsView, row: int, value: int, weight: float, tag: int) -> bool:
    """Add an entry to the list of `row`; False, with nothing changed, when the pool must grow first."""
    if not lengthen(lists, row, 1):
        return False
    first, length = place_of(lists, row), length_of(lists, row)
    at = first + length - 1
    touch(lists.pool, at)
    lists.pool.data[at] = value
    if lists.weighted:
        touch(lists.weight, at)
        lists.weight.data[at] = weight
    known = _known_from(lists, row)
    if lists.tagged:
        touch(lists.pool, known + length - 1)
        lists.pool.data[known + length - 1] = tag
    if length > lists.short:
        slot = _slot_of(lists, row)
        list_index.note_added(lists.numbers, row >> lists.shift, slot, lists.pool.data, known, length)
    return True


@apart
def _find_in_long(lists: ListsView, row: int, value: int, weight: float, weighted: bool) -> np.int64:
    """Like `read_through`, for a list that may have an index."""
    begin, length = _known_from(lists, row), length_of(lists, row)
    pool, weights = lists.pool.data, lists.weight.data
    record = list_index.record_of(lists.numbers, row >> lists.shift, _slot_of(lists, row))
    end = begin + length if record == 0 else begin + (lists.short >> _READ_FIRST)
    place = read_through(pool, weights, weighted, begin, end, value, weight)
    if place >= 0 or record == 0:
        return place
    number = list_index.number_of(lists.numbers, record, pool, weights, weighted, begin, value, weight)
    return begin + number if number >= 0 else number


@kernel
def find(lists: ListsView, row: int, value: int, weight: float, tag: int) -> np.int64:
    """Return the position of the first such entry in the pools, or -1.

    An entry is known by its tag or, without tags, by its value and, if weights are kept, its weight.
    """
    length, begin = length_of(lists, row), _known_from(lists, row)
    known, weighted = np.int64(tag if lists.tagged else value), lists.weighted and not lists.tagged
    if length > lists.short:
        place = _find_in_long(lists, row, known, weight, weighted)
    else:
        place = read_through(lists.pool.data, lists.weight.data, weighted, begin, begin + length, known, weight)
    return place - (begin - place_of(lists, row)) if place >= 0 else place


@inner
def lacks_index(lists: ListsView, rows: np.ndarray) -> bool:
    """Return whether one of these lists is long and has no index, before entries are searched in them."""
    for i in range(len(rows)):
        if i + _AHEAD < len(rows):
            prefetch(lists.head.data, np.int64(rows[i + _AHEAD]) * 3)
        row = rows[i]
        if length_of(lists, row) > 2 * lists.short and not _has_index(lists, row):
            return True
    return False


@inner
def _has_index(lists: ListsView, row: int) -> bool:
    return list_index.record_of(lists.numbers, row >> lists.shift, _slot_of(lists, row)) != 0


@kernel
def _make_index(lists: ListsView, rows: np.ndarray, start: int) -> int:
    """Index the long lists of the rows from `start` on; where that stopped for want of room."""
    for i in range(start, len(rows)):
        row, length = rows[i], length_of(lists, rows[i])
        if length > 2 * lists.short and not _has_index(lists, row):
            of, first = _slot_of(lists, row), _known_from(lists, row)
            if not list_index.add_table(lists.numbers, row >> lists.shift, of, lists.pool.data, first, length):
                return i
    return len(rows)


@inner
def remove_at(lists: ListsView, row: int, place: int) -> None:
    """Take out the entry at `place`; the last one moves there. An empty list gives its chunk back."""
    pool, first, length = lists.pool.data, place_of(lists, row), length_of(lists, row)
    known, number = _known_from(lists, row), place - first
    if length > lists.short:
        part, slot = row >> lists.shift, _slot_of(lists, row)
        list_index.note_removed(lists.numbers, part, slot, pool, known, length, number, lists.short)
    if lists.tagged:
        touch(lists.pool, known + number)
        pool[known + number] = pool[known + length - 1]
    last = first + length - 1
    touch(lists.pool, place)
    pool[place] = pool[last]
    if lists.weighted:
        touch(lists.weight, place)
        lists.weight.data[place] = lists.weight.data[last]
    shorten(lists, row, 1)


@kernel
def remove(lists: ListsView, row: int, value: int, weight: float, tag: int) -> bool:
    """Take out one such entry; False where there is none."""
    place = find(lists, row, value, weight, tag)
    if place < 0:
        return False
    remove_at(lists, row, place)
    return True


@inner
def set_weight(lists: ListsView, row: int, value: int, old: float, new: float, tag: int) -> bool:
    """Replace the weight of one such entry; False where there is none."""
    place = find(lists, row, value, old, tag)
    if place < 0:
        return False
    touch(lists.weight, place)
    lists.weight.data[place] = new
    return True


class Lists:
    """Lists of int32 per row, in the tables `name.head`, `name.pool`, `name.free` (and `name.weight`)."""

    def __init__(self, tables: TableSet, name: str, weighted: bool = False, *, tagged: bool = False) -> None:
        self.weighted, self.tagged, self._parts = weighted, tagged, tables.parts
        self.head = tables.add(f"{name}.head", "i4", 3)
        self.pool = tables.add(f"{name}.pool", "i4")
        self.free = tables.add(f"{name}.free", "i8")
        self.weight = tables.add(f"{name}.weight", "f4") if weighted else None
        self.pools = [self.pool] if self.weight is None else [self.pool, self.weight]
        for table in self.pools:
            table.growth = _GROWTH
        self.free.reserve(_FREE_ROWS)
        self._index = list_index.no_index()
        self._far = self.head
        self._stand_in: tuple[View, View] | None = None
        self._view: ListsView | None = None
        self._view_of: tuple[Any, ...] = ()

    def end_at(self, others: Lists) -> None:
        """Have entries be slots of the rows of these lists, where both ends of an edge stand in tables of their own."""
        self._far = others.head

    def reserve(self, rows: int | np.ndarray) -> None:
        """Make room for the lists of that many rows in every part, or of `rows[part]` in each."""
        self.head.reserve(rows)

    def reserve_entries(self, entries: int) -> None:
        """Make room in the pool of every part for about that many more entries."""
        self.pool.reserve(self._ends() + entries)
        if self.weight is not None:
            self.weight.reserve(self.pool.part_rows)
            align(self.pool, self.weight)

    def after_restore(self) -> None:
        """Have room for all that was ever handed out: in another layout pools may have been larger than their rows."""
        self.reserve_entries(0)
        self._index = list_index.no_index()

    def make_index(self, rows: np.ndarray) -> None:
        """Index those lists of these rows that are long; entries are about to be looked for there."""
        at = 0
        while (at := _make_index(self.view, rows, at)) < len(rows):
            self._index = list_index.with_room(self._index, int(self.head.data[rows[at], _LENGTH]))

    def tidy(self) -> None:
        """Give back the memory of an index of which little is left."""
        if list_index.is_mostly_empty(self._index):
            self._index = list_index.with_room(self._index, 0)

    @property
    def index_bytes(self) -> int:
        """Bytes that the index holds in memory."""
        return self._index.nbytes

    def _ends(self) -> np.ndarray:
        """Return the first unused position in the pool of each part."""
        return self.free.data.reshape(self._parts, -1)[:, _END]

    def grow(self) -> None:
        """Make room after a kernel said that a pool is full."""
        largest = int(self.head.data[:, _CAPACITY].max(initial=0))
        self.reserve_entries(max(1024, self.pool.stride // _GROWTH, 2 * largest))

    @property
    def view(self) -> ListsView:
        """The lists as kernels see them."""
        weight = self._no_weights() if self.weight is None else self.weight.view
        # of views that are made again when they are stale, by which it is seen whether this one is
        of = self.head.view, self.pool.view, weight, self.free.view, self._far.view, self._index
        if self._view is None or any(map(is_not, of, self._view_of)):
            room = min(pool.stride for pool in self.pools)  # after a restore the two may have grown differently
            shifts, short = (self.head.part_shift, self._far.part_shift), list_index.LONG // 2
            self._view = ListsView(*of[:4], self.weighted, self.tagged, room, *shifts, short, self._index)
            self._view_of = of
        return self._view

    def _no_weights(self) -> View:
        """Return a view of no table, of the same types, so that kernels are compiled once."""
        free = self.free.view
        if self._stand_in is None or self._stand_in[0] is not free:
            self._stand_in = free, free._replace(data=_NO_WEIGHTS, shadow=_NO_COPIES)
        return self._stand_in[1]

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All entries: rows (n,) int64, values (n,) int32, and of weighted lists the weights, (n,) float32."""
        of, at = self.places(np.arange(len(self.head.data)))
        return of, self.pool.data[at], self.pool.data[:0] if self.weight is None else self.weight.data[at]

    def places(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places in the pool of all entries of these rows, and of each which row's: (n,) int64."""
        head = self.head.data[rows].astype(np.int64)
        length, part = head[:, _LENGTH], rows.astype(np.int64) >> self.head.part_shift
        first = part * self.pool.stride + head[:, _AT] - np.cumsum(length)
        of = np.repeat(np.arange(len(rows)), length)
        return of, np.repeat(first + length, length) + np.arange(len(of))

    def of(self, row: int) -> np.ndarray:
        """The values of one list."""
        return self.pool.data[self.places(np.array([row]))[1]]


_NO_WEIGHTS, _NO_COPIES = np.zeros(1, np.float32), np.zeros((1, 1), np.float32)
