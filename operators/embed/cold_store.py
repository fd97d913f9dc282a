"""The cold store: rows that had to leave the hot one, in a file that grows by whole steps.

It goes through the page cache on purpose: an evicted row is certain to be read again.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np

from freshet.operators.embed.files import DiskFile, EmbedError
from freshet.operators.embed.row_kernels import read_rows, write_rows

STEP_BYTES = 32 << 20
_THREADS = 4
_ROWS_A_THREAD = 256


class ColdStore:
    """Rows of float64 by slot; freed slots are used again, the last one first.

    Raises: EmbedError from `put` and `fetch`, when the disk is full or the file was cut off.
    """

    def __init__(self, path: Path, columns: int, most: int) -> None:
        """`most`: as many rows as there can ever be."""
        self.path, self.row_bytes, self.most = path, 8 * columns, most
        self.slots = self.peak = self.used = 0
        self._file: DiskFile | None = None
        self._free = np.empty(0, np.int32)
        self._free_count = 0
        self._threads: ThreadPoolExecutor | None = None

    def put(self, source: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Keep the rows `source[which]`; returns their slots, (n,) int32, in order."""
        n = len(which)
        if self._free_count < n:
            self._grow(n - self._free_count)
        self._free_count -= n
        slots = np.sort(self._free[self._free_count : self._free_count + n])
        if self._file is not None:
            done = write_rows(self._file.number, slots, source.ctypes.data, which, self.row_bytes)
            if done < n:  # once more, for the error
                self._file.write(int(slots[done]) * self.row_bytes, source[which[done]])
        self.used += n
        self.peak = max(self.peak, self.used)
        return slots

    def fetch(self, slots: np.ndarray, target: np.ndarray, where: np.ndarray) -> None:
        """Bring rows back to `target[where]`, several at a time, and free their slots, which are in order."""
        n = len(slots)
        if self._file is not None:
            file, address, size = self._file.number, target.ctypes.data, self.row_bytes
            if n <= _ROWS_A_THREAD:
                done = read_rows(file, slots, address, where, size)
            else:
                self._threads = self._threads or ThreadPoolExecutor(_THREADS, "cold")
                cuts = [n * k // _THREADS for k in range(_THREADS + 1)]
                waits = [
                    self._threads.submit(read_rows, file, slots[begin:end], address, where[begin:end], size)
                    for begin, end in pairwise(cuts)
                ]
                done = sum(wait.result() for wait in waits)
            if done < n:
                msg = f"{self.path}: {n - done:,} of {n:,} rows can't be read back: the file was cut off or is damaged"
                raise EmbedError(msg)
        self._free[self._free_count : self._free_count + n] = slots
        self._free_count += n
        self.used -= n

    def _grow(self, more: int) -> None:
        step = max(more, STEP_BYTES // max(self.row_bytes, 8))
        slots = min(max(self.most, self.slots + more), self.slots + step)
        if self._file is None and self.row_bytes:
            self._file = DiskFile(self.path, slots * self.row_bytes)
        elif self._file is not None:
            self._file.reserve(slots * self.row_bytes)
        free = np.empty(slots, np.int32)
        free[: slots - self.slots] = np.arange(slots - 1, self.slots - 1, -1)
        free[slots - self.slots : slots - self.slots + self._free_count] = self._free[: self._free_count]
        self._free, self._free_count = free, self._free_count + slots - self.slots
        self.slots = slots

    def drop_cache(self) -> None:
        """Have the next reads come from the disk, for measurements."""
        if self._file is not None:
            self._file.sync()
            os.posix_fadvise(self._file.number, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Take the file away."""
        if self._threads is not None:
            self._threads.shutdown()
        if self._file is not None:
            self._file.close()
            self.path.unlink(missing_ok=True)
