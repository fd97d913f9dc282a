"""One pass of a layer over a range of destinations that are all in memory; the sources go by once, in order.

Where messages read their targets, the rows of the range's own vertices are read first, in order too. So nothing is read
at random, and there is no cold store: a layer takes as many passes as it takes for the destinations of each to fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from freshet.gnn.plan import Context, LayerPlan
from freshet.kernels.kernel import kernel
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.embed.chunks import Chunks
from freshet.operators.embed.files import EmbedError
from freshet.operators.embed.hot_kernels import Items
from freshet.operators.embed.memory_plan import LayerColumns, LayerMemory
from freshet.operators.embed.orchestrator import PassCounts
from freshet.operators.embed.rows_file import RowsFile
from freshet.operators.graph.edge_messages import Messages, room_for


class RangeTask(NamedTuple):
    """Constants of a pass: `first` is the vertex of row 0, sources are in the values from row `base` on."""

    first: int
    base: int
    skip_loops: bool
    weighted: bool


@kernel
def list_messages(items: Items, task: RangeTask, messages: Messages, got: np.ndarray) -> int:
    """List the messages of a chunk to destinations of the range, and count them by destination; returns how many."""
    count = 0
    for u in range(len(items.ends) - 1):
        for e in range(items.ends[u], items.ends[u + 1]):
            row = np.int64(items.dst[e]) - task.first
            if row < 0 or row >= len(got) or (task.skip_loops and items.dst[e] == items.source + u):
                continue
            messages.src[count], messages.dst[count] = task.base + u, row
            messages.weight[count] = items.weight[e] if task.weighted else np.float32(1)
            got[row] += 1
            count += 1
    return count


class RangePass:
    """The destinations `first` to `last`, with what they have got so far.

    Shapes: got (n,) int32, messages; z (targets + sources of a chunk, message_width) float32; own (n, own) float32.
    Invariant: a synopsis depends on its messages in the order of their sources, on neither range nor chunk.
    """

    def __init__(self, layer: LayerPlan, shape: LayerColumns, memory: LayerMemory, first: int, last: int) -> None:
        self._layer, self._shape, self._first, self._last = layer, shape, first, last
        self._update_rows = memory.update_rows
        self.reads_targets = layer.synopsis.reads_targets
        n = last - first
        self._targets = n if self.reads_targets else 0
        self.got = np.zeros(n, np.int32)
        self._z = np.empty((self._targets + memory.chunk_rows, shape.message), np.float32)
        self._own = np.empty((n, shape.own), np.float32)
        self._messages = room_for(memory.chunk_edges)
        self._task = RangeTask(first, self._targets, layer.edge.skip_loops, layer.edge.weighted)
        self._synopses = aggregate_of(layer.synopsis).accumulator(layer.synopsis, shape.message, n)
        self.counts = PassCounts()

    def run(self, chunks: Chunks, watched: Iterable[Items]) -> None:
        """Take all sources; `watched` are the items of the chunks."""
        if self.reads_targets:
            for source, sent in chunks.sent_by(self._first, self._last):
                self._keep(source, sent)
        for items in watched:
            if not self.reads_targets:
                self._keep(items.source, items.sent)
            self._take(items)

    def _keep(self, source: int, sent: np.ndarray) -> None:
        """Keep the rows of the range's own vertices."""
        begin, end = max(source, self._first), min(source + len(sent), self._last)
        if begin >= end:
            return
        rows, shape = sent[begin - source : end - source], self._shape
        to = slice(begin - self._first, end - self._first)
        self._own[to] = rows[:, shape.own_from : shape.own_from + shape.own]
        if self.reads_targets:
            self._z[to] = rows[:, : shape.message]

    def _take(self, items: Items) -> None:
        self._z[self._targets : self._targets + len(items.sent)] = items.sent[:, : self._shape.message]
        count = list_messages(items, self._task, self._messages, self.got)
        self._synopses.merge(self._z, self._messages.first(count))
        self.counts.chunks += 1
        self.counts.pieces += 1

    def finish(self, expected: np.ndarray, context: Context, out: RowsFile, blocks: range) -> PassCounts:
        """Write the rows of the range's vertices, which have got as many messages as expected.

        Raises: EmbedError where one has not.
        """
        missing = int((self.got != expected).sum())
        if missing:
            msg = f"{missing:,} of {len(self.got):,} vertices did not get their messages: the topology is damaged"
            raise EmbedError(msg)
        for block in blocks:
            begin, last = out.rows_of(block)
            for at in range(begin, last, self._update_rows):
                end = min(at + self._update_rows, last)
                out.append(block, np.arange(at - begin, end - begin, dtype=np.int32), self._rows(at, end, context))
                self.counts.graduated += end - at
        return self.counts

    def _rows(self, begin: int, end: int, context: Context) -> np.ndarray:
        """The new rows of some vertices."""
        rows = np.arange(begin - self._first, end - self._first, dtype=np.int32)
        synopses = np.empty((len(rows), self._layer.synopsis_width), np.float32)
        self._synopses.read(self.got, rows, synopses, 0)
        own = self._own[begin - self._first : end - self._first]
        return self._layer.update(synopses, own, context.at(slice(begin, end)))
