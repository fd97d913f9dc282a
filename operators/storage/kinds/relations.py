"""The edges of one relation in a Storage, and the synopses of their messages."""

from __future__ import annotations

import numpy as np

from freshet.gnn.kind_layers.plans import RelationPlan
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.graph.edge_lists import EdgeLists
from freshet.operators.graph.part_rows import PartRows, frozen
from freshet.operators.graph.sources import NO_SOURCES, SourceRows
from freshet.operators.storage.kinds.tables import PrefixedTables
from freshet.state.block_columns import relation_prefix
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet


class RelationSynopses:
    """Lists and a store for the messages of a relation, in tables whose names begin with its prefix."""

    def __init__(
        self, tables: TableSet, plan: RelationPlan, sources: PartRows, targets: PartRows, place: str, z: Table | None
    ) -> None:
        """`place` says in errors where this is; `z` has what sources send, where another relation keeps that table."""
        self.plan, self.prefix = plan, relation_prefix(plan.number)
        self._has_changed = False  # edges, in this epoch
        mine = PrefixedTables(tables, self.prefix)
        self.lists = EdgeLists(mine, sources, targets, plan)
        self.store = aggregate_of(plan.synopsis).store(mine, self.lists, plan, place, z)

    def merge(self, epoch: int, edges: Block, sources: SourceRows, targets: SourceRows) -> np.ndarray | None:
        """Apply an epoch; the targets whose synopses it changed, or None where it has no work here.

        An empty call takes as long as one event.
        """
        plan, self._has_changed = self.plan, bool(edges.columns)
        if not plan.target_width:
            targets = NO_SOURCES
        if not edges.columns and not sources.slots.size and not targets.slots.size:
            return None
        sent, read = _columns_of(sources, plan.source_columns), _columns_of(targets, plan.target_columns)
        self.store.merge(epoch, edges, sent, None, read)
        return self.store.touched()

    def states(self, slots: np.ndarray) -> np.ndarray:
        """Return synopses of vertices, (n, synopsis_width) float32."""
        return self.store.read(slots)

    def in_edges(self, slots: np.ndarray) -> np.ndarray:
        """Return the numbers of in-edges that these are made of, (n,) int32."""
        return self.store.in_edges(slots)

    def clear(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Clear the rows of dropped vertices of both ends at the end of an epoch."""
        if sources.size or targets.size:
            self.store.clear(sources, targets)
        if self._has_changed:
            self.lists.tidy()


def _columns_of(sent: SourceRows, columns: slice) -> SourceRows:
    """Return the same with rows that begin with these columns; kernels read no more than they need."""
    if not sent.slots.size:
        return NO_SOURCES
    rows = sent.rows if columns.start == 0 else frozen(np.ascontiguousarray(sent.rows[:, columns]))
    return SourceRows(sent.slots, sent.places, rows, [])
