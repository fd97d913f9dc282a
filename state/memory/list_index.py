"""Positions of entries in long lists of int32 values (state/adjacency.py): one hash table per list, only in memory.

A list has its table from the first search on that finds it longer than LONG, and loses it at half of that: a short one
is read through as fast. A table is derived from its list: states do not contain it, and a restored job builds it again.
A search finds the first of several equal entries, like a sequential search; so the order of a list, and the bits
computed from it, do not depend on whether it has a table.

A table has 2**order cells: the number of an entry in its list + 1, 0 where none ever was, GONE where one was. Numbers
count from the beginning of the list, which may move in its pool. Entries lie from the place on that their value is
hashed to. A new table is a quarter to half full. Where less than a quarter of the cells was never used, it is filled
once more; and where the list is too long for it by then, the next search makes a larger one, as no kernel makes room.

All tables of a pool of lists, and a *record* of each, are one array of int32: a header, the records (hashed by part and
slot), the tables.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import apart, inner
from freshet.state.chunks import order_of

LONG = 1024  # entries; at least 8
GONE = -1
# The header: room for so many records, a power of two; records that were ever used; where the room for tables begins
# that was never used, and what all tables have, in lines of 16 cells.
_ROOM, _GIVEN, _END, _LINES = range(4)
_HEADER, _LINE = 16, 16
_RECORD = 8
_PART, _SLOT, _AT, _ORDER, _USED = range(5)  # part + 1, or 0: never used, GONE; cells that are not 0
_SPREAD = 2654435769  # 2**32 divided by the golden ratio
_FEW_RECORDS = 8
_STRIDE = 16
_FEW = 1 << 14  # lines of 16 cells that are kept where nothing is in them: 1 MiB


def no_index() -> np.ndarray:
    """Room for nothing yet."""
    return np.zeros(_HEADER, np.int32)


@inner
def read_through(
    pool: np.ndarray, weights: np.ndarray, weighted: bool, begin: int, end: int, value: int, weight: float
) -> np.int64:
    """The first place in a pool from `begin` to `end` where a value stands, where `weighted` with a weight, or -1."""
    while begin + _STRIDE <= end:  # a stride without the value is passed in a few vector instructions
        hit = np.int32(0)
        for i in range(_STRIDE):
            hit |= np.int32(pool[begin + i] == value)
        if hit:
            for i in range(begin, begin + _STRIDE):
                if pool[i] == value and (not weighted or weights[i] == np.float32(weight)):
                    return np.int64(i)
        begin += _STRIDE
    for i in range(begin, end):
        if pool[i] == value and (not weighted or weights[i] == np.float32(weight)):
            return np.int64(i)
    return np.int64(-1)


@inner
def _home(value: int, order: int) -> np.int64:
    """Return the cell, in a table of 2**order cells, that a value is hashed to."""
    return ((np.int64(value) * np.int64(_SPREAD)) & np.int64(0xFFFFFFFF)) >> (np.int64(32) - order)


@inner
def record_of(index: np.ndarray, part: int, slot: int) -> np.int64:
    """Return the position of a list's record; 0 if it has no table."""
    most = np.int64(index[_ROOM])
    if most == 0:
        return np.int64(0)
    k = (np.int64(slot) * np.int64(_SPREAD) + np.int64(part)) & (most - 1)
    while True:
        at = _HEADER + _RECORD * k
        if index[at + _PART] == 0:
            return np.int64(0)
        if index[at + _PART] == part + 1 and index[at + _SLOT] == slot:
            return at
        k = (k + 1) & (most - 1)


@inner
def _begin(index: np.ndarray, record: int) -> np.int64:
    return np.int64(index[record + _AT]) * _LINE


@inner
def _put(index: np.ndarray, record: int, value: int, number: int) -> None:
    """Have the entry in a table that has a cell for it."""
    at, order = _begin(index, record), np.int64(index[record + _ORDER])
    k, mask = _home(value, order), (np.int64(1) << order) - 1
    while index[at + k] != 0:
        k = (k + 1) & mask
    index[at + k] = number + 1
    index[record + _USED] += 1


