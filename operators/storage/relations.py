"""The edges of one relation in a Storage, and the synopses of their messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from freshet.gnn.layers.base import NO_CONTEXT, Epilogue
from freshet.gnn.synopses.attend import AttentionEpilogue
from freshet.operators.aggregates.finishing import Behind, Candidates, Finish
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.graph.edge_lists import EdgeLists
from freshet.operators.graph.part_rows import PartRows, frozen
from freshet.operators.graph.read_ahead import read_relation_ahead
from freshet.operators.graph.relation import LayerRelation
from freshet.operators.graph.routing import Partials
from freshet.operators.graph.row_kernels import put
from freshet.operators.graph.sources import NO_SOURCES, SourceRows
from freshet.operators.graph.tables import with_prefix
from freshet.operators.storage.epoch_topology import EpochTopology, prefixed
from freshet.operators.storage.partial_rows import partial_columns
from freshet.operators.storage.shape import LayerShape
from freshet.operators.storage.vertices import KeptSums
from freshet.state.block_columns import Columns, relation_prefix
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet
from freshet.state.task_parts import TaskParts

Route = Callable[[np.ndarray], Partials]  # to the tails of the masters of these slots


class Routed(NamedTuple):
    """Partial synopses by the task of their master, and of each the row of the store and which relation it is of.

    Shapes: rows (n,) int32; types (n,) int32, empty for a store of one relation.
    """

    partials: Partials
    rows: np.ndarray
    types: np.ndarray


class RelationSynopses:
    """Lists and a store for the messages of a relation, in tables whose names begin with its prefix."""

    def __init__(
        self, tables: TableSet, plan: LayerRelation, ends: tuple[PartRows, PartRows], shape: LayerShape, z: Table | None
    ) -> None:
        """`ends`: rows of sources and of targets.

        `z` has what sources send, where another relation keeps that table.
        """
        self.plan, self.prefix = plan, relation_prefix(plan.number)
        self._columns = plan.source_columns, plan.target_columns
        self._has_targets, self._counts = bool(plan.target_width), plan.reads_in_edges
        self._has_changed = False  # edges, in this epoch
        self._shares = z is not None
        mine = with_prefix(tables, self.prefix)
        self.lists = EdgeLists(mine, *ends, plan, is_keyed=shape.is_keyed)
        self.store = aggregate_of(plan.synopsis).store(mine, self.lists, plan, str(shape), z)

    def merge(
        self, epoch: int, topology: EpochTopology, sources: SourceRows, targets: SourceRows, own: Table | None = None
    ) -> np.ndarray | None:
        """Apply an epoch; the targets whose synopses it changed, or None where it has no work here.

        Self inputs among the rows of sources go to `own`.
        """
        is_changed = self._merge(epoch, topology.of(self.prefix), sources, targets, own)
        return self.store.touched() if is_changed else None

    def merge_and_update(
        self, epoch: int, topology: EpochTopology, sources: SourceRows, own: Table | None, behind: Behind,
        candidates: Candidates,
    ) -> bool:  # fmt: skip
        """Apply an epoch like `merge`, and UPDATE rows (`SumStore.merge`); returns whether there was work."""
        return self._merge(epoch, topology.of(self.prefix), sources, NO_SOURCES, own, behind, candidates)

    def _merge(
        self, epoch: int, edges: Block, sources: SourceRows, targets: SourceRows, own: Table | None = None, *update: Any
    ) -> bool:
        """Apply an epoch; returns whether there was work: an empty call takes as long as one event.

        `update`: what a store of sums updates behind.
        """
        self._has_changed = bool(edges.columns)
        if not self._has_targets:
            targets = NO_SOURCES
        if not self._has_changed and not sources.slots.size and not targets.slots.size:
            return False
        read_relation_ahead(self.lists, self.store.z, edges, sources.slots)
        of_sources, of_targets = self._columns
        sent = sources if own is not None else _columns_of(sources, of_sources)
        merge: Callable[..., None] = self.store.merge
        merge(epoch, edges, sent, own, _columns_of(targets, of_targets), *update)
        return True

    def read(self, slots: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return synopses of vertices, (n, synopsis_width) float32, and their in-edges (see KeptSynopses)."""
        return self.store.read(slots), self.store.in_edges(slots) if self._counts else NO_CONTEXT

    def finisher(self, epilogue: Epilogue | AttentionEpilogue, own: Table | None, count: Table) -> Finish:
        """Return a function that UPDATEs and stores rows in one pass; without `own` self inputs are what is sent."""
        return self.store.finisher(epilogue, self.store.z if own is None else own, count)

    def read_means(self, slots: np.ndarray, out: np.ndarray, first: int, *, mean: bool) -> None:
        """Write sums, or means, to columns; of a relation whose messages are summed up (KindPlan.sums)."""
        cast(KeptSums, self.store).read_means(slots, out, first, mean=mean)

    def load(self, topology: EpochTopology, sources: SourceRows, targets: SourceRows, rows_at_once: int) -> np.ndarray:
        """Apply epoch 0, whose rows have no more columns than messages read; the targets that it touched, in order.

        If possible this is done in passes that each change about `rows_at_once` rows. Stores begin with a table of
        zeros, also where another relation has put the rows of sources into it.
        """
        self._load(topology.of(self.prefix), sources, targets, rows_at_once)
        return np.sort(self.store.touched())

    def _load(self, edges: Block, sources: SourceRows, targets: SourceRows, rows_at_once: int) -> None:
        for first in range(0, sources.slots.size if self._shares else 0, rows_at_once):
            some = sources.slots[first : first + rows_at_once]
            put(self.store.z.view, some, frozen(np.zeros((some.size, self.plan.message_width), np.float32)), 0)
        self.store.load(edges, sources, None, rows_at_once, targets)

    def routed(self, touched: np.ndarray, splits: np.ndarray, route: Route) -> Routed:
        """Return where partial synopses of split vertices go: of those touched, and of all of `splits`."""
        more = splits[~np.isin(splits, touched)] if splits.size else splits
        partials = route(np.concatenate([touched, more]) if more.size else touched)
        return Routed(partials, partials.rows, partials.rows[:0])

    def partials(self, routed: Routed, task: int, tasks: TaskParts, at_once: int = 0) -> Iterator[Columns]:
        """Yield the partial synopses for a task, `at_once` at a time; without such a number all, if there are any."""
        first, last = routed.partials.ends[task : task + 2].tolist()
        size = at_once or max(1, last - first)
        for at in range(first, last, size):
            chosen = slice(at, min(at + size, last))
            columns = partial_columns(routed.partials, self.store, chosen, routed.rows[chosen], task, tasks)
            if routed.types.size:
                columns["p_type"] = routed.types[chosen]
            yield prefixed(self.prefix, columns)

    def after_restore(self) -> None:
        """Have the rows of its own tables where the restored ones have them."""

    def clear(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Clear the rows of dropped vertices of both ends at the end of an epoch."""
        if sources.size or targets.size:
            self.store.clear(sources, targets)
        if self._has_changed:
            self.lists.tidy()


def _columns_of(sent: SourceRows, columns: slice) -> SourceRows:
    """Return the same with rows that begin with these columns; kernels read no more than they need."""
    if columns.start == 0 or not sent.slots.size:
        return sent
    return SourceRows(sent.slots, sent.places, frozen(np.ascontiguousarray(sent.rows[:, columns])), [])
