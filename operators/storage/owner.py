"""The vertices that an operator's task owns: their current rows, contexts and replica sets.

Storage 0 owns the features of all its masters, Storage l (l >= 1) the x_l of its whole masters, Tail l those of the
split ones. All of them know every master of their parts. What becomes of changed rows is up to the iteration head
(operators/storage/head.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gnn.plan import Context, LayerPlan
from operators.storage.part_columns import PartColumns
from operators.storage.part_rows import PartRows, frozen
from operators.storage.row_kernels import choose, deal, find_among, store
from state.codec import Block
from state.table import TableSet, View

# UPDATEs in the table slots, of which some are forced, each of a group; writes the slots and rows that changed, those
# of a group from its place on (row_kernels.finish).
Finish = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, View, np.ndarray, np.ndarray], None]
MASTER, SPLIT = 1, 2
_NO_CONTEXT = Context(np.empty(0, np.int32), np.empty(0, np.float64), np.empty(0, np.float32))


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
    """The masters of a task's parts as one operator sees them, and the rows of those whose flags are `owned`.

    Shapes: x (rows, width) float32; replica: of each row the slots in the parts where its vertex has a replica.
    Invariant: flags has MASTER for exactly the live masters, SPLIT for those of them with an in-edge elsewhere.
    """

    def __init__(
        self,
        tables: TableSet,
        at: PartRows,
        width: int,
        layer: LayerPlan | None,
        following: LayerPlan | None,
        number: int,
        owned: int = MASTER,
    ) -> None:
        self.at, self.number, self.following, self.owned = at, number, following, owned
        parts = at.tasks.parts
        self._reads_context = layer is not None and layer.reads_context
        self._sends_context = following is not None and following.source_scaled
        self.x = tables.add("x", "f4", width)
        self.key = tables.add("key", "i8")
        self.flags = tables.add("flags", "u1")
        self.count = tables.add("count", "i4")
        self.degree = tables.add("degree", "f8")
        self.loop = tables.add("loop", "f4", fill=float("nan"))
        self.replica = PartColumns(tables, "replica", parts)
        kept = [self.x, self.key, self.flags]
        if self._reads_context or self._sends_context:
            kept += [self.count, self.degree, self.loop]
        self._kept, self._replicates = tuple(kept), parts > 1 and following is not None
        at.keep(*kept)
        if self._replicates:
            at.keep(self.replica.rows)
        self._stamp = np.zeros(0, np.int64)  # by slot: the epoch after the last one that chose it
        self._among = np.zeros(0, bool)  # by slot, all False between calls

    def read_context(self, slots: np.ndarray) -> Context:
        """What UPDATE reads of these vertices' contexts; empty where it reads none."""
        return self._context(slots) if self._reads_context else _NO_CONTEXT

    def send_context(self, slots: np.ndarray) -> Context:
        """What the next layer's `send` reads of these vertices' contexts; empty where it reads none."""
        return self._context(slots) if self._sends_context else _NO_CONTEXT

    def _context(self, slots: np.ndarray) -> Context:
        return Context(self.count.data[slots], self.degree.data[slots], self.loop.data[slots])

    def topology(self, block: Block) -> None:
        """Take over the masters, contexts, replica sets and transitions of an epoch; drops are done by `clear`.

        The tables have room for the masters (`PartRows.reserve`).
        """
        born = self.at.of(block, "m")
        if born.size:
            for table in (self.flags, self.key):
                table.touch_rows(born)
            self.flags.data[born] = MASTER
            self.key.data[born] = block.get("m_key")
        changes = [("d", 0)]
        if self.number:  # the features of split vertices, too, are owned by Storage 0
            changes += [("s", MASTER | SPLIT), ("u", MASTER)]
        for name, bits in changes:
            slots = self.at.of(block, name)
            if slots.size:
                self.flags.touch_rows(slots)
                self.flags.data[slots] = bits
        if (self._reads_context or self._sends_context) and (slots := self.at.of(block, "c")).size:
            for table, name in ((self.count, "c_count"), (self.degree, "c_degree"), (self.loop, "c_loop")):
                table.touch_rows(slots)
                table.data[slots] = block.get(name)
        if self._replicates:
            self._replica_sets(block)

    def _replica_sets(self, block: Block) -> None:
        gone, added = self.at.of(block, "rd"), self.at.of(block, "ra")
        if gone.size:
            self.replica.drop(gone, block.get("rd_part"))
        if added.size:
            self.replica.put(added, block.get("ra_part"), block.get("ra_rslot"))

    def clear(self, block: Block) -> None:
        """At the end of the epoch: the rows of dropped masters hold nothing any more."""
        dead = self.at.of(block, "d")
        for table in self._kept if dead.size else ():
            table.touch_rows(dead)
            table.data[dead] = table.fill
        if self._replicates and dead.size:
            self.replica.clear(dead)

    @property
    def is_tail(self) -> bool:
        """Whether this operator owns the split vertices."""
        return bool(self.owned & SPLIT)

    def are_in(self, slots: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Which of the slots are among the others, (n,) bool."""
        if not others.size or not slots.size:
            return np.zeros(slots.size, bool)
        if self._among.size < self.flags.data.size:
            self._among = np.zeros(self.flags.data.size, bool)
        found = np.empty(slots.size, bool)
        find_among(frozen(slots.view()), frozen(others.view()), self._among, found)
        return found

    def mine(self, slots: np.ndarray) -> np.ndarray:
        """Those of the slots whose vertex this operator owns."""
        return slots[self.flags.data[slots] == self.owned]

    def choose(self, epoch: int, candidates: list[np.ndarray]) -> np.ndarray:
        """Those of the slots, each once and in order, whose vertex this operator owns."""
        slots, flags = np.concatenate(candidates), self.flags.data
        if self._stamp.size < flags.size:
            self._stamp = np.zeros(flags.size, np.int64)
        chosen = np.empty(slots.size, np.int32)
        return chosen[: choose(slots, self._stamp, epoch + 1, flags, self.owned, chosen)]

    def store(self, slots: np.ndarray, x: np.ndarray, forced: np.ndarray) -> Changed:
        """Store new rows; those whose bits changed, and those that are forced. Order is kept."""
        changed = self.are_in(slots, forced)
        store(self.x.view, self.x.data.view(np.int32), slots, x.view(np.int32), changed)
        return Changed(slots, x) if changed.all() else Changed(slots[changed], x[changed])

    def finish(self, slots: np.ndarray, forced: np.ndarray, update: Finish, *, dealt: bool = False) -> Changed:
        """UPDATE from the tables of synopses and self inputs, and `store`, in one pass."""
        again = self.are_in(slots, forced)
        group, begins = np.zeros(slots.size, np.int16), np.zeros(self.at.tasks.parts if dealt else 1, np.int64)
        if dealt:
            deal(slots, self.key.data, group, begins)
        changed, x = np.zeros(slots.size, np.int32), np.empty((slots.size, self.x.data.shape[1]), np.float32)
        ends = begins.copy()
        update(slots, again, group, ends, self.x.view, changed, x)
        return Changed(changed, x, begins, ends) if dealt else Changed(changed[: ends[0]], x[: ends[0]])
