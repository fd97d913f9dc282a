"""Growable arrays whose changed pages are known: the hot form of an operator's durable state.

A core computes on plain numpy arrays; keyed state holds them as pages. Kernels call `touch(view, row)` before they
write a row, Python code `table.touch_rows(rows)`. A page that is waiting to be written as of a marker is copied aside
by the first touch (copy before change), so the marker's image stays true while the table moves on.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from gnn.kernel import kernel, quick

CLEAN, DIRTY, PENDING = 0, 1, 2
PAGE_BYTES = 1 << 16  # part of the state format (state/sweep.py)
_HUGE_BYTES = 4 << 20


class View(NamedTuple):
    """What a kernel gets of a table."""

    data: np.ndarray
    flags: np.ndarray  # (pages,) uint8: CLEAN, DIRTY since the last marker, or PENDING: owed to it and unchanged
    shadow: np.ndarray  # (copies, page_rows, ...) pages as of the last marker
    where: np.ndarray  # (pages,) int32: the page's place in `shadow`
    copied: np.ndarray  # (copies,) uint8: whether that place is filled
    shift: int  # log2 of the rows in a page


@kernel
def _first_touch(view: View, page: int) -> None:
    if view.flags[page] == PENDING:
        place = np.int64(view.where[page])
        data, shadow = view.data.reshape(-1), view.shadow.reshape(-1)
        size = len(shadow) // len(view.shadow)
        for i in range(size):  # a loop, since an assignment of slices may allocate (gnn/kernel.py)
            shadow[place * size + i] = data[page * size + i]
        view.copied[place] = 1
    view.flags[page] = DIRTY


@kernel
def touch(view: View, row: int) -> None:
    """Say that `row` is about to change."""
    page = row >> view.shift
    if view.flags[page] != DIRTY:
        _first_touch(view, page)


@quick
def _touch_rows(view: View, rows: np.ndarray) -> None:
    for row in rows:
        touch(view, row)


def _allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Zeros, mapped lazily, in huge pages where they are large: random rows in small ones wait for address look-ups."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < _HUGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype).reshape(shape)


class Table:
    """A numpy array that grows, with pages of about 64 KiB whose changes are tracked.

    Shapes: data (capacity,) or (capacity, width); rows from `rows` on hold `fill`.
    Invariant: a page that differs from its image at the last marker is DIRTY.
    """

    def __init__(self, name: str, dtype: str, width: int | None = None, fill: float = 0) -> None:
        self.name, self.fill, self.width = name, fill, width
        self.dtype = np.dtype(dtype)
        row_bytes = self.dtype.itemsize * max(1, 1 if width is None else width)
        self.shift = max(4, (PAGE_BYTES // row_bytes).bit_length() - 1)
        self.page_rows = 1 << self.shift
        self.rows = 0
        self._bits = np.dtype(f"u{self.dtype.itemsize}")
        self._fill_bits = np.array([fill], self.dtype).view(self._bits)[0]
        self._row_shape: tuple[int, ...] = () if width is None else (width,)
        self.data = np.full((0, *self._row_shape), fill, self.dtype)
        self._flags = np.zeros(0, np.uint8)
        self._where = np.zeros(0, np.int32)
        self._pending: list[int] = []
        self._no_shadow()
        self._view: View | None = None

    def _no_shadow(self) -> None:
        self._shadow = np.empty((1, self.page_rows, *self._row_shape), self.dtype)
        self._copied = np.zeros(1, np.uint8)
        self._view = None

    @property
    def view(self) -> View:
        """The table as kernels see it; stale after `reserve`, `freeze` or `load_page`."""
        if self._view is None:
            self._view = View(self.data, self._flags, self._shadow, self._where, self._copied, self.shift)
        return self._view

    def reserve(self, rows: int) -> None:
        """Make room for at least `rows` rows; new ones hold `fill`."""
        self.rows = max(self.rows, int(rows))
        capacity = self.data.shape[0]
        if rows <= capacity:
            return
        pages = -(-max(rows, capacity + capacity // 2) // self.page_rows)
        shape = (pages * self.page_rows, *self._row_shape)
        grown = _allocate(shape, self.dtype)
        if self.fill:
            grown[capacity:] = self.fill
        grown[:capacity] = self.data
        self.data = grown
        self._flags = np.concatenate([self._flags, np.zeros(pages - self._flags.size, np.uint8)])
        self._where = np.concatenate([self._where, np.zeros(pages - self._where.size, np.int32)])
        self._view = None

    def touch_rows(self, rows: np.ndarray) -> None:
        """Say that these rows are about to change."""
        if len(rows):
            _touch_rows(self.view, rows)

    def touch_all(self) -> None:
        """Say that every row is about to change."""
        self.touch_rows(np.arange(0, self.rows, self.page_rows))

    def freeze(self) -> int:
        """At a marker: the dirty pages become owed to it. Returns how many.

        Raises:
            RuntimeError: pages of the marker before are still owed.
        """
        if self._pending:
            message = f"table {self.name}: {len(self._pending)} pages of the last marker were not written"
            raise RuntimeError(message)
        dirty = np.flatnonzero(self._flags == DIRTY)
        self._flags[dirty] = PENDING
        self._where[dirty] = np.arange(dirty.size, dtype=np.int32)
        self._pending = dirty[::-1].tolist()
        self._shadow = np.empty((max(1, dirty.size), self.page_rows, *self._row_shape), self.dtype)
        self._copied = np.zeros(max(1, dirty.size), np.uint8)
        self._view = None
        return int(dirty.size)

    def take_owed(self, limit: int) -> Iterator[tuple[int, bytes]]:
        """Up to `limit` of the owed pages, as of the marker, without the `fill` at their end.

        So a small table costs what it holds and not a page at every marker.
        """
        for _ in range(min(limit, len(self._pending))):
            page = self._pending.pop()
            place = self._where[page]
            if self._copied[place]:
                image = self._shadow[place]
            else:
                image = self.data[page * self.page_rows : (page + 1) * self.page_rows]
                self._flags[page] = CLEAN
            bits = image.reshape(-1).view(self._bits)
            held = np.flatnonzero(bits != self._fill_bits)
            yield page, bits[: held[-1] + 1 if held.size else 0].tobytes()
        if not self._pending and self._shadow.shape[0] > 1:
            self._no_shadow()

    @property
    def owed(self) -> int:
        """How many pages the last marker still waits for."""
        return len(self._pending)

    def load_page(self, page: int, data: bytes) -> None:
        """Restore a page from its bytes; what is missing at their end is `fill`.

        Raises:
            ValueError: more bytes than a page has.
        """
        self.reserve(max(self.rows, (page + 1) * self.page_rows))
        flat = self.data[page * self.page_rows : (page + 1) * self.page_rows].reshape(-1)
        # Format 1 had pages, of tables filled with zeros, from which single zero bytes were cut.
        held = np.frombuffer(data + bytes(-len(data) % self.dtype.itemsize), self.dtype)
        if held.size > flat.size:
            message = f"table {self.name}: page {page} has {held.size} values, at most {flat.size} fit"
            raise ValueError(message)
        flat[: held.size], flat[held.size :] = held, self.fill

    @property
    def extent(self) -> int:
        """Rows up to the end of the last page that changed since the last marker; what lies beyond holds `fill`.

        Of a table that has not passed a marker that is all that was ever written.
        """
        changed = np.flatnonzero(self._flags)
        return int(changed[-1] + 1) * self.page_rows if changed.size else 0

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        return int(self.data.nbytes + self._shadow.nbytes + self._flags.nbytes + self._where.nbytes)


class TableSet:
    """The named tables of one core.

    Invariant: names are unique; what a core must not forget stands in one of its tables.
    """

    def __init__(self) -> None:
        self._tables: dict[str, Table] = {}

    def add(self, name: str, dtype: str, width: int | None = None, fill: float = 0) -> Table:
        """A new, empty table."""
        if name in self._tables:
            message = f"table {name!r} exists already"
            raise ValueError(message)
        table = self._tables[name] = Table(name, dtype, width, fill)
        return table

    def __getitem__(self, name: str) -> Table:
        return self._tables[name]

    def __iter__(self) -> Iterator[Table]:
        return iter(self._tables.values())

    @property
    def nbytes(self) -> int:
        """Bytes held in memory by all tables."""
        return sum(table.nbytes for table in self)