@apart
def _fill(index: np.ndarray, record: int, order: int, pool: np.ndarray, first: int, length: int) -> None:
    """Make a table of the list in the cells that it has, or in the first of them."""
    at = _begin(index, record)
    index[_LINES] -= np.int32(((np.int64(1) << np.int64(index[record + _ORDER])) - (np.int64(1) << order)) // _LINE)
    index[record + _ORDER], index[record + _USED] = order, 0
    for k in range(np.int64(1) << order):
        index[at + k] = 0
    for number in range(length):
        _put(index, record, pool[first + number], number)


@inner
def _drop(index: np.ndarray, record: int) -> None:
    """The list has no table any more."""
    index[_LINES] -= np.int32((np.int64(1) << np.int64(index[record + _ORDER])) // _LINE)
    index[record + _PART] = GONE


@inner
def add_table(index: np.ndarray, part: int, slot: int, pool: np.ndarray, first: int, length: int) -> bool:
    """Make a table of a list that has none; False, with nothing changed, where there is no room for it."""
    most, order = np.int64(index[_ROOM]), order_of(2 * length)
    lines = (np.int64(1) << order) // _LINE
    if 2 * (np.int64(index[_GIVEN]) + 1) > most or (np.int64(index[_END]) + lines) * _LINE > len(index):
        return False
    k = (np.int64(slot) * np.int64(_SPREAD) + np.int64(part)) & (most - 1)
    while index[_HEADER + _RECORD * k + _PART] != 0:
        k = (k + 1) & (most - 1)
    record = _HEADER + _RECORD * k
    index[record + _PART], index[record + _SLOT], index[record + _AT] = part + 1, slot, index[_END]
    index[record + _ORDER] = order
    index[_GIVEN] += 1
    index[_END] += np.int32(lines)
    index[_LINES] += np.int32(lines)
    _fill(index, record, order, pool, first, length)
    return True


@apart
def number_of(
    index: np.ndarray,
    record: int,
    pool: np.ndarray,
    weights: np.ndarray,
    weighted: bool,
    first: int,
    value: int,
    weight: float,
) -> np.int64:
    """The number of the first entry of this value, where `weighted` with this weight; -1 where there is none."""
    at, order, found = _begin(index, record), np.int64(index[record + _ORDER]), np.int64(-1)
    k, mask = _home(value, order), (np.int64(1) << order) - 1
    while index[at + k] != 0:
        number = np.int64(index[at + k]) - 1
        if number >= 0 and (found < 0 or number < found) and pool[first + number] == value:
            if not weighted or weights[first + number] == np.float32(weight):
                found = number
        k = (k + 1) & mask
    return found


@apart
def number_of_kind(
    index: np.ndarray,
    record: int,
    pool: np.ndarray,
    places: np.ndarray,
    first: int,
    value: int,
    kinds: np.ndarray,
    base: int,
    kind: int,
) -> np.int64:
    """The number of the entry of this value that is of this kind; -1 where there is none, and one at most may be.

    Shapes: places, for each entry of the pool where its kind stands in `kinds`, from `base` on.
    """
    at, order = _begin(index, record), np.int64(index[record + _ORDER])
    k, mask = _home(value, order), (np.int64(1) << order) - 1
    while index[at + k] != 0:
        number = np.int64(index[at + k]) - 1
        if number >= 0 and pool[first + number] == value and kinds[base + places[first + number]] == kind:
            return number
        k = (k + 1) & mask
    return np.int64(-1)


@apart
def note_added(index: np.ndarray, part: int, slot: int, pool: np.ndarray, first: int, length: int) -> None:
    """The list has its last entry since now."""
    record = record_of(index, part, slot)
    if record == 0:
        return
    order = np.int64(index[record + _ORDER])
    cells = np.int64(1) << order
    if 4 * (np.int64(index[record + _USED]) + 1) <= 3 * cells:
        _put(index, record, pool[first + length - 1], length - 1)
    elif 2 * length <= cells:
        _fill(index, record, order, pool, first, length)
    else:
        _drop(index, record)


@inner
def _cell(index: np.ndarray, record: int, value: int, number: int) -> np.int64:
    """Return the cell of an entry."""
    at, order = _begin(index, record), np.int64(index[record + _ORDER])
    k, mask = _home(value, order), (np.int64(1) << order) - 1
    while index[at + k] != number + 1:
        k = (k + 1) & mask
    return at + k


@apart
def note_removed(
    index: np.ndarray, part: int, slot: int, pool: np.ndarray, first: int, length: int, number: int, short: int
) -> None:
    """An entry of the list, which has this length as yet, is about to go, and the last one to take its place."""
    record, last = record_of(index, part, slot), length - 1
    if record == 0:
        return
    if last <= short:
        _drop(index, record)
        return
    if 16 * length <= np.int64(1) << np.int64(index[record + _ORDER]):
        _fill(index, record, order_of(2 * length), pool, first, length)
    index[_cell(index, record, pool[first + number], number)] = GONE
    if number != last:
        index[_cell(index, record, pool[first + last], last)] = number + 1


def with_room(index: np.ndarray, entries: int) -> np.ndarray:
    """Return the same tables in an array with room for one more list of `entries` entries, and as much again."""
    records = index[_HEADER : _HEADER + _RECORD * index[_ROOM]].reshape(-1, _RECORD)
    records = records[records[:, _PART] > 0]
    most = _FEW_RECORDS
    while most < 4 * (len(records) + 1):
        most *= 2
    begin = (_HEADER + _RECORD * most) // _LINE
    more = (1 << (2 * entries - 1).bit_length()) // _LINE if entries else 0
    made = np.zeros((begin + 2 * (int(index[_LINES]) + more)) * _LINE, np.int32)
    made[_ROOM], made[_END] = most, begin
    for record in records:
        _take_over(made, record, index)
    return made


def _take_over(made: np.ndarray, record: np.ndarray, index: np.ndarray) -> None:
    """Copy a table and its record."""
    most, part, slot = int(made[_ROOM]), int(record[_PART]) - 1, int(record[_SLOT])
    k = (slot * _SPREAD + part) & (most - 1)
    while made[_HEADER + _RECORD * k + _PART]:
        k = (k + 1) & (most - 1)
    cells, before, now = 1 << int(record[_ORDER]), int(record[_AT]) * _LINE, int(made[_END]) * _LINE
    made[_HEADER + _RECORD * k : _HEADER + _RECORD * (k + 1)] = record
    made[_HEADER + _RECORD * k + _AT] = made[_END]
    made[now : now + cells] = index[before : before + cells]
    made[_GIVEN] += 1
    made[_END] += cells // _LINE
    made[_LINES] += cells // _LINE


def is_mostly_empty(index: np.ndarray) -> bool:
    """Return whether an array is far larger than its tables."""
    return len(index) > _LINE * (_FEW + 8 * int(index[_LINES]))
