"""Partial synopses on their way from Storages to a tail, and in its tables.

A split vertex has in-edges in several parts. Each of those sends its partial synopsis when it changes; a tail keeps one
row for each vertex and part, and merges them by the synopsis.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.operators.aggregates.aggregate import SynopsisStore
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.graph.part_columns import PartColumns, PartsView, drop_number, number_of, put_number
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.relation import RelationMessages
from freshet.operators.graph.routing import Partials
from freshet.state.block_columns import Columns
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet, View, align, touch
from freshet.state.task_parts import TaskParts

_USED, _FREE = 0, 1


@kernel
def _place(
    index: PartsView,
    chain: View,
    scalars: View,
    slots: np.ndarray,
    sources: np.ndarray,
    counts: np.ndarray,
    shifts: tuple[int, int, int],
    rows: np.ndarray,
    start: int,
) -> int:
    """Return the row of each (slot, source part), allocated or freed by `counts`; -1 if it is freed.

    `shifts` are those of slots, rows and scalars: the bits below each count within a part, and so does the index.
    From `start` on; returns how far it went before the index must grow.
    """
    for i in range(start, len(slots)):
        slot, source = slots[i], sources[i]
        part = np.int64(slot >> shifts[0])
        base, first = part << shifts[1], part << shifts[2]
        row = np.int64(number_of(index, slot, source))
        touch(scalars, first)
        if counts[i] == 0:
            if row >= 0:
                drop_number(index, slot, source)
                touch(chain, base + row)
                chain.data[base + row] = scalars.data[first + _FREE]
                scalars.data[first + _FREE] = row + 1
            rows[i] = -1
            continue
        if row < 0:
            free, used = scalars.data[first + _FREE], scalars.data[first + _USED]
            row = np.int64(free - 1 if free else used)
            if not put_number(index, slot, source, row):
                return i
            if free:
                scalars.data[first + _FREE] = chain.data[base + row]
            else:
                scalars.data[first + _USED] = used + 1
        rows[i] = base + row
    return len(slots)


@kernel
def _keep(partial: View, places: np.ndarray, kept: np.ndarray, rows: np.ndarray) -> None:
    """Store the rows `rows[kept]` where they have a place."""
    for i in range(len(places)):
        if places[i] >= 0:
            touch(partial, places[i])
            for j in range(rows.shape[1]):
                partial.data[places[i], j] = rows[kept[i], j]


def partial_columns(partials: Partials, store: SynopsisStore, task: int, tasks: TaskParts) -> Columns:
    """Return the columns of partial synopses for one task's tail; none where it gets none."""
    chosen = slice(*partials.ends[task : task + 2])
    rows = partials.rows[chosen]
    if not rows.size:
        return {}
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
        self._at, self._width, self._tables = at, relation.synopsis_width, tables
        self.partial = tables.add("partial", "f4", relation.synopsis_width)
        self._chain = tables.add("chain", "i4")
        self._counts: Table | None = tables.add("counts", "i4") if counted else None
        self.scalars = tables.add("scalars", "i8")
        self.scalars.reserve(2)
        self.index = PartColumns.of(tables, "index", at.tasks.parts)
        at.keep(self.index.rows)
        self._merge = aggregate_of(relation.synopsis).merger(relation.synopsis)

    def reserve(self, more: int) -> None:
        """Have room for this many rows more in each part."""
        used = self.scalars.data.reshape(self._tables.parts, -1)[:, _USED]
        self._chain.reserve(used + more)
        beside = [self.partial] if self._counts is None else [self.partial, self._counts]
        for table in beside:
            table.reserve(self._chain.part_rows)
        align(self._chain, *beside)

    def keep(self, block: Block, flags: np.ndarray, owned: int) -> np.ndarray:
        """Keep the partials of a block; returns the split masters that they are of, whose flags are `owned`."""
        slots, rows = self._at.of(block, "p"), block.columns.get("p")
        kept = np.flatnonzero(flags[slots] == owned)
        if not kept.size or rows is None:
            return slots[:0]
        slots, counts = slots[kept], block.get("p_count")[kept]
        sources = block.get("p_from")[kept] if "p_from" in block.columns else np.full(kept.size, block.header.source)
        self.reserve(kept.size)
        places = self._place(slots, sources, counts)
        _keep(self.partial.view, places, kept, rows)
        if self._counts is not None:
            there = places >= 0
            self._counts.touch_rows(places[there])
            self._counts.data[places[there]] = counts[there]
        return slots

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

    def drop(self, slots: np.ndarray) -> None:
        """Keep nothing of these vertices, which are not split any more."""
        held, sources = self.index.held(slots)
        self._place(held, sources, np.zeros(held.size, np.int32))

    def _place(self, slots: np.ndarray, sources: np.ndarray, counts: np.ndarray) -> np.ndarray:
        rows, sources = np.empty(slots.size, np.int32), sources.astype(np.int16)
        shifts = self.index.part_shift, self._chain.part_shift, self.scalars.part_shift
        tables = self.index.view, self._chain.view, self.scalars.view
        done = 0
        while (done := _place(*tables, slots, sources, counts, shifts, rows, done)) < slots.size:
            self.index.grow()
            tables = self.index.view, *tables[1:]
        return rows
