"""Rows of tables of their own, one for each number of a slot in use: a part's partial, a relation's pair."""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.operators.graph.part_columns import PartColumns, PartsView, drop_number, number_of, put_number
from freshet.state.table import TableSet, View, touch

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
