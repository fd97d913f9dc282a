"""Memory of a table's rows: the process's own, a file of the table, or images that are mapped privately."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from freshet.state.memory.mapped_file import MappedFile
from freshet.state.memory.pager import PAGED_BYTES, PagedFile, Pager, read_ahead
from freshet.state.memory.private_map import PrivateMap
from freshet.state.memory.table_memory import allocate, release

_ROOM = 16  # what a single part that is mapped may grow to, in multiples of its size
_MOVED_AT_ONCE = 16 << 20  # bytes


class RowMemory:
    """Memory that the rows of a table of `parts` parts are in, and that they move to when there are more.

    Invariant: a table that a `Pager` has moved to a file stays in one.
    """

    def __init__(self, dtype: np.dtype[Any], parts: int) -> None:
        self._dtype, self._parts = dtype, parts
        self.file: MappedFile | None = None
        self.mapped: PrivateMap | None = None
        self.pager: Pager | None = None

    @property
    def is_paged(self) -> bool:
        """True if a `Pager` gives up what nobody uses."""
        return isinstance(self.file, PagedFile)

    def longer(self, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the only part's memory, longer and in the same place, where it can be."""
        if self.file is not None and self._parts == 1:
            return self.file.array(shape, self._dtype)
        if self.mapped is not None and self._parts == 1 and self.mapped.has_room(shape, self._dtype):
            return self.mapped.array(shape, self._dtype)
        return None

    def other(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return zeros in memory of their own, to which the rows are to move."""
        self.mapped = None
        pager, nbytes = self.pager, math.prod(shape) * self._dtype.itemsize
        if pager is not None and nbytes >= PAGED_BYTES and (self.is_paged or pager.is_short(nbytes)):
            self.file = pager.file()
            return self.file.array(shape, self._dtype)
        return allocate(shape, self._dtype, self._parts)

    def keep_in(self, path: Path, rows: np.ndarray) -> np.ndarray:
        """Move the only part's rows to a file, where they are no private memory."""
        assert self._parts == 1  # the file is a part's, as `write_image` writes it
        self.file = MappedFile(path)
        kept = self.file.array(rows.shape, self._dtype)
        kept[:] = rows
        return kept

    def move(self, rows: np.ndarray) -> np.ndarray | None:
        """Move rows from private memory to a file if that is short; None where they stay. `rows` are then lost."""
        if self.pager is None or self.is_paged or rows.nbytes < PAGED_BYTES or not self.pager.is_short():
            return None
        self.file = file = self.pager.file()
        moved = file.array(rows.shape, self._dtype)
        step = max(1, _MOVED_AT_ONCE * len(rows) // rows.nbytes)
        for begin in range(0, len(rows), step):
            moved[begin : begin + step] = rows[begin : begin + step]
            release(rows[begin : begin + step])
            self.pager.make_room()
        self.mapped = None
        return moved

    @property
    def may_be_away(self) -> bool:
        """True if rows may lie on the disk alone."""
        return self.is_paged and self.pager is not None and self.pager.is_tight

    def read_ahead(self, rows: np.ndarray, places: np.ndarray, count: int = 1) -> None:
        """Have `count` rows from each of these places on in memory soon, where they may lie on the disk alone."""
        if self.may_be_away and places.size:
            row_bytes = rows.itemsize * math.prod(rows.shape[1:])
            read_ahead(rows.ctypes.data, places.astype(np.int64) * row_bytes, count * row_bytes)

    def make_room(self) -> None:
        """Keep the budget while rows are read from elsewhere."""
        if self.is_paged and self.pager is not None:
            self.pager.make_room()

    def aside(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return room for copies of pages; what it holds is of no use yet."""
        if self.pager is not None and self.is_paged and math.prod(shape) * self._dtype.itemsize >= PAGED_BYTES:
            return self.pager.file().array(shape, self._dtype)
        return np.empty(shape, self._dtype)

    def map_files(
        self, files: Iterable[tuple[BinaryIO, int, int]], rows: int, row_shape: tuple[int, ...]
    ) -> np.ndarray:
        """Map files copy on write, each a number of bytes to a row; returns all `rows` rows.

        Raises: OSError where they can't be mapped.
        """
        # Address space costs nothing: a single part has far more of it behind, several have theirs twice as far apart.
        row_bytes = self._dtype.itemsize * math.prod(row_shape)
        memory = PrivateMap(rows * row_bytes * (_ROOM if self._parts == 1 else 1))
        for file, nbytes, first in files:
            memory.put(file, nbytes, first * row_bytes)
        data = memory.array((rows, *row_shape), self._dtype)
        self.mapped = memory
        return data
