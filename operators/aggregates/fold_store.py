"""Synopses that look at each message: all but sums that are all that a layer keeps.

A *fold* keeps one synopsis: it takes messages back, gets new ones, and settles at the end of an epoch. The edges, the
source values and what happens to them in an epoch are common to all folds (graph/edge_messages.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from freshet.gnn.plan import Epilogue
from freshet.gnn.synopses.attend import AttentionEpilogue
from freshet.kernels.kernel_calls import Direct
from freshet.operators.aggregates.finishing import Finish
from freshet.operators.aggregates.fold import AttributeFold, Fold, TargetFold
from freshet.operators.graph import edge_messages
from freshet.operators.graph.edge_changes import EdgeChanges, SomeEdges
from freshet.operators.graph.edge_lists import EdgeLists, LostUpdateError
from freshet.operators.graph.edge_messages import MISSING_INDEX, OK, Edges, Messages, Moves, Turns, room_for
from freshet.operators.graph.part_rows import frozen
from freshet.operators.graph.relation import RelationMessages
from freshet.operators.graph.row_kernels import put
from freshet.operators.graph.sources import NO_SOURCES, SourceRows
from freshet.operators.telemetry.sum_report import SumReport
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet

_KEPT_MOST = 1 << 16  # messages for which there is room from one epoch to the next: 1.1 MiB
MakeFold = Callable[[TableSet, str, int, Any], Fold]  # of the names of tables, the width of messages and a synopsis


class FoldStore:
    """The synopses of one relation in the parts of a task, kept by a fold, with their edges and values.

    Shapes: z (rows of sources, message_width) float32; q (rows of targets, target_width) float32, or z.
    """

    report: SumReport | None = None

    def __init__(
        self,
        make_fold: MakeFold,
        tables: TableSet,
        lists: EdgeLists,
        relation: RelationMessages,
        place: str,
        z: Table | None = None,
    ) -> None:
        """`place` says in errors where this is; `z` has what sources send, where another store keeps that table."""
        self.lists, self._relation, self._place = lists, relation, place
        self.z = tables.add("z", "f4", relation.message_width) if z is None else z
        self._count = tables.add("in_edges", "i4")
        self.fold = make_fold(tables, "", relation.message_width, relation.synopsis)
        self._target_fold = self.fold if isinstance(self.fold, TargetFold) else None
        self.q = tables.add("q", "f4", relation.target_width) if relation.target_width else self.z
        if lists.attributes is not None:
            assert isinstance(self.fold, AttributeFold)
            self.fold.read_attributes(lists.attributes)
        self._of_sources: tuple[Table, ...] = (self.z, *self.fold.source_tables)
        self._of_targets = self._count, *self.fold.tables, *(() if self.q is self.z else (self.q,))
        lists.sources.keep(*self._of_sources[0 if z is None else 1 :])
        lists.targets.keep(*self._of_targets)
        self._moved = np.zeros(0, np.int64)
        self._result = np.zeros(4, np.int64)
        self._take_out_kernel, self._list_kernel = Direct(edge_messages.take_out), Direct(edge_messages.list_kept)
        self._store_kernel, self._put_in_kernel = Direct(edge_messages.store_values), Direct(edge_messages.put_in)
        self._kept = room_for(0)  # of one epoch after the other: room for as many as any had, and half as many more
        self._touched = frozen(np.empty(0, np.int32))

    def _edges(self) -> Edges:
        lists, skip_loops = self.lists, self._relation.edge.skip_loops
        return Edges(self.z.view, self._count.view, lists.out.view, lists.inn.view, skip_loops)

    def merge(
        self, epoch: int, topology: Block, sources: SourceRows, own: Table | None, targets: SourceRows = NO_SOURCES
    ) -> None:
        """Apply an epoch's edge changes and new values; own rows go to `own`.

        Raises:
            LostUpdateError: an edge that is to change is not here.
        """
        serial = epoch + 1
        changes = self.lists.changes(topology)
        changed, added = changes.changed, changes.added
        for slots, rows in sources.selves if own is not None else ():
            put(own.view, slots, rows, self._relation.message_width)  # type: ignore[union-attr]
        edges = self._edges()
        edges, gone, moves, kept = self._take_out(edges, changes, sources, serial)
        turns = self._turns(targets) if self.q is not self.z else None
        if self._target_fold is not None:
            self._target_fold.read_targets(self.q, turns or Turns(moves.slots, moves.places, sources.rows))
        self.fold.leave(edges, gone, kept, moves, sources.rows, same_weights=not changed[0].size)
        self.lists.settle()
        self._store_kernel(self.z.view, moves.slots, moves.places, sources.rows)
        if turns is not None:
            self._store_kernel(self.q.view, *turns)
        come = room_for(changed[0].size + added[0].size)
        if edges.out.weighted and changed[0].size:
            edge_messages.set_weights(edges, changed, moves, come, self._result)
            self._check(epoch)
            self._list_kernel(edges, moves.slots, kept)
        else:
            self._result[1] = 0
        edges, come = self._put_in(edges, added, come)
        self._touched = self.fold.arrive(edges, kept, come, serial)

    def _turns(self, targets: SourceRows) -> Turns:
        """Return what changes in what messages read of targets, which have rows of their own."""
        slots, places = np.empty(targets.slots.size, np.int32), np.empty(targets.slots.size, np.int32)
        given, count = Turns(targets.slots, targets.places, targets.rows), 0
        if slots.size:
            count = edge_messages.find_turns(self.q.data, given, slots, places)
        return Turns(slots[:count], places[:count], targets.rows)

    def load(
        self, topology: Block, sources: SourceRows, own: Table | None, rows_at_once: int,
        targets: SourceRows = NO_SOURCES,
    ) -> None:  # fmt: skip
        """Epoch 0 as `merge` has it; in one pass, whatever `rows_at_once`."""
        self.merge(0, topology, sources, own, targets)

    def _take_out(
        self, edges: Edges, changes: EdgeChanges, sources: SourceRows, serial: int
    ) -> tuple[Edges, Messages, Moves, Messages]:
        """Forget deleted edges; returns all edges, removed messages, changed sources, and their kept messages."""
        if self._moved.size < len(self.z.data):
            self._moved = np.zeros(len(self.z.data), np.int64)
        size = sources.slots.size
        moves = Moves(np.empty(size, np.int32), np.empty(size, np.int32), self._moved, serial)
        deleted, changed, _ = changes
        values = sources.slots, sources.places, sources.rows
        gone = room_for(deleted[0].size + changed[0].size)
        self._take_out_kernel(edges, deleted, changed, values, moves, gone, self._kept, self._result)
        if self._result[0] == MISSING_INDEX:
            self.lists.make_index(deleted, changed)
            edges = self._edges()
            self._take_out_kernel(edges, deleted, changed, values, moves, gone, self._kept, self._result)
        self._check(serial - 1)
        _, left, moved, leaving = self._result.tolist()
        moves = Moves(moves.slots[:moved], moves.places[:moved], self._moved, serial)
        kept = self._kept
        if leaving > kept.src.size:
            kept = room_for(leaving + leaving // 2)
            self._list_kernel(edges, moves.slots, kept)
            self._kept = kept if leaving <= _KEPT_MOST else self._kept
        return edges, gone.first(left), moves, kept.first(leaving)

    def _put_in(self, edges: Edges, added: SomeEdges, come: Messages) -> tuple[Edges, Messages]:
        """Add edges; all edges then, and what has come by these, and before."""
        at = 0
        while at < added[0].size:
            self._put_in_kernel(edges, added, at, come, self._result)
            at = int(self._result[2])
            if at < added[0].size:  # a pool is full
                self.lists.grow()
                edges = self._edges()
        return edges, come.first(int(self._result[1]))

    def _check(self, epoch: int) -> None:
        if self._result[0] != OK:
            msg = f"{self._place}: epoch {epoch} changes an edge that is not here"
            raise LostUpdateError(msg)

    def touched(self) -> np.ndarray:
        """The slots whose synopses this epoch changed."""
        return self._touched

    def read(self, slots: np.ndarray) -> np.ndarray:
        """Synopses, (n, synopsis_width) float32."""
        out = np.empty((slots.size, self._relation.synopsis_width), np.float32)
        self.fold.read(self._edges(), slots, out, 0)
        return out

    def finisher(self, epilogue: Epilogue | AttentionEpilogue, own: Table, count: Table) -> Finish:
        """Return a function that UPDATEs and stores rows in one pass."""
        return self.fold.finisher(self.z, own, epilogue)

    def in_edges(self, slots: np.ndarray) -> np.ndarray:
        """Return the number of in-edges of these vertices that carry messages in this part, (n,) int32."""
        return self._count.data[slots]

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its tables, those with a row per source first."""
        return *self._of_sources, *self._of_targets

    def clear(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """These slots hold nothing any more."""
        for table in self._of_sources:
            table.clear_rows(sources)
        for table in self._of_targets:
            table.clear_rows(targets)
