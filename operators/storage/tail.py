"""The iteration tail of layer l in one part: the split vertices that are mastered here.

A split vertex has in-edges in several parts. Each of those sends its partial synopsis when it changes; the tail keeps
one row per (vertex, part), merges them as the layer's synopsis says, applies UPDATE, and hands on what changed.
"""

from __future__ import annotations

import numpy as np

from gnn.kernel import kernel
from operators.core import Core
from operators.outcome import Message
from operators.storage.capability import capability_of
from operators.storage.head import hand_on
from operators.storage.layer import EMPTY_SLOTS, LayerShape
from operators.storage.owner import MASTER, SPLIT, Owner
from state.codec import Block
from state.table import TableSet, View, touch

_USED, _FREE = 0, 1


@kernel
def _place(
    index: View, chain: View, scalars: View, slots: np.ndarray, part: int, counts: np.ndarray, rows: np.ndarray
) -> None:
    """The row of each (slot, part), given or taken back as `counts` says; -1 for what is taken back."""
    touch(scalars, 0)
    for i in range(len(slots)):
        slot = slots[i]
        row = index.data[slot, part]
        if counts[i] == 0:
            if row >= 0:
                touch(index, slot)
                index.data[slot, part] = -1
                touch(chain, row)
                chain.data[row] = scalars.data[_FREE]
                scalars.data[_FREE] = row + 1
            row = np.int32(-1)
        elif row < 0:
            if scalars.data[_FREE]:
                row = np.int32(scalars.data[_FREE] - 1)
                scalars.data[_FREE] = chain.data[row]
            else:
                row = np.int32(scalars.data[_USED])
                scalars.data[_USED] += 1
            touch(index, slot)
            index.data[slot, part] = row
        rows[i] = row


class LayerTail(Core):
    """Tail l: merges partials, updates its split vertices.

    Shapes: partial (rows, message_width) float32; index (slots, parts) int32 into it; own (slots, self width) float32.
    Invariant: a row of `partial` exists for exactly the (split master of this part, part with in-edges of it).
    """

    def __init__(self, shape: LayerShape) -> None:
        self.shape = shape
        layer = shape.layer
        self.tables = tables = TableSet()
        width, owned = layer.out_width, MASTER | SPLIT
        self.owner = Owner(tables, shape.part, shape.parts, width, layer, shape.following, shape.number, owned)
        self.partial = tables.add("partial", "f4", layer.message_width)
        self.chain = tables.add("chain", "i4")
        self.scalars = tables.add("scalars", "i8")
        self.scalars.reserve(2)
        self.index = tables.add("index", "i4", shape.parts, fill=-1)
        self._own_width = layer.message_width if layer.self_is_message else layer.self_width
        self.own = tables.add("own", "f4", max(1, self._own_width))
        self._merge_partials = capability_of(layer.synopsis).merge_partials
        self.touched = 0

    def after_restore(self) -> None:
        """Make the scratch arrays that belong to the tables."""
        self._reserve(self.owner.flags.rows)

    def _reserve(self, rows: int) -> None:
        self.index.reserve(rows)
        self.own.reserve(rows)

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Merge the partials of an epoch, update, and hand on what changed."""
        (topology,) = (block for block in blocks if "ctl" in block.columns)
        owner, layer = self.owner, self.shape.layer
        owner.topology(topology)
        self._reserve(owner.flags.rows)
        self._drop(np.concatenate([topology.get("u_slot"), topology.get("d_slot")]))
        splits, selves = topology.get("s_slot"), owner.mine(topology.get("t_slot"))
        if selves.size and self._own_width:
            self.own.touch_rows(selves)
            self.own.data[topology.columns["t_slot"]] = topology.columns["t"]
        candidates = [splits, *map(self._take, blocks)]
        if layer.reads_self:
            candidates.append(selves)
        if layer.reads_context:
            candidates.append(topology.get("c_slot"))
        active = owner.choose(epoch, candidates)
        self.touched = int(active.size)
        merged = np.empty((active.size, layer.message_width), np.float32)
        self._merge_partials(self.index.data, self.partial.data, active, merged)
        own = self.own.data[active, : self._own_width]
        x = layer.update(merged, own, owner.read_context(active))
        changed, x = owner.store(active, x, splits)
        messages = hand_on(owner, epoch, changed, x, topology)
        owner.clear(topology)
        return messages

    def _take(self, block: Block) -> np.ndarray:
        """Keep the partials of a block; returns the split masters that they are of."""
        slots, counts, rows = block.get("p_slot"), block.get("p_count"), block.columns.get("p")
        kept = self.owner.flags.data[slots] == self.owner.owned
        slots, counts = slots[kept], counts[kept]
        if not slots.size or rows is None:
            return EMPTY_SLOTS
        self.chain.reserve(int(self.scalars.data[_USED]) + slots.size)
        places = self._place(slots, block.header.source, counts)
        self.partial.reserve(int(self.scalars.data[_USED]))
        held = places >= 0
        self.partial.touch_rows(places[held])
        self.partial.data[places[held]] = rows[kept][held]
        return slots

    def _place(self, slots: np.ndarray, part: int, counts: np.ndarray) -> np.ndarray:
        rows = np.empty(slots.size, np.int32)
        _place(self.index.view, self.chain.view, self.scalars.view, slots, part, counts, rows)
        return rows

    def _drop(self, slots: np.ndarray) -> None:
        """These vertices are not split any more: their rows go."""
        if not slots.size:
            return
        nothing = np.zeros(slots.size, np.int32)
        for part in range(self.shape.parts):
            self._place(slots, part, nothing)
        for table in (self.own, self.owner.x):
            table.touch_rows(slots)
            table.data[slots] = table.fill
