"""The Tail of one task where vertices have kinds: partials by relation, rows of split vertices by kind."""

from __future__ import annotations

import numpy as np

from freshet.gnn.kind_layers.plans import RelationPlan
from freshet.gnn.kind_layers.typed_sums import TypedSums
from freshet.operators.core import Core
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.topology import MASTER, SPLIT
from freshet.operators.outcome import Message
from freshet.operators.storage.kinds.handing import Handed, KindsTopology, hand_on_kinds
from freshet.operators.storage.kinds.pairs import PairPartials
from freshet.operators.storage.kinds.tables import PrefixedTables
from freshet.operators.storage.kinds.vertices import KindsShape, KindVertices
from freshet.operators.storage.partial_rows import PartialRows
from freshet.state.block_columns import relation_prefix
from freshet.state.codec import Block, views
from freshet.state.table import TableSet

_OWNED = MASTER | SPLIT


class RelationPartials:
    """The partial synopses of one relation."""

    def __init__(self, tables: TableSet, at: PartRows, plan: RelationPlan) -> None:
        self.prefix = relation_prefix(plan.number)
        self._rows = PartialRows(PrefixedTables(tables, self.prefix), at, plan, counted=True)
        self.keep, self.drop = self._rows.keep, self._rows.drop

    def read(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return synopses of vertices, (n, synopsis_width) float32, and the numbers of in-edges of each, (n,) int32."""
        return self._rows.merged(slots), self._rows.in_edges(slots)

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        self._rows.reserve(0)


def _partials_of(tables: TableSet, at: PartRows, plan: RelationPlan) -> RelationPartials | PairPartials:
    return (PairPartials if isinstance(plan.conv, TypedSums) else RelationPartials)(tables, at, plan)


class KindsTail(Core):
    """Tail l: merges partials by relation, updates its split vertices by kind."""

    def __init__(self, shape: KindsShape) -> None:
        self.shape = shape
        self.tables, layer = TableSet(len(shape.tasks.parts_of[shape.task])), shape.layer
        self.kinds: list[tuple[int, KindVertices, list[RelationPartials | PairPartials]]] = []
        for kind, plan in enumerate(layer.kinds):
            if plan is not None and plan.updates:
                vertices = KindVertices(self.tables, shape, kind, plan, _OWNED)
                vertices.keep_own()
                into = [_partials_of(self.tables, vertices.at, layer.relations[place]) for place in plan.relations]
                self.kinds.append((kind, vertices, into))
        self._owners = [one.owner for _, one, _ in self.kinds if one.owner is not None]
        self.touched = 0

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        for _, one, into in self.kinds:
            one.at.restore()
            for partials in into:
                partials.after_restore()

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Merge the partials of an epoch, update, and hand on what changed."""
        brought = [views(block) for block in blocks]
        topology, handed, self.touched = KindsTopology(brought), list[Handed](), 0
        for _, one, into in self.kinds:
            assert one.owner is not None
            section = topology.of(one.prefix)
            if section.columns:
                self.take_over(one, into, section)
            one.take_degrees(topology)
            candidates = [one.at.of(section, "s")]
            for partials in into:
                found = [views[partials.prefix] for views in brought if partials.prefix in views]
                flags = one.owner.masters.flags.data
                candidates += [partials.keep(block, flags, _OWNED) for block in found]
            selves = one.owner.mine(one.at.of(section, "t"))
            if one.plan.reads_self:
                candidates.append(selves)
            changed = one.update(epoch, candidates, one.at.of(section, "s"), into)
            self.touched += int(changed.slots.size)
            handed.append(Handed(one.prefix, one.owner, changed))
        messages = hand_on_kinds(handed, self._owners, epoch, topology, last=self.shape.following is None)
        for _, one, _ in self.kinds:
            one.clear(topology.of(one.prefix))
        return messages

    def take_over(self, one: KindVertices, into: list[RelationPartials | PairPartials], section: Block) -> None:
        """Take over an epoch's masters and self inputs, and forget those that are not split any more."""
        assert one.owner is not None
        one.take_over(section)
        whole = np.concatenate([one.at.of(section, "u"), one.at.of(section, "d")])
        if whole.size:
            for partials in into:
                partials.drop(whole)
            for table in (one.owner.x, *(() if one.own is None else (one.own,))):
                table.clear_rows(whole)
        slots = one.at.of(section, "t")
        if slots.size and one.own is not None:
            one.own.touch_rows(slots)
            one.own.data[slots] = section.columns["t"]
