"""A number for some of the parts in each row: a vertex's slots where it has replicas, a tail's rows by their source.

Up to DENSE_PARTS parts a row has a column for each. Most would be empty where a job has more, so a row then has a list
(state/adjacency.py) of the parts that have a number, in their order: a part, its number, the next part, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch, prefetch_row
from freshet.operators.graph.part_rows import frozen
from freshet.state.adjacency import Data, Lists, ListsRead, ListsView, length_of, lengthen, place_of, shorten
from freshet.state.table import ONE_PART, Table, TableSet, View, touch
from freshet.state.task_parts import DENSE_PARTS

_AHEAD = 8  # rows
_LINE = 16  # int32 in a cache line: half of the lists are longer
_COPIED_AT_ONCE = 1 << 14  # rows, so that a copy of wide ones stays small


class PartsView(NamedTuple):
    """View of the columns for kernels. One of the two forms is a stand-in."""

    dense: View  # (rows, parts) int32, -1: none
    lists: ListsView
    is_sparse: bool


class PartsRead(NamedTuple):
    """Read-only view of the columns for kernels."""

    dense: Data
    lists: ListsRead
    is_sparse: bool


@inner
def cells_of(of: PartsRead | PartsView, row: int) -> int:
    """Return the number of cells of a row; in columns some have no number."""
    return length_of(of.lists, row) >> 1 if of.is_sparse else of.dense.data.shape[1]


@inner
def first_cell(of: PartsRead | PartsView, row: int) -> np.int64:
    """Return where the list of a row begins."""
    return place_of(of.lists, row) if of.is_sparse else np.int64(0)


@inner
def part_in(of: PartsRead | PartsView, first: int, k: int) -> np.int64:
    """The part of the k-th cell of a row, whose list begins at `first`; they are in the order of parts."""
    return np.int64(of.lists.pool.data[first + 2 * k]) if of.is_sparse else np.int64(k)


@inner
def number_in(of: PartsRead | PartsView, row: int, first: int, k: int) -> np.int32:
    """The number of the k-th cell of a row, whose list begins at `first`; -1 where there is none."""
    return of.lists.pool.data[first + 2 * k + 1] if of.is_sparse else of.dense.data[row, k]


@inner
def prefetch_cells(of: PartsRead | PartsView, rows: np.ndarray, i: int) -> None:
    """Ask for the cells of the rows after the i-th; of lists first for what says where they are."""
    near, far = i + _AHEAD, i + 2 * _AHEAD
    if of.is_sparse:
        if far < len(rows):
            prefetch_row(of.lists.head.data, rows[far])
        if near < len(rows):
            prefetch(of.lists.pool.data, place_of(of.lists, rows[near]))
            prefetch(of.lists.pool.data, place_of(of.lists, rows[near]) + _LINE)
    elif near < len(rows):
        prefetch(of.dense.data, np.int64(rows[near]) * of.dense.data.shape[1])


@inner
def _cell_of(of: PartsRead | PartsView, row: int, part: int) -> np.int64:
    """The first cell in the list of `row` that is of this part or a later one."""
    first, k, end = first_cell(of, row), np.int64(0), np.int64(cells_of(of, row))
    while k < end:
        middle = (k + end) >> 1
        if part_in(of, first, middle) < part:
            k = middle + 1
        else:
            end = middle
    return k


@inner
def number_of(of: PartsRead | PartsView, row: int, part: int) -> np.int32:
    """The number of a part, -1 where there is none."""
    k, first = np.int64(part), first_cell(of, row)
    if of.is_sparse:
        k = _cell_of(of, row, part)
        if k == cells_of(of, row) or part_in(of, first, k) != part:
            return np.int32(-1)
    return number_in(of, row, first, k)


@inner
def put_number(of: PartsView, row: int, part: int, number: int) -> bool:
    """Have this number for the part; False, with nothing changed, when the lists must grow first."""
    if not of.is_sparse:
        touch(of.dense, row)
        of.dense.data[row, part] = number
        return True
    lists, pool, k, many = of.lists, of.lists.pool.data, _cell_of(of, row, part), cells_of(of, row)
    if k == many or part_in(of, first_cell(of, row), k) != part:
        if not lengthen(lists, row, 2):
            return False
        first = first_cell(of, row)
        for at in range(first + 2 * many, first + 2 * k, -2):
            touch(lists.pool, at)
            pool[at], pool[at + 1] = pool[at - 2], pool[at - 1]
    at = first_cell(of, row) + 2 * k
    touch(lists.pool, at)
    pool[at], pool[at + 1] = part, number
    return True


@inner
def drop_number(of: PartsView, row: int, part: int) -> None:
    """Have no number for the part any more."""
    if not of.is_sparse:
        touch(of.dense, row)
        of.dense.data[row, part] = -1
        return
    pool, first, many = of.lists.pool.data, first_cell(of, row), cells_of(of, row)
    k = _cell_of(of, row, part)
    if k == many or part_in(of, first, k) != part:
        return
    last = first + 2 * (many - 1)
    for at in range(first + 2 * k, last, 2):
        touch(of.lists.pool, at)
        pool[at], pool[at + 1] = pool[at + 2], pool[at + 3]
    shorten(of.lists, row, 2)


@kernel
def _read_numbers(of: PartsRead, rows: np.ndarray, parts: np.ndarray, out: np.ndarray) -> None:
    for i in range(len(rows)):
        prefetch_cells(of, rows, i)
        out[i] = number_of(of, rows[i], parts[i])


@kernel
def _put_numbers(of: PartsView, start: int, rows: np.ndarray, parts: np.ndarray, numbers: np.ndarray) -> int:
    """Put the numbers from `start` on; how far that went before the lists must grow."""
    for i in range(start, len(rows)):
        prefetch_cells(of, rows, i)
        if not put_number(of, rows[i], parts[i], numbers[i]):
            return i
    return len(rows)


@kernel
def _drop_numbers(of: PartsView, rows: np.ndarray, parts: np.ndarray) -> None:
    for i in range(len(rows)):
        prefetch_cells(of, rows, i)
        drop_number(of, rows[i], parts[i])


@kernel
def _count_numbers(of: PartsRead, rows: np.ndarray) -> int:
    count = 0
    for row in rows:
        first = first_cell(of, row)
        for k in range(cells_of(of, row)):
            count += number_in(of, row, first, k) >= 0
    return count


@kernel
def _list_numbers(of: PartsRead, rows: np.ndarray, found: np.ndarray, parts: np.ndarray) -> None:
    at = 0
    for row in rows:
        first = first_cell(of, row)
        for k in range(cells_of(of, row)):
            if number_in(of, row, first, k) >= 0:
                found[at], parts[at] = row, part_in(of, first, k)
                at += 1


@kernel
def _most_cells(of: PartsRead, rows: np.ndarray) -> int:
    most = 0
    for row in rows:
        most = max(most, cells_of(of, row))
    return most


@kernel
def _gather_numbers(of: PartsRead, rows: np.ndarray, shift: int, out: np.ndarray) -> None:
    for i in range(len(rows)):
        first, many = first_cell(of, rows[i]), cells_of(of, rows[i])
        base = np.int32(rows[i] >> of.lists.shift) << np.int32(shift)
        for k in range(out.shape[1]):
            out[i, k] = base + number_in(of, rows[i], first, k) if k < many else np.int32(-1)


def _only_read(array: np.ndarray) -> np.ndarray:
    """Return the array in the form for which kernels are compiled."""
    return frozen(array.view())


class PartColumns:
    """The numbers of each row: in a column for each part or, past DENSE_PARTS parts, in a list for each row."""

    def __init__(self, tables: TableSet, name: str, parts: int) -> None:
        """Have columns in the table `name`, or lists in `name.head`, `.pool` and `.free`."""
        self.is_sparse = parts > DENSE_PARTS
        unused = TableSet(tables.parts)  # of the other form: its tables are no one's
        self._table = (unused if self.is_sparse else tables).add(name, "i4", parts, fill=-1)
        self._lists = Lists(tables if self.is_sparse else unused, name)

    @property
    def view(self) -> PartsView:
        """The columns for kernels that write."""
        return PartsView(self._table.view, self._lists.view, self.is_sparse)

    @property
    def read(self) -> PartsRead:
        """The columns for kernels that only read."""
        head, pool = self._lists.head, self._lists.pool
        lists = ListsRead(Data(head.data), Data(pool.data), pool.stride, head.part_shift, head.part_shift)
        return PartsRead(Data(self._table.data), lists, self.is_sparse)

    @property
    def rows(self) -> Table | Lists:
        """Table or lists that grow with the rows."""
        return self._lists if self.is_sparse else self._table

    @property
    def form(self) -> np.ndarray | ListsRead:
        """The numbers for kernels that read one form: columns (rows, parts) int32 with -1 for none, or lists."""
        return self.read.lists if self.is_sparse else self._table.data

    @property
    def part_shift(self) -> int:
        """`row >> part_shift` is the part of a row."""
        return (self._lists.head if self.is_sparse else self._table).part_shift

    def grow(self) -> None:
        """Make room after a kernel said that there is none."""
        self._lists.grow()

    def held(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and parts of all numbers of these rows, in the order of rows and then of parts: (n,) int32, int16."""
        of, rows = self.read, _only_read(rows)
        count = _count_numbers(of, rows)
        found, parts = np.empty(count, np.int32), np.empty(count, np.int16)
        _list_numbers(of, rows, found, parts)
        return found, parts

    def numbers(self, rows: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """The numbers of these rows' parts, (n,) int32, -1 where there is none."""
        if not self.is_sparse:
            return self._table.data[rows, parts]
        out = np.empty(rows.size, np.int32)
        _read_numbers(self.read, _only_read(rows), _only_read(parts), out)
        return out

    def put(self, rows: np.ndarray, parts: np.ndarray, numbers: np.ndarray) -> None:
        """Have these numbers for these rows' parts."""
        if not self.is_sparse:
            self._put_in_columns(rows, parts, numbers)
            return
        done, given = 0, tuple(map(_only_read, (rows, parts, numbers)))
        while (done := _put_numbers(self.view, done, *given)) < rows.size:
            self.grow()

    def drop(self, rows: np.ndarray, parts: np.ndarray) -> None:
        """Have no numbers for these rows' parts any more."""
        if self.is_sparse:
            _drop_numbers(self.view, _only_read(rows), _only_read(parts))
        else:
            self._put_in_columns(rows, parts, -1)

    def _put_in_columns(self, rows: np.ndarray, parts: np.ndarray, numbers: np.ndarray | int) -> None:
        self._table.touch_rows(rows)
        self._table.data[rows, parts] = numbers

    def clear(self, rows: np.ndarray) -> None:
        """Have no numbers in these rows any more."""
        if self.is_sparse:
            self.drop(*self.held(rows))
        else:
            self._table.clear_rows(rows)

    def columns(self, rows: np.ndarray, shift: int) -> Iterator[tuple[slice, np.ndarray, np.ndarray, int]]:
        """Yield the numbers of the rows as arrays whose columns, except those of -1, are in the order of parts.

        Yields a slice of the rows, the array, the places of these rows in it, and the shift in bits from such a place
        to that of the table's part. Lists are copied in batches, and places then have no part: `k << shift` is added to
        the numbers of the k-th part.
        """
        if not self.is_sparse:
            yield slice(None), self._table.data, rows, self.part_shift
            return
        of, rows = self.read, _only_read(rows)
        for first in range(0, rows.size, _COPIED_AT_ONCE):
            some = slice(first, first + _COPIED_AT_ONCE)
            chosen = rows[some]
            out = np.empty((chosen.size, _most_cells(of, chosen)), np.int32)
            _gather_numbers(of, chosen, shift, out)
            yield some, out, np.arange(chosen.size, dtype=np.int32), ONE_PART


_USED, _FREE = 0, 1


@kernel
def _place(
    index: PartsView,
    chain: View,
    scalars: View,
    slots: np.ndarray,
    numbers: np.ndarray,
    counts: np.ndarray,
    shifts: tuple[int, int, int],
    rows: np.ndarray,
    start: int,
) -> int:
    """Return the row of each (slot, number), allocated or freed by `counts`; -1 if it is freed.

    `shifts` are those of slots, rows and scalars: the bits below each count within a part, and so does the index.
    From `start` on; returns how far it went before the index must grow.
    """
    for i in range(start, len(slots)):
        slot, number = slots[i], numbers[i]
        part = np.int64(slot >> shifts[0])
        base, first = part << shifts[1], part << shifts[2]
        row = np.int64(number_of(index, slot, number))
        touch(scalars, first)
        if counts[i] == 0:
            if row >= 0:
                drop_number(index, slot, number)
                touch(chain, base + row)
                chain.data[base + row] = scalars.data[first + _FREE]
                scalars.data[first + _FREE] = row + 1
            rows[i] = -1
            continue
        if row < 0:
            free, used = scalars.data[first + _FREE], scalars.data[first + _USED]
            row = np.int64(free - 1 if free else used)
            if not put_number(index, slot, number, row):
                return i
            if free:
                scalars.data[first + _FREE] = chain.data[base + row]
            else:
                scalars.data[first + _USED] = used + 1
        rows[i] = base + row
    return len(slots)


class PlacedRows:
    """The rows of the numbers of slots: freed ones are used again.

    Shapes: index: of each slot the rows of its numbers, among those of the slot's part; chain (rows,) int32: of a free
    row the next free one + 1; scalars: of each part the rows that were ever used, and the first free one + 1.
    """

    def __init__(self, tables: TableSet, numbers: int) -> None:
        """Take how many numbers there are; the caller has `index.rows` grow with the slots, and `chain` with rows."""
        self._parts = tables.parts
        self.chain = tables.add("chain", "i4")
        self._scalars = tables.add("scalars", "i8")
        self._scalars.reserve(2)
        self.index = PartColumns(tables, "index", numbers)

    @property
    def used(self) -> np.ndarray:
        """Return the numbers of rows that were ever used, of each part."""
        found: np.ndarray = self._scalars.data.reshape(self._parts, -1)[:, _USED]
        return found

    def place(self, slots: np.ndarray, numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the row of each (slot, number), (n,) int32: a new one where it has none; where counts are 0, free it.

        `chain` has room for all that are new.
        """
        rows, numbers = np.empty(slots.size, np.int32), numbers.astype(np.int16)
        shifts = self.index.part_shift, self.chain.part_shift, self._scalars.part_shift
        tables = self.index.view, self.chain.view, self._scalars.view
        done = 0
        while (done := _place(*tables, slots, numbers, counts, shifts, rows, done)) < slots.size:
            self.index.grow()
            tables = self.index.view, *tables[1:]
        return rows
