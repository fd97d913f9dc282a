"""Synopses that look at each message: extrema, and several synopses of the same messages beside each other.

A *fold* keeps one synopsis: it takes messages back, gets new ones, and settles at the end of an epoch. The edges, the
source values and what happens to them in an epoch are common to all folds of a layer (edge_messages.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshet.gnn.plan import Epilogue, LayerPlan
from freshet.gnn.synopses.attend import AttentionEpilogue
from freshet.gnn.synopses.edge_network import NetworkSynopsis
from freshet.gnn.synopses.of_messages import (
    GatedSynopsis,
    InvertibleSynopsis,
    MomentsSynopsis,
    MonotonicSynopsis,
    ProductSynopsis,
    Synopsis,
)
from freshet.gnn.synopses.softmax import SoftmaxSynopsis
from freshet.kernels.kernel_calls import Direct
from freshet.operators.aggregates.attention.fold import AttentionFold
from freshet.operators.aggregates.attention.reading import merge_partial_attention
from freshet.operators.aggregates.edge_networks.fold import NetworkFold
from freshet.operators.aggregates.extrema.fold import ExtremaFold, sign_of
from freshet.operators.aggregates.extrema.kernels import merge_partial_extrema
from freshet.operators.aggregates.finishing import Finish
from freshet.operators.aggregates.fold import Fold, MessageFold
from freshet.operators.aggregates.gates.fold import GatedFold
from freshet.operators.aggregates.moments.fold import MomentsFold, merge_partial_moments
from freshet.operators.aggregates.sums.fold import SumFold, merge_partial_sums
from freshet.operators.aggregates.sums.store import LostUpdateError
from freshet.operators.graph import edge_messages
from freshet.operators.graph.edge_messages import MISSING_INDEX, OK, Edges, Messages, Moves, room_for
from freshet.operators.graph.part_rows import frozen
from freshet.operators.graph.row_kernels import put
from freshet.operators.graph.sources import Sources
from freshet.operators.graph.topology import Topology
from freshet.operators.telemetry.sum_report import SumReport
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet

_KEPT_MOST = 1 << 16  # messages for which there is room from one epoch to the next: 1.1 MiB
Merge = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int, int], None]


def factors_of(synopsis: Synopsis) -> tuple[Synopsis, ...]:
    """The synopses that stand beside each other."""
    return synopsis.factors if isinstance(synopsis, ProductSynopsis) else (synopsis,)


def _make_fold(tables: TableSet, name: str, width: int, synopsis: Synopsis) -> Fold:
    if isinstance(synopsis, SoftmaxSynopsis):
        return AttentionFold(tables, name, synopsis)
    if isinstance(synopsis, GatedSynopsis):
        return GatedFold(tables, name, synopsis)
    if isinstance(synopsis, NetworkSynopsis):
        width, inside = synopsis.network.width, factors_of(synopsis.inner)
        folds = [_message_fold(tables, named, width, one) for named, one in _named(inside)]
        return NetworkFold(synopsis, folds, [one.width(width) for one in inside])
    return _message_fold(tables, name, width, synopsis)


def _message_fold(tables: TableSet, name: str, width: int, synopsis: Synopsis) -> MessageFold:
    if isinstance(synopsis, MonotonicSynopsis):
        return ExtremaFold(tables, name, width, synopsis)
    if isinstance(synopsis, MomentsSynopsis):
        return MomentsFold(tables, name, width)
    assert isinstance(synopsis, InvertibleSynopsis)  # operators/aggregates/capability.py sends no others here
    return SumFold(tables, name, width)


def _named(factors: tuple[Synopsis, ...]) -> list[tuple[str, Synopsis]]:
    """The factors, each with what the names of its tables begin with."""
    return [("" if len(factors) == 1 else f"{i}.", factor) for i, factor in enumerate(factors)]


class FoldStore:
    """The synopses of one layer in the parts of a task, one fold beside the other, with their edges and values.

    Shapes: z (rows, message_width) float32.
    """

    report: SumReport | None = None

    def __init__(self, tables: TableSet, topology: Topology, layer: LayerPlan, place: str) -> None:
        """`place` says in errors where this is."""
        self.topology, self._rows, self._layer, self._place = topology, topology.at, layer, place
        self.z = tables.add("z", "f4", layer.message_width)
        self._count = tables.add("in_edges", "i4")
        factors = factors_of(layer.synopsis)
        self._widths = [factor.width(layer.message_width) for factor in factors]
        self.folds = [_make_fold(tables, name, layer.message_width, factor) for name, factor in _named(factors)]
        self._by_row = self.z, self._count, *(table for fold in self.folds for table in fold.tables)
        self._rows.keep(*self._by_row)
        self._moved = np.zeros(0, np.int64)
        self._result = np.zeros(4, np.int64)
        self._take_out_kernel, self._list_kernel = Direct(edge_messages.take_out), Direct(edge_messages.list_kept)
        self._store_kernel, self._put_in_kernel = Direct(edge_messages.store_values), Direct(edge_messages.put_in)
        self._kept = room_for(0)  # of one epoch after the other: room for as many as any had, and half as many more
        self._touched = frozen(np.empty(0, np.int32))

    def _edges(self) -> Edges:
        return Edges(
            self.z.view, self._count.view, self.topology.out.view, self.topology.inn.view, self._layer.skip_loops
        )

    def merge(self, epoch: int, topology: Block, sources: Sources, own: Table | None) -> None:
        """Apply an epoch's edge changes and new source values; own rows go to `own`.

        Raises:
            LostUpdateError: an edge that is to change is not here.
        """
        serial = epoch + 1
        get, rows_of = topology.get, self._rows.of
        reweighted = rows_of(topology, "rew", "src"), rows_of(topology, "rew", "dst"), get("rew_old"), get("rew_new")
        for slots, rows in sources.selves if own is not None else ():
            put(own.view, slots, rows, self._layer.message_width)  # type: ignore[union-attr]
        edges = self._edges()
        edges, gone, moves, kept = self._take_out(edges, topology, reweighted, sources, serial)
        for fold in self.folds:
            fold.leave(edges, gone, kept, moves, sources.rows, same_weights=not reweighted[0].size)
        self._store_kernel(self.z.view, moves.slots, moves.places, sources.rows)
        come = room_for(reweighted[0].size + get("add_w").size)
        if self._layer.weighted and reweighted[0].size:
            edge_messages.set_weights(edges, reweighted, moves, come, self._result)
            self._check(epoch)
            self._list_kernel(edges, moves.slots, kept)
        else:
            self._result[1] = 0
        edges, come = self._put_in(edges, topology, come)
        touched = [fold.arrive(edges, kept, come, serial) for fold in self.folds]
        self._touched = touched[0] if len(touched) == 1 else np.unique(np.concatenate(touched))

    def load(self, topology: Block, sources: Sources, own: Table | None, rows_at_once: int) -> None:
        """Epoch 0 as `merge` has it; in one pass, whatever `rows_at_once`."""
        self.merge(0, topology, sources, own)

    def _take_out(
        self, edges: Edges, topology: Block, reweighted: tuple[np.ndarray, ...], sources: Sources, serial: int
    ) -> tuple[Edges, Messages, Moves, Messages]:
        """Forget deleted edges; all edges then, what is gone, the sources that send other values, what those keep."""
        if self._moved.size < len(self.z.data):
            self._moved = np.zeros(len(self.z.data), np.int64)
        size = sources.slots.size
        moves = Moves(np.empty(size, np.int32), np.empty(size, np.int32), self._moved, serial)
        rows_of, weights = self._rows.of, topology.get("del_w")
        deleted = rows_of(topology, "del", "src"), rows_of(topology, "del", "dst"), weights
        values = sources.slots, sources.places, sources.rows
        gone = room_for(weights.size + reweighted[0].size)
        self._take_out_kernel(edges, deleted, reweighted, values, moves, gone, self._kept, self._result)
        if self._result[0] == MISSING_INDEX:
            self.topology.make_index(deleted, reweighted)
            edges = self._edges()
            self._take_out_kernel(edges, deleted, reweighted, values, moves, gone, self._kept, self._result)
        self._check(serial - 1)
        _, left, moved, leaving = self._result.tolist()
        moves = Moves(moves.slots[:moved], moves.places[:moved], self._moved, serial)
        kept = self._kept
        if leaving > kept.src.size:
            kept = room_for(leaving + leaving // 2)
            self._list_kernel(edges, moves.slots, kept)
            self._kept = kept if leaving <= _KEPT_MOST else self._kept
        return edges, gone.first(left), moves, kept.first(leaving)

    def _put_in(self, edges: Edges, topology: Block, come: Messages) -> tuple[Edges, Messages]:
        """Add edges; all edges then, and what has come by these, and before."""
        rows_of = self._rows.of
        added = rows_of(topology, "add", "src"), rows_of(topology, "add", "dst"), topology.get("add_w")
        at = 0
        while at < added[0].size:
            self._put_in_kernel(edges, added, at, come, self._result)
            at = int(self._result[2])
            if at < added[0].size:  # a pool is full
                self.topology.grow()
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
        out, first, edges = np.empty((slots.size, sum(self._widths)), np.float32), 0, self._edges()
        for fold, width in zip(self.folds, self._widths, strict=True):
            fold.read(edges, slots, out, first)
            first += width
        return out

    def finisher(self, epilogue: Epilogue | AttentionEpilogue, own: Table, count: Table) -> Finish:
        """What UPDATEs and stores rows in one pass."""
        (fold,) = self.folds
        assert isinstance(fold, AttentionFold) and isinstance(epilogue, AttentionEpilogue)
        return fold.finisher(self.z, own, epilogue)

    def in_edges(self, slots: np.ndarray) -> np.ndarray:
        """How many in-edges of these vertices carry messages in this part, (n,) int32."""
        return self._count.data[slots]

    def clear(self, slots: np.ndarray) -> None:
        """These slots hold nothing any more."""
        for table in self._by_row:
            table.clear_rows(slots)


def merger_of(synopsis: Synopsis) -> Merge:
    """How a tail makes one synopsis of the partials of several parts."""
    if isinstance(synopsis, NetworkSynopsis):
        return merger_of(synopsis.inner)
    if isinstance(synopsis, SoftmaxSynopsis):
        heads = synopsis.score.heads
        return lambda index, partial, slots, out, slot, row: merge_partial_attention(
            index, partial, slots, out, (slot, row), heads
        )
    product = synopsis if isinstance(synopsis, ProductSynopsis) else None

    def merge(index: np.ndarray, partial: np.ndarray, slots: np.ndarray, out: np.ndarray, slot: int, row: int) -> None:
        width = out.shape[1]
        places = [(0, width)] if product is None else product.places(width)
        for factor, columns in zip(factors_of(synopsis), places, strict=True):
            if isinstance(factor, MomentsSynopsis):
                merge_partial_moments(index, partial, slots, out, (slot, row), columns)
            elif isinstance(factor, MonotonicSynopsis):
                merge_partial_extrema(index, partial, slots, out, (slot, row), columns, sign_of(factor))
            else:
                merge_partial_sums(index, partial, slots, out, (slot, row), columns)

    return merge
