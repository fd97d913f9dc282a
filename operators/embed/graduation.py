"""Graduation: finished sums become the layer's rows, in a thread of its own, and go to the rows' file."""

from __future__ import annotations

import queue
import threading

import numpy as np

from freshet.gnn.plan import Context, LayerPlan
from freshet.operators.embed.rows_file import RowsFile


class FinishedBlock:
    """Finished vertices on their way: as many as there is room for.

    Shapes: vertices (g,) int32; sums (g, message_width) float32; owns (g, own_width) float32.
    """

    def __init__(self, rows: int, width: int, own_width: int) -> None:
        self.vertices = np.empty(rows, np.int32)
        self.sums, self.owns = np.empty((rows, width), np.float32), np.empty((rows, own_width), np.float32)
        self.count = 0

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the form for kernels."""
        return self.vertices, self.sums, self.owns


class Graduation:
    """UPDATE of full blocks while the other one is filled.

    Raises: from `exchange` and `close`, what went wrong in the thread.
    """

    def __init__(
        self, layer: LayerPlan, context: Context, out: RowsFile, block_rows: int, own_width: int, update_rows: int
    ) -> None:
        self._layer, self._context, self._out, self._update_rows = layer, context, out, max(1, update_rows)
        self._empty: queue.Queue[FinishedBlock] = queue.Queue()
        self._full: queue.Queue[FinishedBlock | None] = queue.Queue()
        self._empty.put(FinishedBlock(block_rows, layer.message_width, own_width))
        self.block = FinishedBlock(block_rows, layer.message_width, own_width)
        self._error: BaseException | None = None
        self.graduated = 0
        self._thread = threading.Thread(target=self._run, name="graduation", daemon=True)
        self._thread.start()

    def exchange(self) -> FinishedBlock:
        """Hand in the block and return an empty one."""
        self._full.put(self.block)
        self.block = self._empty.get()
        self.block.count = 0
        if self._error is not None:
            raise self._error
        return self.block

    def close(self) -> None:
        """Finish what was handed in, and the last block."""
        self._full.put(self.block)
        self._full.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def drop(self) -> None:
        """End the thread after a failure elsewhere."""
        self._full.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (block := self._full.get()) is not None:
            if self._error is None:
                try:
                    self._take(block)
                except BaseException as error:  # raised where blocks are handed in
                    self._error = error
            self._empty.put(block)

    def _take(self, block: FinishedBlock) -> None:
        n = block.count
        order = np.argsort(block.vertices[:n], kind="stable")
        for begin in range(0, n, self._update_rows):
            some = order[begin : begin + self._update_rows]
            vertices = block.vertices[some]
            rows = self._layer.update(block.sums[some], block.owns[some], self._context.at(vertices))
            self._write(vertices, rows)
        self.graduated += n

    def _write(self, vertices: np.ndarray, rows: np.ndarray) -> None:
        """Sorted vertices' rows, to the blocks that they belong to."""
        blocks = vertices // self._out.block_rows
        cuts = np.flatnonzero(np.diff(blocks)) + 1
        for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(blocks)], strict=True):
            if end > begin:
                block = int(blocks[begin])
                self._out.append(block, vertices[begin:end] - block * self._out.block_rows, rows[begin:end])
