"""Synopses that are sums: messages are added and taken back (sum and mean; InvertibleSynopsis)."""

from __future__ import annotations

from functools import partial
from operator import is_

import numpy as np

from freshet.gnn.plan import Epilogue
from freshet.gnn.synopses.attend import AttentionEpilogue
from freshet.kernels.kernel_calls import Direct
from freshet.operators.aggregates.exact_sums import IN_EDGES, read_means, read_sums, stamp_of
from freshet.operators.aggregates.finishing import Behind, Candidates, Finish
from freshet.operators.aggregates.sums import kernels as sum_kernels
from freshet.operators.aggregates.sums import synopses
from freshet.operators.aggregates.sums.updates import NO_CANDIDATES, finish, no_update
from freshet.operators.graph.edge_changes import SomeEdges
from freshet.operators.graph.edge_lists import EdgeLists, LostUpdateError
from freshet.operators.graph.part_rows import frozen
from freshet.operators.graph.relation import RelationMessages
from freshet.operators.graph.row_kernels import put
from freshet.operators.graph.sources import NO_SOURCES, SourceRows
from freshet.operators.telemetry.sum_report import SumReport
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet

_NO_SLOTS = np.empty(0, np.int32)
_NO_SELVES = frozen(np.empty(0, np.int32)), frozen(np.empty((0, 1), np.float32))


