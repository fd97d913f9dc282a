"""Copies mapped images to memory ahead of the changes to them, in the background.

The first change of a mapped page is a fault, in which the kernel copies 4 KiB and interrupts every processor that runs
the job. Here threads read the files in large pieces into memory in huge pages, and the owner of the tables puts each
piece into its place between two of its acts: pages that have changed since are copied from the table, then the piece is
moved over the mapping in one step. So a thread knows nothing but files and memory that nobody else has seen. A table
that moves, or is dropped, meanwhile makes a piece useless, and nothing else.

Tables that change most go first. A quarter of the machine's memory is left free; what does not fit stays mapped.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from freshet.log_lines import warn
from freshet.state.memory.machine_memory import available_memory, total_memory
from freshet.state.memory.private_map import HUGE_PAGE, FileSpan, PrivateMap, inode_of
from freshet.state.table import Table

_PIECE = 32 * HUGE_PAGE
_THREADS = 2  # of each owner
_AT_ONCE = threading.Semaphore(max(2, min(4, (os.cpu_count() or 1) // 2)))  # in the process
_PUT_AT_ONCE = 4 * _PIECE  # between two acts; of a few ms
_FREE_SHARE = 4
_GIB = 1 << 30
_JOIN_S = 10.0  # a piece is read much sooner, be it from a disk


class _Piece(NamedTuple):
    """A range of a mapped table, within one of its files."""

    table: Table
    mapped: PrivateMap
    span: FileSpan
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self.end - self.begin

    @property
    def is_wanted(self) -> bool:
        """True if the table is still mapped there."""
        return self.table.memory.mapped is self.mapped

    def read(self) -> PrivateMap:
        """A copy of what the file has.

        Raises: OSError where it can't be read, or there is no memory for it.
        """
        lead, first = self.begin % HUGE_PAGE, self.begin - self.span.at
        copy = PrivateMap(lead + self.nbytes)
        copy.advise_huge()
        into = copy.array((copy.room,), np.dtype(np.uint8)).data[lead:]
        wanted, got = min(self.nbytes, self.span.nbytes - first), 0
        with self.span.path.open("rb", buffering=0) as file:
            if self.span.inode != inode_of(file):
                msg = f"{self.span.path} is another file than the one that was mapped"
                raise OSError(msg)
            while got < wanted:
                size = os.preadv(file.fileno(), [into[got:wanted]], first + got)
                if not size:
                    msg = f"{self.span.path} has become shorter than it was"
                    raise OSError(msg)
                got += size
        return copy


def _pieces(table: Table) -> Iterator[_Piece]:
    """All of a mapped table; they begin and end with huge pages where they can."""
    mapped = table.memory.mapped
    for span in mapped.spans if mapped is not None else ():
        begin = span.at
        while mapped is not None and begin < span.end:
            end = min(span.end, (begin // _PIECE + 1) * _PIECE)
            yield _Piece(table, mapped, span, begin, end)
            begin = end


class CopyAhead:
    """The copies of one owner's mapped tables.

    The owner makes it, calls `settle` between its acts until that has nothing more to do, and `close` at the end.
    Invariant: threads take from `_left`, and the owner from `_copied`; a piece is in one of them, or being read.
    """

    def __init__(self, tables: Iterable[Table], name: str) -> None:
        """Begin to copy those of the tables that are mapped; `name` is the owner's, for people."""
        self._name = name
        self._tables = [table for table in tables if table.memory.mapped is not None]
        self._tables.sort(key=lambda table: table.dtype.kind != "f")  # values before topology
        self._left = {table.name: deque(_pieces(table)) for table in self._tables}
        self._copied: deque[tuple[_Piece, PrivateMap]] = deque()
        self._lock = threading.Lock()
        self._has_failed = False
        self._threads: list[threading.Thread] = []
        if self._tables:
            self._start()

    def settle(self) -> bool:
        """Put copies into their places; False once there are no more. Nobody may write to the tables meanwhile."""
        are_alive, room = any(thread.is_alive() for thread in self._threads), _PUT_AT_ONCE
        while self._copied and room > 0:
            piece, copy = self._copied.popleft()
            room -= piece.nbytes
            try:
                if piece.is_wanted:
                    piece.mapped.take_over(copy, piece.begin, piece.end)
            except OSError as error:
                with self._lock:
                    self._give_up(str(error), piece)
        if are_alive:
            self._sort()
        return are_alive or bool(self._copied)

    def copy_next(self) -> bool:
        """Copy the next piece, on a thread; False where there is none."""
        with _AT_ONCE:
            with self._lock:
                piece = self._next()
            if piece is None:
                return False
            try:
                self._copied.append((piece, piece.read()))
            except OSError as error:
                with self._lock:
                    self._give_up(str(error), piece)
        return True

    def close(self) -> None:
        """Copy nothing more."""
        with self._lock:
            self._left.clear()
        for thread in self._threads:
            thread.join(_JOIN_S)
        self._copied.clear()

    def _start(self) -> None:
        reference = weakref.ref(self)  # threads keep no tables that nobody else has
        self._threads = [threading.Thread(target=_run, args=(reference,), daemon=True) for _ in range(_THREADS)]
        for thread in self._threads:
            thread.start()

    def _sort(self) -> None:
        """Have what changes most come next."""
        flags = {table.name: table.view.flags for table in self._tables}
        shares = {name: np.count_nonzero(pages) / max(1, len(pages)) for name, pages in flags.items()}
        with self._lock:
            self._left = dict(sorted(self._left.items(), key=lambda one: -shares[one[0]]))

    def _next(self) -> _Piece | None:
        for pieces in self._left.values():
            while pieces:
                piece = pieces.popleft()
                if not piece.is_wanted:
                    continue
                free, total = available_memory(), total_memory()
                if free - piece.nbytes >= total // _FREE_SHARE:
                    return piece
                reason = f"of {total / _GIB:.1f} GiB of memory {free / _GIB:.1f} are free, and a quarter is to stay so"
                self._give_up(reason, piece)
                return None
        return None

    def _give_up(self, why: str, last: _Piece) -> None:
        left = last.nbytes + sum(piece.nbytes for pieces in self._left.values() for piece in pieces)
        self._left = {}
        if self._has_failed:
            return
        self._has_failed = True
        warn(f"{self._name}: {left / _GIB:.1f} GiB stay mapped from files, where first changes are slow: {why}")


def _run(reference: weakref.ref[CopyAhead]) -> None:
    while (copies := reference()) is not None and copies.copy_next():
        del copies
