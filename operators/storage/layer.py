"""The Storage cores of one task: layer 0 (raw features) and layer l (edges, replicated source values, synopses)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnn.plan import LayerPlan
from operators.core import Core
from operators.dataflow import TAIL
from operators.outcome import Message
from operators.storage.capability import capability_of
from operators.storage.head import hand_on, topology_of
from operators.storage.owner import SPLIT, Changed, Owner
from operators.storage.part_rows import PartRows
from operators.storage.root_rows import RootRows
from operators.storage.routing import route_partials
from operators.storage.row_kernels import gather
from operators.storage.sources import read_sources
from operators.telemetry.sum_report import SumReport
from state.block_columns import PARTIAL, Columns
from state.codec import Block, Header, seal
from state.table import TableSet
from state.task_parts import TaskParts

EMPTY_SLOTS = np.empty(0, np.int32)


class FeatureStorage(Core):
    """Storage 0: the raw features of a task's masters; sends what layer 1 reads of the changed ones."""

    def __init__(self, task: int, tasks: TaskParts, following: LayerPlan) -> None:
        self.at = PartRows(task, tasks)
        self.tables = TableSet(len(self.at.here))
        self.owner = Owner(self.tables, self.at, following.in_width, None, following, 0)
        self.touched = 0

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        self.at.restore()

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Set features, and fan out those of new and changed vertices."""
        (block,) = blocks
        owner, at = self.owner, self.at
        at.reserve(block, "m")
        owner.topology(block)
        slots, x = at.of(block, "x0"), block.get("x0")
        born = at.of(block, "m")
        changed = Changed(slots, x.reshape(-1, owner.x.data.shape[1]))
        if slots.size:
            changed = owner.store(slots, x, born)
        if born.size and (featureless := born[~owner.are_in(born, slots)]).size:
            zeros = np.zeros((featureless.size, changed.x.shape[1]), np.float32)
            changed = Changed(np.concatenate([changed.slots, featureless]), np.concatenate([changed.x, zeros]))
        self.touched = int(changed.slots.size)
        messages = hand_on(owner, epoch, changed, block)
        owner.clear(block)
        return messages


class LayerShape(NamedTuple):
    """Where a Storage or Tail stands: its task, the parts of each task, its layer's number and plan, the next one's."""

    task: int
    tasks: TaskParts
    number: int
    layer: LayerPlan
    following: LayerPlan | None

    def __str__(self) -> str:
        return f"storage {self.number} task {self.task}"


class LayerStorage(Core):
    """Storage l: merges the messages of its parts' edges and updates its whole vertices.

    Shapes: own (rows, self_width) float32; home (rows, 2) int32.
    """

    def __init__(self, shape: LayerShape) -> None:
        self.shape = shape
        layer = shape.layer
        self.at = PartRows(shape.task, shape.tasks)
        self.tables = tables = TableSet(len(self.at.here))
        self.owner = Owner(tables, self.at, layer.out_width, layer, shape.following, shape.number)
        self.synopses = capability_of(layer.synopsis).store(tables, self.at, layer, str(shape))
        self.roots = RootRows(layer) if layer.root_width else None
        self.own = tables.add("own", "f4", layer.self_width) if layer.self_width else None
        self.home = tables.add("home", "i4", 2, fill=-1)  # of replicas: part and slot of the master
        self._rows = (self.home,) if self.own is None else (self.home, self.own)
        self.at.keep(*self._rows)
        self.touched = 0

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        self.at.restore()
        if self.roots is not None:
            self.roots.clear()

    @property
    def sums(self) -> SumReport | None:
        """What the sums of these parts have shown, where synopses are sums."""
        return self.synopses.report

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Merge the messages of an epoch, update the active whole vertices, and hand on what changed."""
        (topology,) = (block for block in blocks if "ctl" in block.columns)
        self.take_over(topology)
        sources = read_sources(blocks, self.at, self.shape.layer.message_width)
        if self.roots is not None:
            self.roots.reserve(len(self.synopses.z.data))
            self.roots.forget(sources.slots)
        self.synopses.merge(epoch, topology, sources, self.own)
        touched, own = self.synopses.touched(), sources.masters
        if epoch == 0:
            touched.sort()  # a snapshot's, which may be merged in several passes (operators/initial)
        messages = self._update(epoch, topology, touched, own)
        if self.shape.tasks.parts > 1:
            messages += self._partials(epoch, topology, touched, own)
        self._clear(topology)
        return messages

    def take_over(self, topology: Block) -> None:
        """Take over an epoch's masters and replicas, and have room for them."""
        # flags are asked of replicas, too, and a part may have more of those than masters, or no master at all
        self.at.reserve(topology, "m", "r")
        self.owner.topology(topology)
        replicas = self.at.of(topology, "r")
        if replicas.size:
            self.home.touch_rows(replicas)
            self.home.data[replicas, 0] = topology.get("r_part")
            self.home.data[replicas, 1] = topology.get("r_home")

    def _update(self, epoch: int, topology: Block, touched: np.ndarray, own: np.ndarray) -> list[Message]:
        """UPDATE of the active whole vertices, and what it changes for the next layer or the sink."""
        layer, owner = self.shape.layer, self.owner
        born, whole_again = self.at.of(topology, "m"), self.at.of(topology, "u")
        candidates = [touched, born, whole_again]
        if layer.reads_self:
            candidates.append(own)
        if layer.reads_context:
            candidates.append(self.at.of(topology, "c"))
        active = owner.choose(epoch, candidates)
        self.touched = int(active.size)
        dealt = owner.following is None and self.shape.tasks.parts > 1
        changed = self.new_rows(active, np.concatenate([born, whole_again]), keep_roots=epoch > 0, dealt=dealt)
        return hand_on(owner, epoch, changed, topology)

    def new_rows(
        self, active: np.ndarray, forced: np.ndarray, *, keep_roots: bool = False, dealt: bool = False
    ) -> Changed:
        """UPDATE these whole vertices; those that changed, or are forced, if possible `dealt` to the Sink's parts."""
        layer, owner = self.shape.layer, self.owner
        if layer.epilogue is not None:
            own = self.synopses.z if self.own is None else self.own
            finisher = self.synopses.finisher(layer.epilogue, own, owner.count)
            return owner.finish(active, forced, finisher, dealt=dealt)
        synopses, context = self.synopses.read(active), owner.read_context(active)
        if self.roots is not None and keep_roots:
            x = layer.update_from_root(synopses, self.roots.read(active, self.synopses.z.data), context)
        else:
            x = layer.update(synopses, self._own_rows(active), context)
        return owner.store(active, x, forced)

    def _own_rows(self, slots: np.ndarray) -> np.ndarray:
        if self.shape.layer.self_is_message:
            return gather(self.synopses.z.data, slots)
        if self.own is not None:
            return gather(self.own.data, slots)
        return np.empty((slots.size, 0), np.float32)

    def _partials(self, epoch: int, topology: Block, touched: np.ndarray, own: np.ndarray) -> list[Message]:
        """The partial synopses of touched split vertices, to the tails of their masters."""
        owner, at, tasks, flags = self.owner, self.at, self.shape.tasks, self.owner.flags.data
        splits = at.of(topology, "s")
        slots = np.concatenate([touched, splits[~owner.are_in(splits, touched)]]) if splits.size else touched
        partials = route_partials(slots, flags, owner.owned | SPLIT, self.home.data, at)
        mine = np.concatenate([own, splits])
        mine = np.unique(mine[flags[mine] == owner.owned | SPLIT])
        header = Header(PARTIAL, epoch, self.shape.number, self.shape.task)
        messages = []
        for task in range(tasks.tasks):
            chosen = slice(*partials.ends[task : task + 2])
            rows = partials.rows[chosen]
            columns: Columns = {}
            if rows.size:
                columns = {"p_slot": partials.slot[chosen], "p": self.synopses.read(rows)}
                columns["p_count"] = self.synopses.in_edges(rows)
                if len(tasks.parts_of[task]) > 1:
                    columns["p_to"] = partials.to[chosen]
                if not tasks.is_one_each:
                    columns["p_from"] = partials.source[chosen]
            if task == self.shape.task:
                columns |= {**topology_of(topology), **at.place_columns("t", mine), "t": self._own_rows(mine)}
            messages.append(Message(TAIL, task, epoch, seal(header, columns)))
        return messages

    def _clear(self, topology: Block) -> None:
        """At the end of the epoch: rows of dropped masters and replicas hold nothing any more."""
        gone = np.concatenate([self.at.of(topology, "d"), self.at.of(topology, "f")])
        if gone.size:
            self.synopses.clear(gone)
            if self.roots is not None:
                self.roots.forget(gone)
            for table in self._rows:
                table.touch_rows(gone)
                table.data[gone] = table.fill
        self.owner.clear(topology)
