"""Partial synopses on their way from Storages to a tail, and in its tables.

A split vertex has in-edges in several parts. Each of those sends its partial synopsis when it changes; a tail keeps one
row for each vertex and part, and merges them by the synopsis.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.operators.aggregates.aggregate import SynopsisStore
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.graph.part_columns import PlacedRows
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.relation import RelationMessages
from freshet.operators.graph.routing import Partials
from freshet.state.block_columns import Columns
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet, View, align, touch
from freshet.state.task_parts import TaskParts


@kernel
def _keep(partial: View, places: np.ndarray, kept: np.ndarray, rows: np.ndarray) -> None:
    """Store the rows `rows[kept]` where they have a place."""
    for i in range(len(places)):
        if places[i] >= 0:
            touch(partial, places[i])
            for j in range(rows.shape[1]):
                partial.data[places[i], j] = rows[kept[i], j]


def partial_columns(
    partials: Partials, store: SynopsisStore, chosen: slice, rows: np.ndarray, task: int, tasks: TaskParts
) -> Columns:
    """Return the columns of some partial synopses for a task's tail; `rows` are those of the store."""
    columns = {"p_slot": partials.slot[chosen], "p": store.read(rows), "p_count": store.in_edges(rows)}
    if len(tasks.parts_of[task]) > 1:
        columns["p_to"] = partials.to[chosen]
    if not tasks.is_one_each:
        columns["p_from"] = partials.source[chosen]
    return columns


class PartialRows:
    """The partial synopses of the split vertices of a tail's parts.

    Shapes: partial (rows, synopsis_width) float32; index: of each slot the rows of its parts' partials, among those of
    the slot's part; counts (rows,) int32, the in-edges of each partial, where they are kept.
    Invariant: a row of `partial` exists for exactly the (split master of this task, part with in-edges of it).
    """

    def __init__(self, tables: TableSet, at: PartRows, relation: RelationMessages, *, counted: bool = False) -> None:
        self._at, self._width = at, relation.synopsis_width
        self.partial = tables.add("partial", "f4", relation.synopsis_width)
        self._counts: Table | None = tables.add("counts", "i4") if counted else None
        self._placed = PlacedRows(tables, at.tasks.parts)
        self._chain, self.index = self._placed.chain, self._placed.index
        at.keep(self.index.rows)
        self._merge = aggregate_of(relation.synopsis).merger(relation.synopsis)

    def reserve(self, more: int) -> None:
        """Have room for this many rows more in each part."""
        self._chain.reserve(self._placed.used + more)
        beside = [self.partial] if self._counts is None else [self.partial, self._counts]
        for table in beside:
            table.reserve(self._chain.part_rows)
        align(self._chain, *beside)

    def keep(self, block: Block, flags: np.ndarray, owned: int) -> np.ndarray:
        """Keep the partials of a block; returns the split masters that they are of, whose flags are `owned`."""
        slots = self._at.of(block, "p")
        kept = np.flatnonzero(flags[slots] == owned)
        if not kept.size:
            return slots[:0]
        self.put(slots[kept], kept, block)
        return slots[kept]

    def put(self, slots: np.ndarray, kept: np.ndarray, block: Block) -> None:
        """Keep those records of a block that are in the places `kept`, as the partials of these slots."""
        counts = block.get("p_count")[kept]
        sources = block.get("p_from")[kept] if "p_from" in block.columns else np.full(kept.size, block.header.source)
        self.reserve(kept.size)
        places = self._placed.place(slots, sources, counts)
        _keep(self.partial.view, places, kept, block.columns["p"])
        if self._counts is not None:
            there = places >= 0
            self._counts.touch_rows(places[there])
            self._counts.data[places[there]] = counts[there]

    def merged(self, slots: np.ndarray) -> np.ndarray:
        """Return the synopses of these vertices, (n, synopsis_width) float32."""
        merged, below = np.empty((slots.size, self._width), np.float32), self._chain.part_shift
        for some, index, at, shift in self.index.columns(slots, below):
            self._merge(index, self.partial.data, at, merged[some], (shift, below), (0, self._width))
        return merged

    def in_edges(self, slots: np.ndarray) -> np.ndarray:
        """Return the numbers of in-edges that these vertices have in all parts, (n,) int32."""
        assert self._counts is not None
        total, below = np.zeros(slots.size, np.int32), self._chain.part_shift
        for some, index, at, shift in self.index.columns(slots, below):
            rows = index[at].astype(np.int64)
            base = ((at >> shift).astype(np.int64) << below)[:, None]
            total[some] = np.where(rows >= 0, self._counts.data[np.maximum(rows, 0) + base], 0).sum(axis=1)
        return total

    def without_any(self, slots: np.ndarray) -> np.ndarray:
        """Return those of these slots that have no partials."""
        return np.setdiff1d(slots, self.index.held(slots)[0])

    def drop(self, slots: np.ndarray) -> None:
        """Keep nothing of these vertices, which are not split any more."""
        held, sources = self.index.held(slots)
        self._placed.place(held, sources, np.zeros(held.size, np.int32))
