"""The synopses of many relations from one kind to another: of (vertex, relation) pairs, folded when they are read.

A store has them as if pairs were vertices (graph/pair_rows.py), so that rows are as many as pairs with in-edges, and an
epoch calls one store and not one for each relation.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import numpy as np
from typing_extensions import override

from freshet.gnn.kind_layers.plans import RelationPlan
from freshet.gnn.kind_layers.typed_sums import TypedSums
from freshet.operators.graph.pair_rows import PairRows, Pairs, of_relations
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.relation import LayerRelation
from freshet.operators.graph.sources import SourceRows
from freshet.operators.graph.tables import with_prefix
from freshet.operators.storage.epoch_topology import NO_RECORDS, EpochTopology
from freshet.operators.storage.partial_rows import PartialRows
from freshet.operators.storage.relations import RelationSynopses, Route, Routed
from freshet.operators.storage.shape import LayerShape
from freshet.state.block_columns import DELETED_EDGES, relation_prefix
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet

_NO_ROWS = np.empty(0, np.int32)
_PAIR = "pair."  # what the names of tables of pairs begin with, behind the relation's prefix


def synopses_of(
    tables: TableSet, plan: LayerRelation, ends: tuple[PartRows, PartRows], shape: LayerShape, z: Table | None
) -> RelationSynopses:
    """Return the synopses of a relation, or those of many."""
    if plan.has_pairs:
        return PairSynopses(tables, cast(RelationPlan, plan), ends, shape, z)
    return RelationSynopses(tables, plan, ends, shape, z)


class PairSynopses(RelationSynopses):
    """Lists and a store for the messages of many relations, in tables with the prefix of the first one."""

    def __init__(
        self, tables: TableSet, plan: RelationPlan, ends: tuple[PartRows, PartRows], shape: LayerShape, z: Table | None
    ) -> None:
        mine = with_prefix(tables, relation_prefix(plan.number) + _PAIR)
        self.pairs = PairRows(mine, ends[1], len(plan.numbers))
        super().__init__(tables, plan, (ends[0], self.pairs), shape, z)
        self._typed = plan
        self._number_of = {relation_prefix(number): k for k, number in enumerate(plan.numbers)}
        self._changed = self._left = _NO_ROWS  # pairs whose synopses an epoch changed, and those that edges left

    @override
    def merge(
        self, epoch: int, topology: EpochTopology, sources: SourceRows, targets: SourceRows, own: Table | None = None
    ) -> np.ndarray | None:
        self._changed = self._left = _NO_ROWS
        edges = self._edges_of(topology)
        if not self._merge(epoch, edges, sources, targets, own):
            return None
        self._changed, self._left = self.store.touched(), self.pairs.of(edges, DELETED_EDGES.name, "dst")
        return np.unique(self.pairs.ends(self._changed)[0])

    def _edges_of(self, topology: EpochTopology) -> Block:
        """Return the edges of all relations, whose targets are pairs; those that edges are added to have rows then."""
        of = self._number_of
        sections = sorted((of[name], block) for name, block in topology.sections.items() if name in of)
        edges = of_relations(sections) if sections else NO_RECORDS
        self.pairs.make_for(edges)
        return edges

    @override
    def load(self, topology: EpochTopology, sources: SourceRows, targets: SourceRows, rows_at_once: int) -> np.ndarray:
        self._load(self._edges_of(topology), sources, targets, rows_at_once)
        self._changed = self.store.touched()
        return np.unique(self.pairs.ends(self._changed)[0])

    @override
    def read(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = self.pairs.pairs_of(slots)
        return _folded(self._typed, slots.size, pairs, self.store.read(pairs.rows), self.store.in_edges(pairs.rows))

    @override
    def routed(self, touched: np.ndarray, splits: np.ndarray, route: Route) -> Routed:
        rows = np.concatenate([self._changed, self.pairs.pairs_of(splits).rows])
        rows = np.unique(rows[np.isin(self.pairs.ends(rows)[0], np.concatenate([touched, splits]))])
        masters, relations = self.pairs.ends(rows)
        order = np.lexsort((relations, masters))
        partials = route(masters[order])
        # all pairs of a vertex go to the same task, in this order
        ends = pairwise(partials.ends.tolist())
        there = [np.flatnonzero(np.isin(masters[order], partials.rows[first:last])) for first, last in ends]
        order = order[np.concatenate(there)]
        return Routed(partials, rows[order], relations[order])

    @override
    def after_restore(self) -> None:
        self.pairs.restore()

    @override
    def clear(self, sources: np.ndarray, targets: np.ndarray) -> None:
        left = np.unique(self._left)
        empty = left[self.store.in_edges(left) == 0]
        super().clear(sources, empty)
        self.pairs.free(empty)


class PairPartials:
    """The partial synopses of the pairs of split vertices in a tail."""

    def __init__(self, tables: TableSet, at: PartRows, plan: RelationPlan) -> None:
        self._plan, self._at, self.prefix = plan, at, relation_prefix(plan.number)
        self._pairs = PairRows(with_prefix(tables, self.prefix + _PAIR), at, len(plan.numbers))
        self._rows = PartialRows(with_prefix(tables, self.prefix), self._pairs, plan, counted=True)

    def keep(self, block: Block, flags: np.ndarray, owned: int) -> np.ndarray:
        """Keep the partials of a block; returns the split masters that they are of, whose flags are `owned`."""
        slots = self._at.of(block, "p")
        kept = np.flatnonzero(flags[slots] == owned)
        masters, relations, counts = slots[kept], block.get("p_type")[kept], block.get("p_count")[kept]
        self._pairs.make(masters[counts > 0], relations[counts > 0])
        rows = self._pairs.find(masters, relations)
        there = rows >= 0
        if there.any():
            self._rows.put(rows[there], kept[there], block)
            self._pairs.free(self._rows.without_any(rows[there & (counts == 0)]))
        return np.unique(masters)

    def read(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what is read of pairs in all parts together."""
        pairs = self._pairs.pairs_of(slots)
        return _folded(self._plan, slots.size, pairs, self._rows.merged(pairs.rows), self._rows.in_edges(pairs.rows))

    def drop(self, slots: np.ndarray) -> None:
        """Keep nothing of these vertices, which are not split any more."""
        rows = self._pairs.pairs_of(slots).rows
        self._rows.drop(rows)
        self._pairs.free(rows)

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        self._pairs.restore()
        self._rows.reserve(0)


def _folded(
    plan: RelationPlan, vertices: int, pairs: Pairs, states: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of what convs make of the pairs of each vertex, and the numbers of its in-edges."""
    assert isinstance(plan.conv, TypedSums)  # by `synopses_of`
    total = np.bincount(pairs.places, counts, minlength=vertices).astype(np.int32)
    return plan.conv.folded(vertices, pairs.places, pairs.relations, states, counts), total
