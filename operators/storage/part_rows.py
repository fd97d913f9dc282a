"""The slots of a task's parts as rows of its tables: row = place of the part in the task * stride + slot.

A block addresses its records by part (`..._to`) and slot; where the receiving task has one part alone, `..._to` is
left out. All tables of a core that have a row per slot have the same stride.
"""

from __future__ import annotations

import numpy as np

from state.adjacency import Lists
from state.codec import Block
from state.table import Table, align
from state.task_parts import TaskParts


def frozen(array: np.ndarray) -> np.ndarray:
    """The array, made read-only as the columns of blocks are: kernels are compiled for one kind of array only."""
    array.flags.writeable = False
    return array


class PartRows:
    """Where the slots of the parts of one task lie, in tables that grow together.

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

    def restore(self) -> None:
        """Have the rows of all tables in the same places, where the tables were restored."""
        for lists in self._lists:
            lists.after_restore()
        self._reserve(np.max([table.part_rows for table in self._tables], axis=0))

    def reserve(self, block: Block, *names: str) -> None:
        """Have room for the slots of these records of a block."""
        needs = self.needs.copy()
        for name in names:
            slots = block.get(f"{name}_slot")
            if not slots.size:
                continue
            if len(needs) == 1:
                needs[0] = max(needs[0], int(slots.max()) + 1)
            else:
                np.maximum.at(needs, block.get(f"{name}_to") - self.first, slots + np.int64(1))
        if (needs > self.needs).any():
            self._reserve(needs)

    def _reserve(self, needs: np.ndarray) -> None:
        self.needs = np.maximum(self.needs, needs)
        for table in self._tables:
            table.reserve(self.needs)
        align(*self._tables)
        self.shift = self._tables[0].part_shift

    def of(self, block: Block, name: str, column: str = "slot") -> np.ndarray:
        """The rows of such records of a block, (n,) int32."""
        slots = block.get(f"{name}_{column}")
        if len(self.needs) == 1 or not slots.size:
            return slots
        return frozen(((block.get(f"{name}_to") - np.int32(self.first)) << np.int32(self.shift)) + slots)

    def part_of(self, rows: np.ndarray) -> np.ndarray:
        """The part of each row, (n,) int16."""
        return (self.first + (rows >> np.int32(self.shift))).astype(np.int16)

    def slot_of(self, rows: np.ndarray) -> np.ndarray:
        """The slot of each row, (n,) int32."""
        return rows if len(self.needs) == 1 else rows & np.int32((1 << self.shift) - 1)

    def place_columns(self, name: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The columns by which the own task addresses these rows again."""
        columns = {f"{name}_slot": self.slot_of(rows)}
        return columns if len(self.needs) == 1 else columns | {f"{name}_to": self.part_of(rows)}
