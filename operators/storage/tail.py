"""The operator Tail of layer l in one task: the split vertices that are mastered here.

A split vertex has in-edges in several parts. Each of those sends its partial synopsis when it changes; the Tail keeps
one row per (vertex, part), merges them by the layer's synopsis, applies UPDATE, and sends changed rows.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.core import Core
from freshet.operators.graph.part_columns import PartColumns, PartsView, drop_number, number_of, put_number
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.topology import MASTER, SPLIT, Masters
from freshet.operators.outcome import Message
from freshet.operators.storage.head import hand_on
from freshet.operators.storage.layer import EMPTY_SLOTS, LayerShape
from freshet.operators.storage.owner import Changed, Owner
from freshet.state.codec import Block
from freshet.state.table import TableSet, View, align, touch

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


class LayerTail(Core):
    """Tail l: merges partials, updates its split vertices.

    Shapes: partial (rows, synopsis_width) float32; index: of each slot the rows of its parts' partials, among those of
    the slot's part; own (slots, self width) float32.
    Invariant: a row of `partial` exists for exactly the (split master of this task, part with in-edges of it).
    """

    def __init__(self, shape: LayerShape) -> None:
        self.shape = shape
        layer = shape.layer
        self.at = PartRows(shape.task, shape.tasks)
        self.tables = tables = TableSet(len(self.at.here))
        width, owned = layer.out_width, MASTER | SPLIT
        self.masters = Masters(tables, self.at, layer, shape.following)
        self.owner = Owner(tables, self.masters, width, layer, shape.following, shape.number, owned, shape.receivers)
        self.partial = tables.add("partial", "f4", layer.synopsis_width)
        self.chain = tables.add("chain", "i4")
        self.scalars = tables.add("scalars", "i8")
        self.scalars.reserve(2)
        self.index = PartColumns.of(tables, "index", shape.tasks.parts)
        self.own_width = layer.message_width if layer.self_is_message else layer.self_width
        self.own = tables.add("own", "f4", max(1, self.own_width))
        self.at.keep(self.index.rows, self.own)
        self._merge_partials = aggregate_of(layer.synopsis).merger(layer.synopsis)
        self.touched = 0

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        self.at.restore()
        self._reserve_partials(0)

    def _used(self) -> np.ndarray:
        """Return how many rows of `partial` each part has used so far."""
        return self.scalars.data.reshape(len(self.at.here), -1)[:, _USED]

    def _reserve_partials(self, more: int) -> None:
        self.chain.reserve(self._used() + more)
        self.partial.reserve(self.chain.part_rows)
        align(self.partial, self.chain)

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Merge the partials of an epoch, update, and hand on what changed."""
        (topology,) = (block for block in blocks if "ctl" in block.columns)
        owner, layer, at = self.owner, self.shape.layer, self.at
        self.take_over(topology)
        splits, t_slots = at.of(topology, "s"), at.of(topology, "t")
        selves = owner.mine(t_slots)
        if selves.size and self.own_width:
            self.own.touch_rows(selves)
            self.own.data[t_slots] = topology.columns["t"]
        candidates = [splits, *map(self.keep, blocks)]
        if layer.reads_self:
            candidates.append(selves)
        if layer.reads_context:
            candidates.append(at.of(topology, "c"))
        active = owner.choose(epoch, candidates)
        self.touched = int(active.size)
        messages = hand_on(owner, epoch, self.new_rows(active, splits), topology)
        dead = at.of(topology, "d")
        owner.clear(dead)
        self.masters.clear(dead)
        return messages

    def take_over(self, topology: Block) -> None:
        """Take over an epoch's masters, and have room for them."""
        self.at.reserve(topology, "m")
        self.masters.take_over(topology)
        self._drop(np.concatenate([self.at.of(topology, "u"), self.at.of(topology, "d")]))

    def new_rows(self, active: np.ndarray, forced: np.ndarray) -> Changed:
        """UPDATE these split vertices; those that changed, or are forced."""
        layer, owner = self.shape.layer, self.owner
        merged = np.empty((active.size, layer.synopsis_width), np.float32)
        below = self.chain.part_shift
        for some, index, at, shift in self.index.columns(active, below):
            columns = 0, merged.shape[1]
            self._merge_partials(index, self.partial.data, at, merged[some], (shift, below), columns)
        x = layer.update(merged, self.own.data[active, : self.own_width], owner.read_context(active))
        return owner.store(active, x, forced)

    def keep(self, block: Block) -> np.ndarray:
        """Keep the partials of a block; returns the split masters that they are of."""
        slots, rows = self.at.of(block, "p"), block.columns.get("p")
        kept = np.flatnonzero(self.masters.flags.data[slots] == self.owner.owned)
        if not kept.size or rows is None:
            return EMPTY_SLOTS
        slots, counts = slots[kept], block.get("p_count")[kept]
        sources = block.get("p_from")[kept] if "p_from" in block.columns else np.full(kept.size, block.header.source)
        self._reserve_partials(kept.size)
        _keep(self.partial.view, self._place(slots, sources, counts), kept, rows)
        return slots

    @property
    def _shifts(self) -> tuple[int, int, int]:
        return self.index.part_shift, self.chain.part_shift, self.scalars.part_shift

    def _place(self, slots: np.ndarray, sources: np.ndarray, counts: np.ndarray) -> np.ndarray:
        rows, sources = np.empty(slots.size, np.int32), sources.astype(np.int16)
        tables = self.index.view, self.chain.view, self.scalars.view
        done = 0
        while (done := _place(*tables, slots, sources, counts, self._shifts, rows, done)) < slots.size:
            self.index.grow()
            tables = self.index.view, *tables[1:]
        return rows

    def _drop(self, slots: np.ndarray) -> None:
        """These vertices are not split any more: their rows go."""
        if not slots.size:
            return
        held, sources = self.index.held(slots)
        self._place(held, sources, np.zeros(held.size, np.int32))
        for table in (self.own, self.owner.x):
            table.clear_rows(slots)
