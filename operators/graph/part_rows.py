"""The slots of a task's parts as rows of its tables: row = place of the part in the task * stride + slot.

A block addresses its records by part (`..._to`) and slot; where the receiving task has one part alone, `..._to` is
left out. All tables of a core that have a row per slot have the same stride.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import quick
from freshet.state.adjacency import Lists
from freshet.state.codec import Block
from freshet.state.table import Table, align
from freshet.state.task_parts import TaskParts


def frozen(array: np.ndarray) -> np.ndarray:
    """The array, made read-only as the columns of blocks are: kernels are compiled for one kind of array only."""
    array.setflags(write=False)
    return array


NO_ROWS = frozen(np.empty(0, np.int32))


@quick
def _rows_of(to: np.ndarray, slots: np.ndarray, first: int, shift: int, rows: np.ndarray) -> None:
    for i in range(len(slots)):
        rows[i] = ((to[i] - first) << shift) + slots[i]


@quick
def _need(to: np.ndarray, slots: np.ndarray, first: int, needs: np.ndarray) -> None:
    for i in range(len(slots)):
        needs[to[i] - first] = max(needs[to[i] - first], slots[i] + 1)


@quick
def _places_of(rows: np.ndarray, first: int, shift: int, slots: np.ndarray, parts: np.ndarray) -> None:
    for i in range(len(rows)):
        slots[i], parts[i] = rows[i] & ((1 << shift) - 1), first + (rows[i] >> shift)


class PartRows:
    """Places of the slots of one task's parts, in tables that grow together.

    Invariant: every table has at least `needs[k]` rows for the k-th part of the task.
    """

    def __init__(self, task: int, tasks: TaskParts) -> None:
        self.task, self.tasks = task, tasks
        self.here = tasks.parts_of[task]
        self.first = self.here.start
        self.needs = np.zeros(len(self.here), np.int64)
        self._tables: list[Table] = []
        self._lists: list[Lists] = []
        self.shift = 0  # row >> shift is the index of its part among those here

    def keep(self, *tables: Table | Lists) -> None:
        """Have these tables grow with the slots."""
        self._lists += [table for table in tables if isinstance(table, Lists)]
        self._tables += [table.head if isinstance(table, Lists) else table for table in tables]

    def read_ahead(self, rows: np.ndarray) -> None:
        """Have these rows of all tables in memory soon, where they may lie on the disk alone."""
        some = np.unique(rows)
        for table in self._tables:
            table.read_ahead(some)

    def restore(self) -> None:
        """Have the rows of all tables in the same places, where the tables were restored."""
        for lists in self._lists:
            lists.after_restore()
        self._reserve(np.max([table.part_rows for table in self._tables], axis=0))

    def reserve(self, block: Block, *names: str) -> None:
        """Have room for the slots of these records of a block."""
        needs = self.needs
        for name in names:
            slots = block.columns.get(f"{name}_slot")
            if slots is None:
                continue
            if needs is self.needs:
                needs = needs.copy()
            if len(needs) == 1:
                needs[0] = max(needs[0], int(slots.max()) + 1)
            else:
                _need(block.get(f"{name}_to"), slots, self.first, needs)
        if needs is not self.needs and (needs > self.needs).any():
            self._reserve(needs)

    def _reserve(self, needs: np.ndarray) -> None:
        self.needs = np.maximum(self.needs, needs)
        for table in self._tables:
            table.reserve(self.needs)
        align(*self._tables)
        self.shift = self._tables[0].part_shift

    def of(self, block: Block, name: str, column: str = "slot") -> np.ndarray:
        """The rows of such records of a block, (n,) int32."""
        slots = block.columns.get(f"{name}_{column}")
        if slots is None:
            return NO_ROWS
        if len(self.needs) == 1:
            return slots
        rows = np.empty(slots.size, np.int32)
        _rows_of(block.get(f"{name}_to"), slots, self.first, self.shift, rows)
        return frozen(rows)

    def place_columns(self, name: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The columns by which the own task addresses these rows again."""
        if len(self.needs) == 1:
            return {f"{name}_slot": rows}
        slots, parts = self.places(rows)
        return {f"{name}_slot": slots, f"{name}_to": parts}

    def places(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots and the parts of these rows, (n,) int32 and (n,) int16."""
        if len(self.needs) == 1:
            return rows, np.full(rows.size, self.first, np.int16)
        slots, parts = np.empty(rows.size, np.int32), np.empty(rows.size, np.int16)
        _places_of(frozen(rows.view()), self.first, self.shift, slots, parts)
        return slots, parts
