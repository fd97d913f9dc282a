"""The rows of the vertices that an operator's task owns, as a model makes them: kept, or made again when asked for.

Storage 0 owns the features of all its masters, Storage l (l >= 1) the x_l of its whole masters, Tail l those of the
split ones. All of them know every master of their parts (operators/graph/topology.py). What becomes of changed rows
is up to the iteration head (operators/storage/head.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from typing_extensions import override

from freshet.operators.aggregates.finishing import Finish, Stored
from freshet.operators.graph.layer_of_kinds import VertexPlan
from freshet.operators.graph.part_rows import frozen
from freshet.operators.graph.row_kernels import choose, deal, find_among, gather, store
from freshet.operators.graph.topology import MASTER, SPLIT, Masters
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts


class Changed(NamedTuple):
    """Rows that changed, in the order in which they were asked for, or dealt to the Sink's parts.

    Then those of part k are from `begins[k]` to `ends[k]`; between them are other slots of the tables, without rows.
    Shapes: slots (n,) int32; x (n, width) float32; begins, ends (parts,) int64.
    """

    slots: np.ndarray
    x: np.ndarray
    begins: np.ndarray | None = None
    ends: np.ndarray | None = None


class Owner:
    """Masters of a task's parts whose flags are `owned`, with rows of `width` channels."""

    def __init__(
        self,
        tables: TableSet,
        masters: Masters,
        width: int,
        following: VertexPlan | None,
        number: int,
        owned: int = MASTER,
        receivers: TaskParts | None = None,
    ) -> None:
        """`receivers`: the tasks of the next layer, or of the Sink; by default those of this operator."""
        self.masters, self.at = masters, masters.at
        self.to = receivers or self.at.tasks
        self.number, self.following, self.owned, self.width = number, following, owned, width
        self._keep(tables)
        self._stamp = np.zeros(0, np.int64)  # by slot: the epoch after the last one that chose it
        self._among = np.zeros(0, bool)  # by slot, all False between calls

    def _keep(self, tables: TableSet) -> None:
        """Add the tables by which rows are known."""
        raise NotImplementedError

    def rows(self, slots: np.ndarray) -> np.ndarray:
        """Return the rows of these vertices, (n, width) float32."""
        raise NotImplementedError

    def send(self, slots: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return what these vertices, whose rows are `x`, send to the next layer; without one the rows."""
        return x if self.following is None else self.following.send(x, self.masters.send_context(slots))

    def clear(self, dead: np.ndarray) -> None:
        """Clear the rows of dropped masters at the end of the epoch."""
        raise NotImplementedError

    @property
    def is_tail(self) -> bool:
        """True if this operator owns the split vertices."""
        return bool(self.owned & SPLIT)

    def are_in(self, slots: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return which of the slots are among the others, (n,) bool."""
        if not others.size or not slots.size:
            return np.zeros(slots.size, bool)
        if self._among.size < self.masters.flags.data.size:
            self._among = np.zeros(self.masters.flags.data.size, bool)
        found = np.empty(slots.size, bool)
        find_among(frozen(slots.view()), frozen(others.view()), self._among, found)
        return found

    def mine(self, slots: np.ndarray) -> np.ndarray:
        """Return the slots whose vertex this operator owns."""
        return slots[self.masters.flags.data[slots] == self.owned]

    def choose(self, epoch: int, candidates: list[np.ndarray]) -> np.ndarray:
        """Choose the slots, each once and in order, whose vertex this operator owns."""
        (slots, *others), flags = candidates, self.masters.flags.data
        if others or not slots.flags.writeable:  # the kernel is compiled for those alone
            slots = np.concatenate(candidates)
        self._have_stamps()
        chosen = np.empty(slots.size, np.int32)
        return chosen[: choose(slots, self._stamp, epoch + 1, flags, self.owned, chosen)]

    def _have_stamps(self) -> None:
        if self._stamp.size < (rows := self.masters.flags.data.size):
            self._stamp = np.zeros(rows, np.int64)

    def update(self, slots: np.ndarray, forced: np.ndarray, finish: Finish, *, dealt: bool = False) -> Changed:
        """UPDATE from the tables of synopses and self inputs; rows whose bits changed, and those that are forced.

        `dealt`: by parts of the Sink, else in the order of the slots.
        """
        again = self.are_in(slots, forced)
        group, begins = np.zeros(slots.size, np.int16), np.zeros(self.at.tasks.parts if dealt else 1, np.int64)
        if dealt:
            deal(slots, self.masters.key.data, group, begins)
        changed, x = np.zeros(slots.size, np.int32), np.empty((slots.size, self.width), np.float32)
        ends = begins.copy()
        finish(slots, again, group, ends, self._stored, changed, x)
        return Changed(changed, x, begins, ends) if dealt else Changed(changed[: ends[0]], x[: ends[0]])

    @property
    def _stored(self) -> Stored:
        """Rows, or prints of rows, that `update` compares new rows with."""
        raise NotImplementedError


class RowOwner(Owner):
    """An owner that keeps its rows. Shapes: x (rows, width) float32."""

    @override
    def _keep(self, tables: TableSet) -> None:
        self.x = tables.add("x", "f4", self.width)
        self.at.keep(self.x)

    @override
    def rows(self, slots: np.ndarray) -> np.ndarray:
        """Return the rows of these vertices, (n, width) float32."""
        return gather(self.x.data, slots)

    @override
    def clear(self, dead: np.ndarray) -> None:
        """Clear the rows of dropped masters at the end of the epoch."""
        self.x.clear_rows(dead)

    def store(self, slots: np.ndarray, x: np.ndarray, forced: np.ndarray) -> Changed:
        """Store new rows; those whose bits changed, and those that are forced. Order is kept."""
        changed = self.are_in(slots, forced)
        store(self.x.view, self.x.data.view(np.int32), slots, x.view(np.int32), changed)
        return Changed(slots, x) if changed.all() else Changed(slots[changed], x[changed])

    @property
    @override
    def _stored(self) -> Stored:
        return self.x.view