class SumStore:
    """The sums of one relation in one part, with the source values that they are made of.

    Shapes: z (rows of sources, message_width) float32; s (rows of targets, message_width) float64.
    Invariant: s[v] is the sum of weight * z[u] over the in-edges (u, v) of this part (tests/property holds it).
    """

    def __init__(
        self, tables: TableSet, lists: EdgeLists, relation: RelationMessages, place: str, z: Table | None = None
    ) -> None:
        """`place` says in errors where this is; `z` has what sources send, where another store keeps that table."""
        self.lists, self._relation, self._place = lists, relation, place
        self.z = tables.add("z", "f4", relation.message_width) if z is None else z
        self.s = tables.add("s", "f8", relation.message_width)
        self.note = tables.add("note", "i4", 4)
        lists.sources.keep(*(() if z is not None else (self.z,)))
        lists.targets.keep(self.s, self.note)
        self._counter = np.zeros(1, np.int64)
        self._result, self._alone = np.zeros(3, np.int64), no_update()
        self._scratch = synopses.make_scratch(relation.message_width, relation.edge.weighted)
        self._merge_epoch, self._finish = Direct(sum_kernels.merge_epoch), Direct(finish)
        self._touched = self._again = _NO_SLOTS
        self._view: synopses.Synopses | None = None
        self.recomputed = 0
        self._scrubbed = np.zeros(3, np.float64)  # see synopses.scrub

    def _views(self) -> synopses.Synopses:
        of = self.z.view, self.s.view, self.note.view, self.lists.out.view, self.lists.inn.view
        if self._view is not None and all(map(is_, of, self._view)):  # none of them is stale
            return self._view
        rows = len(self.s.data)
        if self._touched.size < rows:
            self._touched, self._again = np.empty(rows, np.int32), np.empty(rows, np.int32)
        self._view = synopses.Synopses(
            *of,
            self._touched,
            self._counter,
            self._scratch,
            self._relation.edge.weighted,
            self._relation.edge.skip_loops,
        )
        return self._view

    def merge(
        self, epoch: int, topology: Block, sources: SourceRows, own: Table | None, targets: SourceRows = NO_SOURCES,
        behind: Behind | None = None, candidates: Candidates = NO_CANDIDATES,
    ) -> None:  # fmt: skip
        """Apply an epoch's edge changes and new source values; own rows go to `own`, those of targets are not read.

        `behind`: UPDATE what changes, and the candidates, in the same call, if they are few.

        Raises:
            LostUpdateError: an edge that is to change is not here.
        """
        self._counter[:] = 0
        serial = stamp_of(epoch)
        # by the epoch alone, so that a replay looks at the same rows, however parts are dealt to tasks
        rows = self.lists.targets
        turn, part = divmod(epoch, rows.tasks.parts)
        deleted, changed, added = self.lists.changes(topology)
        first, *others = sources.selves or [_NO_SELVES]
        if own is not None:
            for slots, values in others:
                put(own.view, slots, values, self._relation.message_width)
        at = sum_kernels.BEGIN
        while at < added[0].size:
            if at == sum_kernels.BEGIN_INDEXED:
                self.lists.make_index(deleted, changed)
            elif at >= 0:  # a pool is full
                self.lists.grow()
            self._merge_epoch(
                self._views(),
                deleted,
                changed,
                (sources.slots, sources.places, sources.rows),
                first,
                self.z.view if own is None else own.view,
                own is not None,
                added,
                at,
                serial,
                (part - rows.first, turn),
                rows.needs,
                self._again,
                self._scrubbed,
                self._alone if behind is None else behind,
                candidates,
                self._result,
            )
            self._check(int(self._result[0]), epoch)
            at = int(self._result[1])
        self._recompute(int(self._result[2]))

    def load(
        self, topology: Block, sources: SourceRows, own: Table | None, rows_at_once: int,
        targets: SourceRows = NO_SOURCES,
    ) -> None:  # fmt: skip
        """Apply epoch 0 like `merge`, in passes over the edges: each for `rows_at_once` neighbouring rows.

        Only the sums of a pass are written at random places; sources are read in order if edges are sorted by them.
        """
        self.merge(0, Block(topology.header), sources, own)
        added = self.lists.changes(topology).added
        at = 0
        while (at := sum_kernels.link_edges(self._views(), added, at)) < added[0].size:
            self.lists.grow()
        touched = [_NO_SLOTS]
        (rows,) = self.lists.targets.needs.tolist()  # of one part
        for first in range(0, rows if added[0].size else 0, rows_at_once):
            touched.append(self._load_pass(added, first, min(rows, first + rows_at_once)))
        everything = np.concatenate(touched)
        self._counter[0] = everything.size
        views = self._views()
        self._touched[: everything.size] = everything
        self._recompute(sum_kernels.settle_epoch(views, self._again))

    def _load_pass(self, added: SomeEdges, first: int, last: int) -> np.ndarray:
        """The sums of some rows, made in memory of their own, where the tables may be in files; the touched rows."""
        size, sums, notes = last - first, Table("s", "f8", self.s.width), Table("note", "i4", 4)
        for table in (sums, notes):
            table.reserve(size)
        notes.data[:size] = self.note.data[first:last]
        self._counter[:] = 0
        views = self._views()._replace(s=sums.view, note=notes.view)
        sum_kernels.sum_edges(views, added, first, last, stamp_of(0))
        touched = self._touched[: self._counter[0]] + np.int32(first)
        for table, made in ((self.s, sums), (self.note, notes)):
            table.touch_rows(touched)
            table.data[first:last] = made.data[:size]
        return touched

    def _check(self, status: int, epoch: int) -> None:
        if status != sum_kernels.OK:
            msg = f"{self._place}: epoch {epoch} changes an edge that is not here"
            raise LostUpdateError(msg)

    def _recompute(self, count: int) -> None:
        """Sum the rows again that are worn or not finite."""
        if count:
            synopses.recompute(self._views(), self._again[:count])
            self.recomputed += count

    def touched(self) -> np.ndarray:
        """The slots whose sums this epoch changed, in order."""
        return self._touched[: self._counter[0]].copy()

    def read(self, slots: np.ndarray) -> np.ndarray:
        """Sums, (n, message_width) float32."""
        out = np.empty((slots.size, self.s.data.shape[1]), np.float32)
        read_sums(self.s.data, slots, out, 0)
        return out

    def read_means(self, slots: np.ndarray, out: np.ndarray, first: int, *, mean: bool) -> None:
        """Write sums, or means, to the columns of `out` from `first` on; out (n, wider) float32."""
        read_means(self.s.data, self.note.data, slots, mean, out, first)

    def finisher(self, epilogue: Epilogue | AttentionEpilogue, own: Table, count: Table) -> Finish:
        """Return a function that UPDATEs and stores rows in one pass."""
        assert isinstance(epilogue, Epilogue)
        return partial(self._finish, self.s.data, own.data, count.data, *epilogue)

    def in_edges(self, slots: np.ndarray) -> np.ndarray:
        """Return the number of in-edges of these vertices that carry messages in this part, (n,) int32."""
        return self.note.data[slots, IN_EDGES]

    def clear(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """These slots hold nothing any more."""
        sum_kernels.clear_rows(self.z.view, self.s.view, self.note.view, sources, targets)

    @property
    def report(self) -> SumReport:
        """Report on the sums of this part."""
        scrubbed, differed, largest = self._scrubbed.tolist()
        return SumReport(
            recomputed=self.recomputed, scrubbed=int(scrubbed), differed=int(differed), largest_difference=largest
        )
