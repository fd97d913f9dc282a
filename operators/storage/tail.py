"""The operator Tail of layer l in one task: the split vertices that are mastered here.

It merges what the parts of their in-edges send (partial_rows.py), applies UPDATE, and sends changed rows.
"""

from __future__ import annotations

import numpy as np

from freshet.operators.core import Core
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.topology import MASTER, SPLIT, Masters
from freshet.operators.outcome import Message
from freshet.operators.storage.head import hand_on
from freshet.operators.storage.layer import LayerShape
from freshet.operators.storage.owner import Changed, Owner
from freshet.operators.storage.partial_rows import PartialRows
from freshet.state.codec import Block
from freshet.state.table import TableSet


class LayerTail(Core):
    """Tail l: merges partials, updates its split vertices.

    Shapes: own (slots, self width) float32.
    """

    def __init__(self, shape: LayerShape) -> None:
        self.shape = shape
        layer = shape.layer
        self.at = PartRows(shape.task, shape.tasks)
        self.tables = tables = TableSet(len(self.at.here))
        width, owned = layer.out_width, MASTER | SPLIT
        self.masters = Masters(tables, self.at, layer, shape.following)
        self.owner = Owner(tables, self.masters, width, layer, shape.following, shape.number, owned, shape.receivers)
        self.partials = PartialRows(tables, self.at, layer)
        self.own_width = layer.message_width if layer.self_is_message else layer.self_width
        self.own = tables.add("own", "f4", max(1, self.own_width))
        self.at.keep(self.own)
        self.touched = 0

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        self.at.restore()
        self.partials.reserve(0)

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
        x = layer.update(
            self.partials.merged(active), self.own.data[active, : self.own_width], owner.read_context(active)
        )
        return owner.store(active, x, forced)

    def keep(self, block: Block) -> np.ndarray:
        """Keep the partials of a block; returns the split masters that they are of."""
        return self.partials.keep(block, self.masters.flags.data, self.owner.owned)

    def _drop(self, slots: np.ndarray) -> None:
        """These vertices are not split any more: their rows go."""
        if not slots.size:
            return
        self.partials.drop(slots)
        for table in (self.own, self.owner.x):
            table.clear_rows(slots)
