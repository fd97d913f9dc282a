"""The Storage cores of one part: layer 0 (raw features) and layer l (edges, replicated source values, synopses)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnn.plan import LayerPlan
from operators.core import Core
from operators.dataflow import TAIL
from operators.outcome import Message
from operators.storage.capability import capability_of
from operators.storage.head import hand_on, topology_of
from operators.storage.owner import SPLIT, Owner
from operators.storage.row_kernels import gather
from operators.telemetry.sum_report import SumReport
from state.block_columns import PARTIAL, Columns
from state.codec import Block, Header, seal
from state.table import TableSet

EMPTY_SLOTS = np.empty(0, np.int32)


class FeatureStorage(Core):
    """Storage 0: the raw features of the part's masters; sends what layer 1 reads of the changed ones."""

    def __init__(self, part: int, parts: int, following: LayerPlan) -> None:
        self.tables = TableSet()
        self.owner = Owner(self.tables, part, parts, following.in_width, None, following, 0)
        self.touched = 0

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Set features, and fan out those of new and changed vertices."""
        (block,) = blocks
        owner = self.owner
        owner.topology(block)
        slots, x = block.get("x0_slot"), block.get("x0")
        born = block.get("m_slot")
        changed, values = slots, x.reshape(-1, owner.x.data.shape[1])
        if slots.size:
            changed, values = owner.store(slots, x, born)
        if born.size and (featureless := born[~np.isin(born, slots)]).size:
            zeros = np.zeros((featureless.size, values.shape[1]), np.float32)
            changed, values = np.concatenate([changed, featureless]), np.concatenate([values, zeros])
        self.touched = int(changed.size)
        messages = hand_on(owner, epoch, changed, values, block)
        owner.clear(block)
        return messages


class LayerShape(NamedTuple):
    """Where a Storage or Tail stands: its part, how many there are, its layer's number and plan, and the next one's."""

    part: int
    parts: int
    number: int
    layer: LayerPlan
    following: LayerPlan | None

    def __str__(self) -> str:
        return f"storage {self.number} part {self.part}"


class LayerStorage(Core):
    """Storage l: merges the messages of the part's edges and updates its whole vertices.

    Shapes: own (slots, self_width) float32; home (slots, 2) int32.
    """

    def __init__(self, shape: LayerShape) -> None:
        self.shape = shape
        layer = shape.layer
        self.tables = tables = TableSet()
        self.owner = Owner(tables, shape.part, shape.parts, layer.out_width, layer, shape.following, shape.number)
        self.synopses = capability_of(layer.synopsis).store(tables, layer, str(shape))
        self.own = tables.add("own", "f4", layer.self_width) if layer.self_width else None
        self.home = tables.add("home", "i4", 2, fill=-1)  # of replicas: part and slot of the master
        self._rows = (self.home,) if self.own is None else (self.home, self.own)
        self.touched = 0

    def after_restore(self) -> None:
        """Make the scratch arrays that belong to the tables."""
        self._reserve(self.synopses.z.rows)

    def _reserve(self, rows: int) -> None:
        # flags are asked of replicas, too, and a part may have more of those than masters, or no master at all
        for table in (*self._rows, self.owner.flags):
            table.reserve(rows)
        self.synopses.reserve(rows)

    @property
    def sums(self) -> SumReport | None:
        """What the sums of this part have shown, where synopses are sums."""
        return self.synopses.report

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Merge the messages of an epoch, update the active whole vertices, and hand on what changed."""
        (topology,) = (block for block in blocks if "ctl" in block.columns)
        self.owner.topology(topology)
        born, replicas = topology.get("m_slot"), topology.get("r_slot")
        self._reserve(max(born.max(initial=-1), replicas.max(initial=-1)) + 1)
        if replicas.size:
            self.home.touch_rows(replicas)
            self.home.data[replicas, 0] = topology.get("r_part")
            self.home.data[replicas, 1] = topology.get("r_home")
        own = self.synopses.merge(epoch, topology, blocks, self.own)
        touched = self.synopses.touched()
        messages = self._update(epoch, topology, touched, own)
        if self.shape.parts > 1:
            messages += self._partials(epoch, topology, touched, own)
        self._clear(topology)
        return messages

    def _update(self, epoch: int, topology: Block, touched: np.ndarray, own: np.ndarray) -> list[Message]:
        """UPDATE of the active whole vertices, and what it changes for the next layer or the sink."""
        layer, owner = self.shape.layer, self.owner
        born, whole_again = topology.get("m_slot"), topology.get("u_slot")
        candidates = [touched, born, whole_again]
        if layer.reads_self:
            candidates.append(own)
        if layer.reads_context:
            candidates.append(topology.get("c_slot"))
        active = owner.choose(epoch, candidates)
        self.touched = int(active.size)
        forced = np.concatenate([born, whole_again])
        if layer.epilogue is not None and self.own is not None:
            changed, x = owner.finish(active, self.synopses.s.data, self.own.data, layer.epilogue, forced)
        else:
            x = layer.update(self.synopses.read(active), self._own_rows(active), owner.read_context(active))
            changed, x = owner.store(active, x, forced)
        return hand_on(owner, epoch, changed, x, topology)

    def _own_rows(self, slots: np.ndarray) -> np.ndarray:
        if self.shape.layer.self_is_message:
            return gather(self.synopses.z.data, slots)
        if self.own is not None:
            return gather(self.own.data, slots)
        return np.empty((slots.size, 0), np.float32)

    def _partials(self, epoch: int, topology: Block, touched: np.ndarray, own: np.ndarray) -> list[Message]:
        """The partial synopses of touched split vertices, to the tails of their masters."""
        owner, shape = self.owner, self.shape
        splits = topology.get("s_slot")
        slots = np.concatenate([touched, splits[~np.isin(splits, touched)]])
        here = owner.flags.data[slots] != 0
        part = np.where(here, shape.part, self.home.data[slots, 0])
        address = np.where(here, slots, self.home.data[slots, 1]).astype(np.int32)
        split_here = ~here | (owner.flags.data[slots] == owner.owned | SPLIT)
        mine = np.unique(np.concatenate([own, splits]))
        mine = mine[owner.flags.data[mine] == owner.owned | SPLIT]
        header = Header(PARTIAL, epoch, shape.number, shape.part)
        messages = []
        for to in range(shape.parts):
            chosen = (part == to) & split_here
            columns: Columns = {
                "p_slot": address[chosen],
                "p": self.synopses.read(slots[chosen]),
                "p_count": self.synopses.in_edges(slots[chosen]),
            }
            if to == shape.part:
                columns |= {**topology_of(topology), "t_slot": mine, "t": self._own_rows(mine)}
            messages.append(Message(TAIL, to, epoch, shape.part, seal(header, columns)))
        return messages

    def _clear(self, topology: Block) -> None:
        """At the end of the epoch: rows of dropped masters and replicas hold nothing any more."""
        gone = np.concatenate([topology.get("d_slot"), topology.get("f_slot")])
        if gone.size:
            self.synopses.clear(gone)
            for table in self._rows:
                table.touch_rows(gone)
                table.data[gone] = table.fill
        self.owner.clear(topology)
