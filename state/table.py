"""Growable arrays whose changed pages are known: the hot form of an operator's durable state.

A core computes on plain numpy arrays; keyed state holds them as pages. Kernels call `touch(view, row)` before they
write a row, Python code `table.touch_rows(rows)`. A page that is waiting to be written as of a marker is copied aside
by the first touch (copy before change), so the marker's image stays true while the table moves on.

A table may hold several parts of its operator side by side, so that one act works on all of them: the k-th part has the
rows from `k * stride` on. Its pages are numbered, and have the bytes, as if it were alone: a state knows nothing of who
shared a table with whom.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from freshet.kernels.kernel import apart, inner, quick
from freshet.state.memory.pager import PagedFile, Pager
from freshet.state.memory.row_memory import RowMemory
from freshet.state.memory.table_memory import lay_out, spread
from freshet.state.page_copies import PageCopies, count_held

CLEAN, DIRTY, PENDING = 0, 1, 2
PAGE_BYTES = 1 << 16  # part of the state format (state/sweep.py)
ONE_PART = 31  # rows are int32, so this shift gives 0 for all of them
_STRIDE_MIN = 16


class View(NamedTuple):
    """View of a table for kernels."""

    data: np.ndarray
    flags: np.ndarray  # (parts * pages,) uint8: CLEAN, DIRTY since the last marker, PENDING: owed to it and unchanged
    shadow: np.ndarray  # (copies, page_rows, ...) pages as of the last marker
    where: np.ndarray  # (parts * pages,) int32: the page's place in `shadow`
    copied: np.ndarray  # (copies,) uint8: whether that place is filled
    shift: int  # log2 of the rows in a page


@apart
def _first_touch(view: View, page: int) -> None:
    if view.flags[page] == PENDING:
        place = np.int64(view.where[page])
        data, shadow = view.data.reshape(-1), view.shadow.reshape(-1)
        size = len(shadow) // len(view.shadow)
        for i in range(size):  # a loop, since an assignment of slices may allocate (kernels/kernel.py)
            shadow[place * size + i] = data[page * size + i]
        view.copied[place] = 1
    view.flags[page] = DIRTY


@inner
def touch(view: View, row: int) -> None:
    """Say that `row` is about to change."""
    page = row >> view.shift
    if view.flags[page] != DIRTY:
        _first_touch(view, page)


@quick
def _touch_rows(view: View, rows: np.ndarray) -> None:
    for row in rows:
        touch(view, row)


class Table:
    """A numpy array that grows, with pages of about 64 KiB whose changes are tracked.

    One part: `stride` is the capacity, in whole pages. Several: `stride` is the smallest power of two, from 16 on, that
    holds what any part ever asked for, so tables whose parts ask alike have one stride; while it is smaller than a page
    a part has a single, shorter page.

    Shapes: data (parts * stride,) or (parts * stride, width); a part's rows from `part_rows` on hold `fill`.
    Invariant: a page that differs from its image at the last marker is DIRTY.
    """

    def __init__(self, name: str, dtype: str, width: int | None = None, fill: float = 0, parts: int = 1) -> None:
        self.name, self.fill, self.width, self.parts = name, fill, width, parts
        self.dtype = np.dtype(dtype)
        row_bytes = self.dtype.itemsize * max(1, 1 if width is None else width)
        self._page_shift = max(4, (PAGE_BYTES // row_bytes).bit_length() - 1)
        self.page_rows = 1 << self._page_shift
        self.shift = self._page_shift if parts == 1 else _STRIDE_MIN.bit_length() - 1
        self.part_rows = np.zeros(parts, np.int64)
        self._bits = np.dtype(f"u{self.dtype.itemsize}")
        self._fill_bits = np.array([fill], self.dtype).view(self._bits)[0]
        self._row_shape: tuple[int, ...] = () if width is None else (width,)
        self.growth = 2  # the only part grows by this part of its size at least: 2 is a half
        self.stride = 0
        self.data = np.full((0, *self._row_shape), fill, self.dtype)
        self._flags, self._where = np.zeros(0, np.uint8), np.zeros(0, np.int32)
        self._pending: list[list[int]] = [[] for _ in range(parts)]
        self._owed = 0
        self.memory = RowMemory(self.dtype, parts)
        self._no_shadow()
        if parts > 1:
            self._grow(_STRIDE_MIN)

    def _no_shadow(self) -> None:
        self._copies = PageCopies(1, (1 << self.shift, *self._row_shape), self.memory.aside)
        self._view: View | None = None

    @property
    def view(self) -> View:
        """The table as kernels see it; stale after `reserve`, `freeze` or `load_page`."""
        if self._view is None:
            self._view = View(self.data, self._flags, self._copies.rows, self._where, self._copies.copied, self.shift)
        return self._view

    @property
    def rows(self) -> int:
        """Number of rows in use, in the part with the most."""
        return int(self.part_rows.max())

    @property
    def part_shift(self) -> int:
        """`row >> part_shift` is the part of a row."""
        return ONE_PART if self.parts == 1 else self.stride.bit_length() - 1

    def part(self, part: int) -> np.ndarray:
        """The rows of one part (a view); stale after `reserve`."""
        return self.data[part * self.stride : (part + 1) * self.stride]

    def reserve(self, rows: int | np.ndarray) -> None:
        """Make room for at least `rows` rows in every part, or `rows[part]` in each; new ones hold `fill`."""
        np.maximum(self.part_rows, rows, out=self.part_rows)
        need = rows.max() if isinstance(rows, np.ndarray) else rows
        if need > self.stride:
            self._grow(int(need))

    def widen(self, stride: int) -> None:
        """Have at least this stride, where several tables are to have the same one."""
        if stride > self.stride:
            self._grow(stride)

    def set_rows(self, rows: int, part: int = 0) -> None:
        """Set the number of rows of a part, as after a restore, which makes whole pages."""
        self.part_rows[part] = rows
        if rows > self.stride:
            self._grow(rows)

    def _stride_for(self, need: int) -> int:
        if self.parts == 1:
            return -(-need // self.page_rows) * self.page_rows
        return 1 << (max(need, _STRIDE_MIN) - 1).bit_length()

    def _grow(self, need: int) -> None:
        before = self.stride
        self.stride = self._stride_for(max(need, before + before // self.growth) if self.parts == 1 else need)
        shape = (self.parts * self.stride, *self._row_shape)
        grown = self.memory.longer(shape)
        where_it_was = grown is not None
        if grown is None:
            grown = self.memory.other(shape)
        by_part = grown.reshape(self.parts, self.stride, *self._row_shape)
        if self.fill:
            by_part[:, before:] = self.fill
        if self.parts > 1 and before:
            lay_out(self.data, grown, self.parts, 1 << self.shift, everything=bool(self.fill))
        elif not where_it_was:
            grown[:before] = self.data
        self._settle(grown)

    def _settle(self, data: np.ndarray) -> None:
        """Have the rows here, at the new stride."""
        self.data = data
        self.shift = min(self._page_shift, self.stride.bit_length() - 1) if self.parts > 1 else self._page_shift
        pages = self.parts, self.stride >> self.shift
        self._flags, self._where = spread(self._flags, *pages), spread(self._where, *pages)
        self._copies.widen(1 << self.shift, self.fill)
        self._view = None

    def keep_in(self, path: Path) -> None:
        """Have the only part's rows in a file from now on, where they are no private memory."""
        self.data = self.memory.keep_in(path, self.data)
        self._view = None

    def move(self) -> bool:
        """Move the rows to a file, where the process is short of memory; returns whether they were moved."""
        moved = self.memory.move(self.data)
        if moved is not None:
            self.data, self._view = moved, None
        return moved is not None

    def read_ahead(self, rows: np.ndarray) -> None:
        """Have these rows in memory soon, where they may lie on the disk alone."""
        self.memory.read_ahead(self.data, rows)

    def touch_rows(self, rows: np.ndarray) -> None:
        """Say that these rows are about to change."""
        if len(rows):
            _touch_rows(self.view, rows)

    def clear_rows(self, rows: np.ndarray) -> None:
        """Have these rows hold nothing any more, which is `fill`."""
        if len(rows):
            self.touch_rows(rows)
            self.data[rows] = self.fill

    def touch_all(self) -> None:
        """Say that every row is about to change."""
        for part, rows in enumerate(self.part_rows.tolist()):
            begin = part * self.stride
            self.touch_rows(np.arange(begin, begin + rows, 1 << self.shift))

    def freeze(self) -> int:
        """Assign the dirty pages to a marker. Returns how many there are, over all parts.

        Raises:
            RuntimeError: pages of the marker before are still owed.
        """
        if self._owed:
            msg = f"table {self.name}: {self._owed} pages of the last marker were not written"
            raise RuntimeError(msg)
        dirty = np.flatnonzero(self._flags == DIRTY)
        self._flags[dirty] = PENDING
        self._where[dirty] = np.arange(dirty.size, dtype=np.int32)
        pages = self.stride >> self.shift
        bounds = np.searchsorted(dirty, np.arange(self.parts + 1) * pages).tolist()
        for part in range(self.parts if dirty.size else 0):
            self._pending[part] = (dirty[bounds[part] : bounds[part + 1]] - part * pages)[::-1].tolist()
        self._owed = int(dirty.size)
        self._copies = PageCopies(dirty.size, (1 << self.shift, *self._row_shape), self.memory.aside)
        self._view = None
        return self._owed

    def take_owed(self, limit: int, part: int = 0) -> Iterator[tuple[int, bytes]]:
        """Up to `limit` of a part's owed pages, as of the marker, without the `fill` at their end.

        So a small table costs what it holds and not a page at every marker.
        """
        pending = self._pending[part]
        first = np.array(pending[-limit:], np.int64) + part * (self.stride >> self.shift)
        self.memory.read_ahead(self.data, first << self.shift, 1 << self.shift)
        for _ in range(min(limit, len(pending))):
            page = pending.pop()
            self._owed -= 1
            index = part * (self.stride >> self.shift) + page
            place = self._where[index]
            if self._copies.copied[place]:
                image = self._copies.rows[place]
            else:
                image = self.data[index << self.shift : (index + 1) << self.shift]
                self._flags[index] = CLEAN
            bits = image.reshape(-1).view(self._bits)
            yield page, bits[: count_held(bits, self._fill_bits)].tobytes()
        if not self._owed and len(self._copies.rows) > 1:
            self._no_shadow()

    @property
    def owed(self) -> int:
        """Number of pages that the last marker still waits for."""
        return self._owed

    def owed_by(self, part: int) -> int:
        """Return the number of pages of a part that the last marker still waits for."""
        return len(self._pending[part])

    def load_page(self, page: int, data: bytes, part: int = 0) -> None:
        """Restore a page from its bytes; values missing at the end are `fill`.

        Raises:
            ValueError: more bytes than a page has.
        """
        width = math.prod(self._row_shape)
        # Format 1 had pages, of tables filled with zeros, from which single zero bytes were cut.
        held = np.frombuffer(data + bytes(-len(data) % self.dtype.itemsize), self.dtype)
        if held.size > self.page_rows * width:
            msg = f"table {self.name}: page {page} has {held.size} values, at most {self.page_rows * width} fit"
            raise ValueError(msg)
        first = page * self.page_rows
        held_rows = -(-held.size // max(1, width))
        # One of several parts asks for what it holds, since the stride of all follows.
        end = first + self.page_rows if self.parts == 1 else (first + held_rows if held_rows else 0)
        self.set_rows(max(int(self.part_rows[part]), end), part)
        self.memory.read_ahead(self.data, np.array([part * self.stride + first]), self.page_rows)
        flat = self.part(part)[first : first + self.page_rows].reshape(-1)
        flat[: held.size], flat[held.size :] = held, self.fill

    def map_files(self, files: Mapping[int, BinaryIO], held: np.ndarray, rows: np.ndarray) -> None:
        """Have the parts, which are empty, begin with their files' `held[k]` rows, of which `rows[k]` are in use.

        A page that is written to becomes memory; the files never change.
        Raises: OSError where they can't be mapped.
        """
        need = max(int(np.maximum(held, rows).max()), self.stride)
        stride = self._stride_for(need if self.parts == 1 else 2 * need)
        row_bytes = self.dtype.itemsize * math.prod(self._row_shape)
        placed = [(file, int(held[part]) * row_bytes, part * stride) for part, file in files.items()]
        data = self.memory.map_files(placed, self.parts * stride, self._row_shape)
        for part in range(self.parts) if self.fill else ():
            data[part * stride + held[part] : (part + 1) * stride] = self.fill
        self.stride, self.part_rows[:] = stride, rows
        self._settle(data)

    def room_for(self, held: int, rows: int) -> np.ndarray:
        """Return the first `held` rows of the only part, which is empty; `rows` are in use from now on."""
        self.set_rows(max(held, rows))
        self.part_rows[0] = rows
        return self.data[:held]

    def load_rows(self, values: np.ndarray, rows: int, part: int = 0) -> None:
        """Fill an empty part, of `rows` rows in use, from its first values: (n,) or (n, width)."""
        size = len(values)
        if self.parts > 1:
            held = count_held(values.reshape(-1).view(self._bits), self._fill_bits)
            size = -(-held // max(1, math.prod(self._row_shape)))
        self.set_rows(max(size, rows), part)
        self.part(part)[:size] = values[:size]
        self.part_rows[part] = rows

    def extent_of(self, part: int = 0) -> int:
        """A part's rows to the end of the last page that changed since the last marker; beyond it they hold `fill`.

        Of a table that has not passed a marker that is all that was ever written. In whole pages, though a part may
        have less than one.
        """
        pages = self.stride >> self.shift
        changed = np.flatnonzero(self._flags[part * pages : (part + 1) * pages])
        return int(changed[-1] + 1) * self.page_rows if changed.size else 0

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        return int(self.data.nbytes + self._copies.rows.nbytes + self._flags.nbytes + self._where.nbytes)


def align(*tables: Table) -> None:
    """Give tables of several parts the same stride; with one part, rows are slots in all of them."""
    stride = max(table.stride for table in tables)
    for table in tables if tables[0].parts > 1 else ():
        table.widen(stride)


class TableSet:
    """The named tables of one core, which has `parts` parts of its operator.

    Invariant: names are unique; what a core must not forget stands in one of its tables.
    """

    def __init__(self, parts: int = 1) -> None:
        self.parts = parts
        self.pager: Pager | None = None
        # By tables of earlier versions: those made of others in their place. A restore leaves the former out.
        self.replaced: dict[str, tuple[str, ...]] = {}
        self._tables: dict[str, Table] = {}

    def add(self, name: str, dtype: str, width: int | None = None, fill: float = 0) -> Table:
        """A new, empty table."""
        if name in self._tables:
            msg = f"table {name!r} exists already"
            raise ValueError(msg)
        table = self._tables[name] = Table(name, dtype, width, fill, self.parts)
        return table

    def __getitem__(self, name: str) -> Table:
        return self._tables[name]

    def __iter__(self) -> Iterator[Table]:
        return iter(self._tables.values())

    def keep_in(self, folder: Path, but: tuple[str, ...] = ()) -> None:
        """Have all tables whose names do not begin so in files, as `write_image` of the folder has them."""
        folder.mkdir(parents=True, exist_ok=True)
        for table in self:
            if not table.name.startswith(but):
                table.keep_in(folder / f"{table.name}.bin")

    def let_go(self) -> None:
        """Have the process hold no pages of tables that are kept in files."""
        for table in self:
            if table.memory.file is not None:
                table.memory.file.let_go()

    def keep_within(self, pager: Pager) -> None:
        """Have tables in files where the process is short of memory; before anything is restored."""
        self.pager = pager
        for table in self:
            table.memory.pager = pager

    def settle(self) -> None:
        """Move the largest table to a file, where the process is short of memory; nobody may be at work on it."""
        if self.pager is not None and self.pager.wants_files:
            any(table.move() for table in sorted(self, key=lambda table: -table.data.nbytes))
        if self.pager is not None and self.pager.is_tight:  # who reads from the disk waits for room
            self.pager.make_room()

    @property
    def paged(self) -> list[PagedFile]:
        """Files of those tables that have one."""
        return [table.memory.file for table in self if isinstance(table.memory.file, PagedFile)]

    @property
    def nbytes(self) -> int:
        """Bytes held in memory by all tables."""
        return sum(table.nbytes for table in self)
