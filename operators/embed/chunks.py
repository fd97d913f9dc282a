"""Reads a layer's sources in order, in a thread of its own: what they send, and where to."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

import numpy as np

from freshet.gnn.plan import Context, LayerPlan
from freshet.operators.embed.hot_kernels import Items
from freshet.operators.embed.rows_file import RowsFile
from freshet.operators.embed.topology import EmbedTopology

T = TypeVar("T")


class Chunks:
    """The chunks of one pass: blocks of rows as they lie on disk, cut so that rows and edges are bounded.

    A source with more edges than a chunk may have comes in several chunks. Without `rows` nothing is sent: a trial.
    """

    def __init__(
        self,
        topology: EmbedTopology,
        chunk_rows: int,
        chunk_edges: int,
        rows: RowsFile | None = None,
        layer: LayerPlan | None = None,
        context: Context | None = None,
    ) -> None:
        self._topology, self._rows, self._layer, self._context = topology, rows, layer, context
        self._chunk_rows, self._chunk_edges = max(1, chunk_rows), max(1, chunk_edges)
        self.bytes_read = 0

    def __iter__(self) -> Iterator[Items]:
        vertices = self._topology.vertices
        step = self._chunk_rows if self._rows is None else self._rows.block_rows
        for block, first in enumerate(range(0, vertices, step)):
            last = min(vertices, first + step)
            x = None if self._rows is None else self._rows.read(block)
            ends = self._topology.offsets(first, last)
            self.bytes_read += (0 if x is None else x.nbytes) + ends.nbytes
            begin = 0
            while begin < last - first:
                end = min(begin + self._chunk_rows, last - first)
                end = min(end, int(np.searchsorted(ends, ends[begin] + self._chunk_edges, side="right")) - 1)
                yield from self._cut(first, begin, max(end, begin + 1), ends, x)
                begin = max(end, begin + 1)

    def sent_by(self, first: int, last: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the rows that these vertices send, in pieces, each with its first vertex; without the edges."""
        assert self._rows is not None
        rows = self._rows.block_rows
        for block in range(first // rows, -(-last // rows)):
            begin, end = self._rows.rows_of(block)
            x = self._rows.read(block)
            self.bytes_read += x.nbytes
            for at in range(max(begin, first), min(end, last), self._chunk_rows):
                until = min(at + self._chunk_rows, end, last)
                yield at, self._send(at, until, x[at - begin : until - begin])

    def _cut(self, first: int, begin: int, end: int, ends: np.ndarray, x: np.ndarray | None) -> Iterator[Items]:
        sent = self._send(first + begin, first + end, None if x is None else x[begin:end])
        stop = int(ends[end])
        for at in range(int(ends[begin]), max(stop, int(ends[begin]) + 1), self._chunk_edges):
            until = min(stop, at + self._chunk_edges)
            dst, weight, following = self._topology.read(at, until)
            self.bytes_read += dst.nbytes + weight.nbytes
            cut = np.clip(ends[begin : end + 1], at, until) - at
            yield Items(first + begin, at > ends[begin], cut, dst, weight, following, sent)

    def _send(self, first: int, last: int, x: np.ndarray | None) -> np.ndarray:
        if x is None or self._layer is None or self._context is None:
            return np.empty((last - first, 0), np.float32)
        context = self._context.at(slice(first, last))
        return np.ascontiguousarray(self._layer.send(np.ascontiguousarray(x), context))


class Ahead(Generic[T]):
    """Runs an iterator in a thread of its own, some items ahead; its error is raised where the items are taken."""

    def __init__(self, items: Iterator[T], ahead: int, name: str) -> None:
        self._queue: queue.Queue[tuple[T | None, BaseException | None, bool]] = queue.Queue(ahead)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(items,), name=name, daemon=True)
        self._thread.start()

    def _run(self, items: Iterator[T]) -> None:
        try:
            for item in items:
                if not self._give((item, None, False)):
                    return
            self._give((None, None, True))
        except BaseException as error:  # whatever it is, the taker has to know
            self._give((None, error, True))

    def _give(self, given: tuple[T | None, BaseException | None, bool]) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(given, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def __iter__(self) -> Iterator[T]:
        while True:
            item, error, last = self._queue.get()
            if error is not None:
                raise error
            if last:
                return
            yield item  # type: ignore[misc]  # not None

    def close(self) -> None:
        """End the thread, wherever it is."""
        self._stop.set()
        self._thread.join()
