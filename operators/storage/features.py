"""The Storage core of layer 0 in one task: raw features by kind, and what stands behind them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshet.gnn.kinds.learned import LearnedRows
from freshet.operators.core import Core
from freshet.operators.graph.layer_of_kinds import LayerOfKinds
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.tables import with_prefix
from freshet.operators.graph.topology import Masters
from freshet.operators.outcome import Message
from freshet.operators.storage.epoch_topology import EpochTopology
from freshet.operators.storage.featured import Featured
from freshet.operators.storage.head import Handed, hand_on
from freshet.operators.storage.learned import LearnedColumns
from freshet.operators.storage.owner import Changed, RowOwner
from freshet.operators.storage.shape import sending
from freshet.operators.telemetry.figures import LEARNED, UNLEARNED, Figures
from freshet.schema import Features
from freshet.state.block_columns import kind_prefix
from freshet.state.codec import Block, views
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts


class FeatureStorage(Core):
    """Storage 0: the raw features of a task's masters by kind; sends what layer 1 reads of the changed ones."""

    def __init__(
        self, task: int, tasks: TaskParts, features: Features, following: LayerOfKinds,
        receivers: TaskParts | None = None, learned: Sequence[LearnedRows | None] = (),
    ) -> None:  # fmt: skip
        """Make the tables of all kinds.

        `receivers`: the tasks of layer 1, by default the same; `learned`: rows by kind that stand behind its features.
        """
        self.tables = TableSet(len(tasks.parts_of[task]))
        self.prefixes, self.owners = list[str](), list[RowOwner]()
        self._features = [Features(width) for width in features.widths]
        self.learned = dict[int, LearnedColumns]()
        for kind, width in enumerate(features.widths):
            number, rows = None if features.kinds is None else kind, learned[kind] if learned else None
            self.prefixes.append(kind_prefix(number))
            mine, plan = with_prefix(self.tables, self.prefixes[kind]), sending(following, kind)
            masters = Masters(self.tables, PartRows(task, tasks), number, None, plan)
            owner = RowOwner(mine, masters, width + (rows.width if rows else 0), plan, 0, receivers=receivers)
            self.owners.append(owner)
            if rows is not None:
                self.learned[kind] = LearnedColumns(mine, owner, rows, width)
        self._featured = Featured(list(zip(self.owners, features.widths, strict=True)))
        self.touched = 0

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        for owner in self.owners:
            owner.at.restore()
        for one in self.learned.values():
            one.after_restore()

    @property
    def figures(self) -> Figures:
        """The gauge of features, the number of vertices of kinds with learned rows, and of unknown ids there."""
        found = list(self.learned.values())
        if not found:
            return Figures(gauges=self._featured.gauges)
        vertices, unknown = sum(one.vertices for one in found), sum(one.unknown for one in found)
        return Figures(gauges={LEARNED: vertices, UNLEARNED: unknown, **self._featured.gauges})

    def take_over(self, kind: int, topology: EpochTopology) -> bool:
        """Take over an epoch's masters of a kind and their contexts, and have room for them; whether it has any."""
        owner, section = self.owners[kind], topology.of(self.prefixes[kind])
        if section.columns:
            owner.at.reserve(section, "m")
            owner.masters.take_over(section)
        return owner.masters.take_degrees(topology.of) or bool(section.columns)

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Set features, and fan out those of new and changed vertices."""
        topology, handed, self.touched = EpochTopology(map(views, blocks)), list[Handed](), 0
        for kind, owner in enumerate(self.owners):
            if not self.take_over(kind, topology):
                continue
            prefix, rows = self.prefixes[kind], self.learned.get(kind)
            section = topology.of(prefix)
            self._featured.see(section.get("x0"))
            changed = _set_features(owner, section, self._features[kind]) if rows is None else rows.set(section)
            self.touched += int(changed.slots.size)
            handed.append(Handed(prefix, owner, changed))
        messages = hand_on(handed, self.owners, epoch, topology, last=False)
        for prefix, one, _ in handed:
            dead = one.at.of(topology.of(prefix), "d")
            if (rows := self.learned.get(self.prefixes.index(prefix))) is not None:
                rows.clear(dead)
            one.clear(dead)
            one.masters.clear(dead)
        return messages


def _set_features(owner: RowOwner, block: Block, features: Features) -> Changed:
    """Set the raw features that a block brings; the rows of new and changed vertices."""
    at = owner.at
    slots, x = at.of(block, "x0"), block.get("x0")
    born = at.of(block, "m")
    changed = owner.store(slots, x, born) if slots.size else Changed(slots, features.empty())
    if born.size and (featureless := born[~owner.are_in(born, slots)]).size:
        x = np.concatenate([changed.x, features.zeros(featureless.size)])
        changed = Changed(np.concatenate([changed.slots, featureless]), x)
    return changed
