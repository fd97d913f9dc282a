"""Maxima and minima (MonotonicSynopsis); the kernels: kernels.py."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.synopses.of_messages import MonotonicSynopsis
from freshet.kernels.kernel import kernel
from freshet.kernels.kernel_calls import Direct
from freshet.operators.aggregates.accumulator import Accumulator, RowAccumulator, ask_ahead
from freshet.operators.aggregates.aggregate import Aggregate, MergePartials
from freshet.operators.aggregates.extrema import kernels
from freshet.operators.aggregates.extrema.kernels import merge_partial_extrema, read_extrema
from freshet.operators.aggregates.extrema.remaking import finish_extrema, list_exposed, remake_extrema
from freshet.operators.aggregates.extrema.rereading import plan_for, settle
from freshet.operators.aggregates.fold import MessageFold
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.graph.edge_messages import Edges, Messages, Moves
from freshet.state.table import TableSet


def sign_of(synopsis: MonotonicSynopsis) -> np.float32:
    """Return the factor of messages that makes the extremum a maximum."""
    return np.float32(1 if synopsis.kind == "max" else -1)


class ExtremaFold(MessageFold):
    """The extrema of one layer. Shapes: s (rows, width) float32; holders (rows, width) uint16."""

    exchanges = True

    def __init__(self, tables: TableSet, name: str, width: int, synopsis: MonotonicSynopsis) -> None:
        self.s = tables.add(f"{name}s", "f4", width, fill=float("-inf"))
        self.holders = tables.add(f"{name}holders", "u2", width)
        super().__init__(self.s, self.holders)
        self.counts = np.zeros(6, np.int64)
        self._sign = sign_of(synopsis)
        self._counter = np.zeros(1, np.int64)
        self._plan = plan_for(width)
        self._take_back, self._exchange = Direct(kernels.take_back), Direct(kernels.exchange)
        self._bring, self._settle = Direct(kernels.bring), Direct(settle)
        self._stamp = np.zeros(0, np.int64)
        self._altered, self._touched = np.zeros(0, np.uint8), np.zeros(0, np.int32)

    def _view(self) -> kernels.Extrema:
        by_row = self._stamp, self._altered, self._touched
        return kernels.Extrema(self.s.view, self.holders.view, *by_row, self._counter, self.counts, self._sign)

    def begin(self, edges: Edges, moves: Moves, values: np.ndarray) -> None:
        """Begin an epoch."""
        self._counter[0] = 0
        rows = len(edges.in_edges.data)
        if self._stamp.size < rows:
            self._stamp, self._altered = np.zeros(rows, np.int64), np.zeros(rows, np.uint8)
            self._touched = np.zeros(rows, np.int32)

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Count off what these messages hold."""
        self._take_back(self._view(), edges, messages, serial)

    def exchange(self, edges: Edges, gone: Messages, kept: Messages, moves: Moves, rows: np.ndarray) -> None:
        """Remove deleted messages, and replace kept ones by those of their sources' new values."""
        self._exchange(self._view(), edges, gone, kept, moves, rows, moves.serial)

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Merge new messages."""
        self._bring(self._view(), edges, messages, serial)

    def settle(self, edges: Edges, serial: int) -> np.ndarray:
        """Reread exposed channels; returns the rows that have other bits than before."""
        return self._touched[: self._settle(self._view(), self._plan, edges)].copy()

    def worn(self, edges: Edges) -> np.ndarray:
        """The touched rows with exposed channels."""
        found = np.empty(self._counter[0], np.int32)
        return found[: list_exposed(self._view(), edges, found)]

    def remake(self, edges: Edges, rows: np.ndarray, serial: int) -> None:
        """Recompute these rows from all their messages."""
        remake_extrema(self._view(), edges, rows, serial, self._plan.best, self._plan.found)

    def finish(self, edges: Edges, serial: int) -> np.ndarray:
        """End the epoch without reading; the rows that have other bits than before."""
        return self._touched[: finish_extrema(self._view(), edges)].copy()

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write extrema to `out`, 0 where there are no messages."""
        kernels.read_extrema(self.s.data, self._sign, edges.in_edges.data, slots, out, first)


@kernel
def merge_extrema(s: np.ndarray, z: np.ndarray, messages: Messages, sign: float) -> None:
    """Keep the largest of `sign` times the messages, channel by channel; NaN passes everything.

    Shapes: s (rows, width) float32, -inf where there was none; z (values, width) float32.
    """
    for i in range(len(messages.src)):
        ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        factor = sign * messages.weight[i]
        for j in range(s.shape[1]):
            m = factor * z[u, j] + np.float32(0)
            if m > s[v, j] or m != m:
                s[v, j] = m


def _accumulator(synopsis: MonotonicSynopsis, width: int, rows: int) -> Accumulator:
    """Return room for extrema without their holders."""
    s, sign = np.full((rows, width), -np.inf, np.float32), sign_of(synopsis)
    return RowAccumulator(lambda z, messages: merge_extrema(s, z, messages, sign), partial(read_extrema, s, sign))


def _merger(synopsis: MonotonicSynopsis) -> MergePartials:
    sign = sign_of(synopsis)
    return lambda *of_parts: merge_partial_extrema(*of_parts, sign)


EXTREMA = Aggregate[MonotonicSynopsis](
    store=partial(FoldStore, ExtremaFold),
    merger=_merger,
    accumulator=_accumulator,
    accumulator_bytes=lambda _, width: 4 * width,
    message_fold=ExtremaFold,
)
