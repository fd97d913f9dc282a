"""The attributes of a job's edges, as far as its state has them: those of the first layer that reads any.

The Partitioner keeps none. A layer that has all edges comes before those that skip self-loops; where all of them do, no
layer reads attributes of self-loops, and those are zeros here. What the layer had when the state was saved, and what
each later epoch changed, is kept by (part, source's slot, destination's slot, type), with the edge's number in place of
the type where edges have keys; of an edge that is there the last entry holds. Where vertices have kinds, this holds for
each relation; of one whose attributes only its mirror's messages read, they are found by the edges of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from freshet.gnn.any_plan import AnyPlan
from freshet.kinds import NO_MIRROR, Kinds
from freshet.operators.core import Core
from freshet.operators.dataflow import STORAGE
from freshet.operators.factory import dataflow_of, stages_of
from freshet.operators.graph.edge_lists import EdgeLists
from freshet.operators.graph.layer_of_kinds import LayerOfKinds
from freshet.operators.settings import Settings
from freshet.operators.storage.layer import LayerStorage
from freshet.partitioner.core import Partitioner
from freshet.partitioner.ids import KeyNumbers
from freshet.partitioner.live_graph import PlacedGraph
from freshet.schema import Features
from freshet.state.block_columns import ADDED_EDGES, CHANGED_EDGES, relation_prefix
from freshet.state.codec import Block, view
from freshet.state.entries import Entries

_FORMER_MIN = 1 << 20  # entries, beside two for each edge, that may be kept though they no longer hold
_ALL = -1  # in place of a relation: edges have none


class AttributeKeeper(NamedTuple):
    """An operator that keeps attributes of edges, of one relation where there are any."""

    operator: str
    skips_loops: bool
    relation: int = _ALL


def attribute_keepers(plan: AnyPlan) -> list[AttributeKeeper]:
    """Return the operators that keep attributes of edges; one for each relation that they are read of."""
    found: dict[int, list[AttributeKeeper]] = {}
    layers: Sequence[LayerOfKinds] = plan.layers
    for number, layer in enumerate(layers, 1):
        for one in layer.relations:
            relation = _ALL if one.number is None else one.number
            if one.edge.attributes:
                found.setdefault(relation, []).append(
                    AttributeKeeper(f"{STORAGE}{number}", one.edge.skip_loops, relation)
                )
    return [min(keepers, key=lambda keeper: keeper.skips_loops) for keepers in found.values()]


def unkept_attributes(graph: PlacedGraph, features: Features, keepers: Sequence[AttributeKeeper]) -> np.ndarray:
    """Return which edges may have had attributes that no operator keeps, since nothing that is returned reads them.

    Shapes: (edges,) bool. Those of a relation without attributes have none.
    """
    if not features.given_edge_width:
        return np.zeros(len(graph.src), bool)
    every, loops, kept = np.ones(len(graph.src), bool), graph.src == graph.dst, np.zeros(len(graph.src), bool)
    by_relation = {one.relation: one for one in keepers}
    if graph.kinds is not None:
        every = graph.kinds.edge_widths[graph.etype] > 0
        by_relation |= {mirrored: by_relation[k] for k, mirrored in _read_by_mirrors(graph.kinds, set(by_relation))}
    for number, one in by_relation.items():
        of_relation = np.True_ if number == _ALL else graph.etype == number
        kept |= of_relation & (~loops if one.skips_loops else np.True_)
    return every & ~kept


class LiveAttributes:
    """The attributes of the edges of a job that is not running; `settings` have all parts in one task."""

    def __init__(self, settings: Settings, plan: AnyPlan, keepers: Iterable[AttributeKeeper]) -> None:
        flow, parts, width = dataflow_of(settings, plan), settings.parts, plan.features.edge_width
        self._kept = [_Kept(keeper, parts, width) for keeper in keepers]
        self._parts, self._width = parts, width
        rows = [flow[name] for name in dict.fromkeys(one.keeper.operator for one in self._kept)]
        self._stages = {place.operator: stage for place, stage in stages_of(settings, plan, rows).items()}

    def restore(self, entries_of: Callable[[str, int], Entries]) -> None:
        """Load the state that `entries_of` has of each part of the operators."""
        for operator, stage in self._stages.items():
            stage.restore(*(entries_of(operator, part) for part in range(self._parts)))
        for one in self._kept:
            one.add(*_restored(_lists_of(self._stages[one.keeper.operator].core, one.keeper.relation)))
        for stage in self._stages.values():
            stage.close()
        self._stages.clear()  # what they have besides is of no use here

    def load(self, core: Partitioner, attr: np.ndarray) -> None:
        """Take the attributes of all live edges as `of` has returned them."""
        every = core.edge_places().astype(np.int64)
        for one in self._kept:
            one.load(every, attr)

    def take(self, block: Block) -> None:
        """Take the changes of an epoch, in a TOPOLOGY block of all parts."""
        for one in self._kept:
            one.take(block)

    def forget_former(self, core: Partitioner) -> None:
        """Drop entries that no longer hold, where there are many; `core` has taken what was taken here."""
        if all(one.count <= 2 * core.edges + _FORMER_MIN for one in self._kept):
            return
        every = core.edge_places().astype(np.int64)
        for one in self._kept:
            attr = np.zeros((every.shape[1], self._width), np.float32)
            one.put(every, attr)
            one.clear()
            one.load(every, attr)

    def of(self, core: Partitioner, graph: PlacedGraph) -> np.ndarray:
        """Return the attributes of all live edges, (edges, width) float32, in the order of the live graph."""
        every = core.edge_places().astype(np.int64)
        attr = np.zeros((every.shape[1], self._width), np.float32)
        for one in self._kept:
            one.put(every, attr)
        kinds = graph.kinds
        for number, mirrored in _read_by_mirrors(kinds, {one.keeper.relation for one in self._kept}) if kinds else ():
            _copy_to_mirrored(graph, number, mirrored, attr)
        return attr


class _Kept:
    """The attributes that one operator keeps."""

    def __init__(self, keeper: AttributeKeeper, parts: int, width: int) -> None:
        self.keeper, self._parts = keeper, parts
        self._ends: list[np.ndarray] = []
        self._attr = [np.zeros((0, width), np.float32)]

    @property
    def count(self) -> int:
        """Number of entries."""
        return sum(map(len, self._attr))

    def clear(self) -> None:
        """Have no entries."""
        self._ends, self._attr = [], [self._attr[0][:0]]

    def take(self, whole: Block) -> None:
        """Take the changes of an epoch."""
        number = self.keeper.relation
        block = whole if number == _ALL else view(whole, relation_prefix(number))
        for group in (CHANGED_EDGES, ADDED_EDGES):
            apart = group.row if group.row in block.columns else group.type
            src, dst, etype = block.get(group.names[0]), block.get(group.names[1]), block.get(apart)
            if src.size:
                part = block.get(group.part) if self._parts > 1 else np.zeros(src.size, np.int16)
                ends = np.stack([part, src, dst, etype]).astype(np.int64)
                has = self._has(ends)
                self.add(ends[:, has], block.get(group.attr)[has])

    def add(self, ends: np.ndarray, attr: np.ndarray) -> None:
        """Note attributes of edges. Shapes: ends (4, n) int64: parts, slots of both ends, types; attr (n, width)."""
        self._ends.append(ends)
        wide = self._attr[0].shape[1]
        narrow = attr.shape[1] < wide  # as wide as those of its relation are
        self._attr.append(np.pad(attr, ((0, 0), (0, wide - attr.shape[1]))) if narrow else attr)

    def put(self, every: np.ndarray, attr: np.ndarray) -> None:
        """Set the attributes of those edges that it has."""
        has = self._kept_of(every)
        asked = every[:4, has]
        known = np.concatenate([*self._ends, np.empty((4, 0), np.int64)], axis=1)
        keys = np.concatenate([known, asked], axis=1)
        order = np.lexsort((keys[2] << 32 | keys[3], keys[0] << 32 | keys[1]))  # what was asked is last of its like
        is_asked = order >= known.shape[1]
        # the newest entry before it in this order: several edges do not have the same ends and type
        newest = order[np.maximum(np.flatnonzero(is_asked) - 1, 0)]
        found = order[is_asked] - known.shape[1]
        assert (keys[:, newest] == asked[:, found]).all(), "an edge without an entry of its own"
        attr[np.flatnonzero(has)[found]] = np.concatenate(self._attr)[newest]

    def load(self, every: np.ndarray, attr: np.ndarray) -> None:
        """Note the attributes of those edges that it has."""
        has = self._kept_of(every)
        self.add(every[:4, has], attr[has])

    def _kept_of(self, every: np.ndarray) -> np.ndarray:
        """Return which of all edges it has."""
        has = self._has(every)
        return has if self.keeper.relation == _ALL else has & (every[4] == self.keeper.relation)

    def _has(self, ends: np.ndarray) -> np.ndarray:
        """Return which of these edges, if they are of its relation, the operator has."""
        return ends[1] != ends[2] if self.keeper.skips_loops else np.ones(ends.shape[1], bool)


def _lists_of(core: Core, relation: int) -> EdgeLists:
    assert isinstance(core, LayerStorage)
    return next(one.lists for one in core.relations if one.plan.number in (relation, None))


def _restored(lists: EdgeLists) -> tuple[np.ndarray, np.ndarray]:
    """The edges of a restored Storage: parts, slots of their ends, types; and their attributes."""
    src, dst, numbers = lists.out.entries()
    table, at = lists.attributes, lists.sources
    assert table is not None
    etype, attr = table.rows_of(src, numbers)
    below = (1 << at.shift) - 1
    return np.stack([src >> at.shift, src & below, dst, etype]).astype(np.int64), attr


def _read_by_mirrors(kinds: Kinds, kept: set[int]) -> list[tuple[int, int]]:
    """The mirrors that have attributes, each with what it mirrors, where that has none of its own."""
    mirrors = [(number, one.mirrors) for number, one in enumerate(kinds.relations) if one.mirrors != NO_MIRROR]
    return [(number, mirrored) for number, mirrored in mirrors if number in kept and mirrored not in kept]


def _copy_to_mirrored(graph: PlacedGraph, number: int, mirrored: int, attr: np.ndarray) -> None:
    """Give the edges of a relation the attributes of those that follow them the other way round, with the same keys."""
    keys = KeyNumbers().of(graph.edge_keys, len(graph.src))
    following, followed = (np.flatnonzero(graph.etype == one) for one in (number, mirrored))
    theirs = np.lexsort((keys[following], graph.src[following], graph.dst[following]))
    ours = np.lexsort((keys[followed], graph.dst[followed], graph.src[followed]))
    attr[followed[ours]] = attr[following[theirs]]
