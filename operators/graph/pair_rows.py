"""Virtual destinations: rows for the (vertex, relation) pairs that have in-edges, where one kind has many relations.

To the kernels these are vertices of a kind of their own: each relation's messages go to its pair of the target.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from typing_extensions import override

from freshet.operators.graph.edge_lists import LostUpdateError
from freshet.operators.graph.part_columns import PlacedRows
from freshet.operators.graph.part_rows import PartRows, frozen
from freshet.state.block_columns import ADDED_EDGES, CHANGED_EDGES, DELETED_EDGES, Columns
from freshet.state.codec import Block
from freshet.state.table import TableSet
from freshet.state.task_parts import DENSE_PARTS

_SLOT, _RELATION = 0, 1
_GROUPS = {group.name: group for group in (DELETED_EDGES, CHANGED_EDGES, ADDED_EDGES)}


class Pairs(NamedTuple):
    """The pairs of some vertices: the k-th is of the `places[k]`-th vertex, and has `rows[k]`.

    Shapes: (n,) of integers each, in the order of places and then of relations.
    """

    places: np.ndarray
    relations: np.ndarray
    rows: np.ndarray


class PairRows(PartRows):
    """Rows of pairs of a vertex in `targets` and a relation, which are counted from 0.

    Shapes: pair (rows, 2) int32: slot of the vertex, and the relation.
    Invariant: between epochs a row exists for exactly the pairs with in-edges in a part of the task.
    """

    def __init__(self, tables: TableSet, targets: PartRows, relations: int) -> None:
        super().__init__(targets.task, targets.tasks)
        self._targets = targets
        # always lists: a column for each relation would be as many as vertices times relations
        self._placed = PlacedRows(tables, max(relations, DENSE_PARTS + 1))
        targets.keep(self._placed.index.rows)
        self._pair = tables.add("pair", "i4", 2)
        self.keep(self._placed.chain, self._pair)

    @override
    def of(self, block: Block, name: str, column: str = "slot") -> np.ndarray:
        """The rows of the pairs that edges of a block lead to, (n,) int32; the block is one of `of_relations`.

        Raises: LostUpdateError: there is no such pair.
        """
        rows = self.find(self._targets.of(block, name, column), block.get(_GROUPS[name].type))
        if rows.size and rows.min() < 0:
            msg = f"epoch {block.header.epoch} changes an edge of a relation of which its target has none here"
            raise LostUpdateError(msg)
        return frozen(rows)

    def make_for(self, block: Block) -> None:
        """Have rows for the pairs that added edges lead to; the block is one of `of_relations`."""
        self.make(self._targets.of(block, ADDED_EDGES.name, "dst"), block.get(ADDED_EDGES.type))

    def make(self, slots: np.ndarray, relations: np.ndarray) -> None:
        """Have rows for these pairs."""
        new = self._numbers(slots, relations) < 0
        if not new.any():
            return
        pairs = np.unique(slots[new].astype(np.int64) << 32 | relations[new])
        slots, relations = (pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32)
        come = np.bincount(slots >> self._targets.shift, minlength=len(self.here))
        self._reserve(self._placed.used + come)
        rows = self._placed.place(slots, relations, np.ones(slots.size, np.int32))
        self._pair.touch_rows(rows)
        self._pair.data[rows, _SLOT] = slots & ((1 << self._targets.shift) - 1)
        self._pair.data[rows, _RELATION] = relations

    def find(self, slots: np.ndarray, relations: np.ndarray) -> np.ndarray:
        """Return the rows of these pairs, (n,) int32; -1 of those that are not there."""
        numbers = self._numbers(slots, relations)
        return np.where(numbers < 0, np.int32(-1), numbers + (slots >> self._targets.shift << self.shift))

    def _numbers(self, slots: np.ndarray, relations: np.ndarray) -> np.ndarray:
        return self._placed.index.numbers(slots, relations.astype(np.int16))

    def pairs_of(self, slots: np.ndarray) -> Pairs:
        """Return the pairs of vertices, each of which is given once."""
        held, relations = self._placed.index.held(slots)
        order = np.argsort(slots, kind="stable")
        places = order[np.searchsorted(slots, held, sorter=order)]
        return Pairs(places, relations, self.find(held, relations))

    def ends(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots of the vertices, and the relations, of these pairs, (n,) int32 each."""
        slots, relations = self._pair.data[rows].T
        return slots + (rows >> self.shift << self._targets.shift), relations

    def free(self, rows: np.ndarray) -> None:
        """Have no such pairs any more; what else is kept of them is cleared by its owner."""
        if rows.size:
            self._placed.place(*self.ends(rows), np.zeros(rows.size, np.int32))
            self._pair.clear_rows(rows)


def of_relations(sections: list[tuple[int, Block]]) -> Block:
    """Return the edges of several relations, given with their numbers, as one block; its types are these numbers."""
    columns: Columns = {}
    for group in _GROUPS.values():
        found = [(number, block) for number, block in sections if group.names[0] in block.columns]
        for name in (group.part, group.row, *group.names) if found else ():
            if name in found[0][1].columns:
                columns[name] = frozen(np.concatenate([block.columns[name] for _, block in found]))
        if found:
            sizes = [block.columns[group.names[0]].size for _, block in found]
            columns[group.type] = frozen(np.repeat(np.array([n for n, _ in found], np.int32), sizes))
    return Block(sections[0][1].header, columns)
