"""The operator Tail of layer l in one task: the split vertices that are mastered here.

It merges what the parts of their in-edges send (partial_rows.py) by relation, applies UPDATE by kind, and sends changed
rows.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from freshet.gnn.kind_layers.plans import RelationPlan
from freshet.gnn.layers.base import NO_CONTEXT
from freshet.operators.core import Core
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.relation import LayerRelation
from freshet.operators.graph.tables import with_prefix
from freshet.operators.graph.topology import MASTER, SPLIT
from freshet.operators.outcome import Message
from freshet.operators.storage.epoch_topology import EpochTopology
from freshet.operators.storage.head import Handed, hand_on
from freshet.operators.storage.pairs import PairPartials
from freshet.operators.storage.partial_rows import PartialRows
from freshet.operators.storage.shape import LayerShape
from freshet.operators.storage.vertices import Vertices
from freshet.state.block_columns import relation_prefix
from freshet.state.codec import Block, views
from freshet.state.table import TableSet

_OWNED = MASTER | SPLIT


class RelationPartials:
    """The partial synopses of one relation."""

    def __init__(self, tables: TableSet, at: PartRows, plan: LayerRelation) -> None:
        self.prefix, self._counts = relation_prefix(plan.number), plan.reads_in_edges
        self._rows = PartialRows(with_prefix(tables, self.prefix), at, plan, counted=self._counts)
        self.keep, self.drop, self.index = self._rows.keep, self._rows.drop, self._rows.index

    def read(self, slots: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return synopses of vertices, (n, synopsis_width) float32, and their in-edges (see KeptSynopses)."""
        return self._rows.merged(slots), self._rows.in_edges(slots) if self._counts else NO_CONTEXT

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        self._rows.reserve(0)


Partials = RelationPartials | PairPartials


def _partials_of(tables: TableSet, at: PartRows, plan: LayerRelation) -> Partials:
    return PairPartials(tables, at, cast(RelationPlan, plan)) if plan.has_pairs else RelationPartials(tables, at, plan)


class LayerTail(Core):
    """Tail l: merges partials by relation, updates its split vertices by kind."""

    def __init__(self, shape: LayerShape) -> None:
        self.shape = shape
        self.tables, layer = TableSet(len(shape.tasks.parts_of[shape.task])), shape.layer
        self.kinds: list[tuple[int, Vertices, list[Partials]]] = []
        for kind, plan in enumerate(layer.kinds):
            if plan is not None and plan.updates:
                vertices = Vertices(self.tables, shape, kind, plan, _OWNED)
                into = [_partials_of(self.tables, vertices.at, layer.relations[place]) for place in plan.relations]
                vertices.keep_own()
                self.kinds.append((kind, vertices, into))
        self.owners = [one.owner for _, one, _ in self.kinds if one.owner is not None]
        self.touched = 0

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        for _, one, into in self.kinds:
            one.after_restore()
            for partials in into:
                partials.after_restore()

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Merge the partials of an epoch, update, and hand on what changed."""
        brought = [views(block) for block in blocks]
        topology, handed, self.touched = EpochTopology(brought), list[Handed](), 0
        for _, one, into in self.kinds:
            assert one.owner is not None
            section = topology.of(one.prefix)
            if section.columns:
                self.take_over(one, into, section)
            one.take_degrees(topology)
            splits = one.at.of(section, "s")
            candidates = [splits]
            for partials in into:
                found = [views[partials.prefix] for views in brought if partials.prefix in views]
                flags = one.owner.masters.flags.data
                candidates += [partials.keep(block, flags, _OWNED) for block in found]
            selves = one.owner.mine(one.at.of(section, "t"))
            if one.plan.reads_self:
                candidates.append(selves)
            active = one.choose(epoch, candidates)
            self.touched += int(active.size)
            handed.append(Handed(one.prefix, one.owner, one.new_rows(active, splits, into)))
        messages = hand_on(handed, self.owners, epoch, topology, last=self.shape.following is None)
        for _, one, _ in self.kinds:
            one.clear(topology.of(one.prefix))
        return messages

    def take_over(self, one: Vertices, into: list[Partials], section: Block) -> None:
        """Take over an epoch's masters and self inputs, and forget those that are not split any more."""
        assert one.owner is not None
        one.take_over(section)
        whole = np.concatenate([one.at.of(section, "u"), one.at.of(section, "d")])
        if whole.size:
            for partials in into:
                partials.drop(whole)
            for table in (*one.kept_rows, *(() if one.own is None else (one.own,))):
                table.clear_rows(whole)
        slots = one.at.of(section, "t")
        if slots.size and one.own is not None:
            one.own.touch_rows(slots)
            one.own.data[slots] = section.columns["t"]
