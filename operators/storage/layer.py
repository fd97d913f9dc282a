"""The Storage cores of one task: layer 0 (raw features) and layer l (edges, replicated source values, synopses)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.gnn.plan import LayerPlan
from freshet.operators.core import Core
from freshet.operators.dataflow import TAIL
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.routing import route_partials
from freshet.operators.graph.sources import read_sources
from freshet.operators.graph.topology import SPLIT, Masters, Topology
from freshet.operators.outcome import Message
from freshet.operators.storage.featured import Featured
from freshet.operators.storage.head import hand_on
from freshet.operators.storage.owner import Changed, Owner
from freshet.operators.storage.partial_rows import partial_columns
from freshet.operators.storage.travelling import joined, topology_of
from freshet.operators.storage.values import Values
from freshet.operators.telemetry.figures import Figures
from freshet.operators.telemetry.level import Level
from freshet.operators.telemetry.sum_report import SumReport
from freshet.schema import Features
from freshet.state.block_columns import PARTIAL
from freshet.state.codec import Block, Header, seal
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts

EMPTY_SLOTS = np.empty(0, np.int32)


class FeatureStorage(Core):
    """Storage 0: the raw features of a task's masters; sends what layer 1 reads of the changed ones."""

    def __init__(
        self,
        task: int,
        tasks: TaskParts,
        features: Features,
        following: LayerPlan,
        receivers: TaskParts | None = None,
    ) -> None:
        """`receivers`: the tasks of layer 1, by default the same."""
        self._features, self.at = features, PartRows(task, tasks)
        self.tables = TableSet(len(self.at.here))
        self.masters = Masters(self.tables, self.at, None, following)
        self.owner = Owner(self.tables, self.masters, features.width, None, following, 0, receivers=receivers)
        self._featured = Featured([(self.owner, features.width)])
        self.touched = 0

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        self.at.restore()

    @property
    def figures(self) -> Figures:
        """The gauge of vertices with features."""
        return Figures(gauges=self._featured.gauges)

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Set features, and fan out those of new and changed vertices."""
        (block,) = blocks
        owner, at = self.owner, self.at
        at.reserve(block, "m")
        self.masters.take_over(block)
        self._featured.see(block.get("x0"))
        changed = set_features(owner, block, self._features)
        self.touched = int(changed.slots.size)
        messages = hand_on(owner, epoch, changed, block)
        dead = at.of(block, "d")
        owner.clear(dead)
        self.masters.clear(dead)
        return messages


def set_features(owner: Owner, block: Block, features: Features) -> Changed:
    """Set the raw features that a block brings; the rows of new and changed vertices."""
    at = owner.at
    slots, x = at.of(block, "x0"), block.get("x0")
    born = at.of(block, "m")
    changed = owner.store(slots, x, born) if slots.size else Changed(slots, features.empty())
    if born.size and (featureless := born[~owner.are_in(born, slots)]).size:
        x = np.concatenate([changed.x, features.zeros(featureless.size)])
        changed = Changed(np.concatenate([changed.slots, featureless]), x)
    return changed


class LayerShape(NamedTuple):
    """Position of a Storage or Tail: its task, the parts of each task, its layer's number and plan, the next one's.

    `receivers` are the tasks of the next layer, or of the Sink; None: the same.
    """

    task: int
    tasks: TaskParts
    number: int
    layer: LayerPlan
    following: LayerPlan | None
    receivers: TaskParts | None = None

    def __str__(self) -> str:
        return f"storage {self.number} task {self.task}"


class LayerStorage(Core):
    """Storage l: merges the messages of its parts' edges and updates its whole vertices."""

    def __init__(self, shape: LayerShape) -> None:
        self.shape = shape
        layer, following = shape.layer, shape.following
        self.at = PartRows(shape.task, shape.tasks)
        self.tables = tables = TableSet(len(self.at.here))
        self.topology = Topology(tables, self.at, layer, following)
        place = layer, following, shape.number
        self.owner = Owner(tables, self.topology.masters, layer.out_width, *place, receivers=shape.receivers)
        self.values = Values(tables, self.topology, layer, str(shape))
        self.touched = 0
        self._index_bytes = Level()
        self.levels = {"index_bytes": self._index_bytes}

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        self.at.restore()
        self.values.after_restore()

    @property
    def nbytes(self) -> int:
        """Bytes held by the tables and by the indexes of long lists."""
        return super().nbytes + self.topology.edges.index_bytes

    @property
    def sums(self) -> SumReport | None:
        """Report on the sums of these parts, if synopses are sums."""
        return self.values.synopses.report

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Merge the messages of an epoch, update the active whole vertices, and hand on what changed."""
        block = joined(blocks)
        self.topology.take_over(block)
        sources = read_sources(blocks, self.at, self.shape.layer.message_width)
        self.values.merge(epoch, block, sources)
        touched, own = self.values.synopses.touched(), sources.masters
        if epoch == 0:
            touched.sort()  # a snapshot's, which may be merged in several passes (operators/initial)
        messages = self._update(epoch, block, touched, own)
        if self.shape.tasks.parts > 1:
            messages += self._partials(epoch, block, touched, own)
        self._index_bytes.set(self.topology.edges.index_bytes)
        self._clear(block)
        self._index_bytes.set(self.topology.edges.index_bytes)
        return messages

    def _update(self, epoch: int, block: Block, touched: np.ndarray, own: np.ndarray) -> list[Message]:
        """UPDATE of the active whole vertices, and what it changes for the next layer or the sink."""
        layer, owner, rows_of = self.shape.layer, self.owner, self.at.of
        born, whole_again = rows_of(block, "m"), rows_of(block, "u")
        candidates = [touched, born, whole_again]
        if layer.reads_self:
            candidates.append(own)
        if layer.reads_context:
            candidates.append(rows_of(block, "c"))
        active = owner.choose(epoch, candidates)
        self.touched = int(active.size)
        dealt = owner.following is None and self.shape.tasks.parts > 1
        forced = np.concatenate([born, whole_again])
        changed = self.values.update(owner, active, forced, keep_roots=epoch > 0, dealt=dealt)
        return hand_on(owner, epoch, changed, block)

    def new_rows(self, slots: np.ndarray) -> Changed:
        """UPDATE these whole vertices of a snapshot; all of them."""
        return self.values.update(self.owner, slots, slots, keep_roots=False, dealt=False)

    def _partials(self, epoch: int, block: Block, touched: np.ndarray, own: np.ndarray) -> list[Message]:
        """The partial synopses of touched split vertices, to the tails of their masters."""
        owner, at, tasks, flags = self.owner, self.at, self.shape.tasks, self.topology.masters.flags.data
        values, splits = self.values, at.of(block, "s")
        slots = np.concatenate([touched, splits[~owner.are_in(splits, touched)]]) if splits.size else touched
        partials = route_partials(slots, flags, owner.owned | SPLIT, self.topology.home.data, at)
        mine = np.concatenate([own, splits])
        mine = np.unique(mine[flags[mine] == owner.owned | SPLIT])
        header = Header(PARTIAL, epoch, self.shape.number, self.shape.task)
        messages = []
        for task in range(tasks.tasks):
            columns = partial_columns(partials, values.synopses, task, tasks)
            if task == self.shape.task:
                columns |= {**topology_of(block), **at.place_columns("t", mine), "t": values.own_rows(mine)}
            messages.append(Message(TAIL, task, epoch, seal(header, columns)))
        return messages

    def _clear(self, block: Block) -> None:
        """Clear the rows of dropped masters and replicas at the end of the epoch."""
        dead = self.at.of(block, "d")
        gone = np.concatenate([dead, self.at.of(block, "f")])
        self.values.clear(gone)
        self.owner.clear(dead)
        self.topology.clear(gone, dead)
