"""All rows of a table at one epoch, read from it part by part, as the client takes them.

What a slow client has not taken yet stays in the table, whose ring keeps what rows were at that epoch. Where the ring
is about to move on, the rest is copied, within the budget; where it doesn't fit there, the answer ends with an error.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from freshet.job.serving.bounds.budget import Budget, Held, RowShape
from freshet.job.serving.protocol.errors import ExhaustedError, TooSlowError
from freshet.state.served.ids import Ids, text_bytes
from freshet.state.served.layout import T_RESERVED, T_RING, T_USED
from freshet.state.served.mapped import HistoryTooShortError
from freshet.state.served.read_kernels import MISSED
from freshet.state.served.reader import TableReader

_PART_BYTES, _PART_SLOTS = 2 << 20, 65_536
_WHAT = "all rows"
_LOOK_S = 0.01
_TRIES_S = 5.0


class Part(NamedTuple):
    """Rows of some ids; `last`: none follow. Shapes: own (n,) int64; rows (n, width) float32."""

    ids: Ids
    own: np.ndarray
    rows: np.ndarray
    last: bool


class WholeTable:
    """All rows at `epoch`, in parts; iterated once, by any thread."""

    def __init__(self, table: TableReader, budget: Budget) -> None:
        """Begin at the table's newest epoch, with the first part read.

        Raises:
            ExhaustedError: too much is in flight.
            HistoryTooShortError, WriterGoneError: the writer is too fast, or gone.
        """
        shape = RowShape(table.width, 0)
        self._table, self._budget, self._bytes = table, budget, shape.in_arrow
        self._slots = max(1, min(_PART_SLOTS, _PART_BYTES // self._bytes))
        most = min(self._slots, table.word(T_USED))
        self._held = budget.hold(2 * most * self._bytes, _WHAT)  # one is being sent while the next is read
        self._lock = threading.RLock()  # a collection of garbage amid a read may close this in the same thread
        self._kept: deque[Part] = deque()
        self._kept_bytes, self._failure = Held(budget), ""
        until = time.monotonic() + _TRIES_S
        while not self._begin():
            if time.monotonic() > until:
                msg = f"{table.path}: rows change faster than they can be read; give the server more --history"
                raise HistoryTooShortError(msg)
            time.sleep(0.001)
        _guard(self)

    def __iter__(self) -> Iterator[Part]:
        try:
            while (part := self._next()) is not None:
                yield part
        finally:
            self.close()

    def close(self) -> None:
        """Release the held bytes."""
        with self._lock:
            self._first = self._used
            self._kept.clear()
        self._held.release()
        self._kept_bytes.release()

    def keep_if_due(self) -> None:
        """Copy the rest if the ring may move on from it before it is read."""
        word = self._table.word
        if self._first < self._used and word(T_RESERVED) - self._reserved > word(T_RING) // 2:
            with self._lock:
                self._keep()

    def fail(self, why: str) -> None:
        """End it with an error."""
        with self._lock:
            self._failure, self._first = why, self._used

    def _begin(self) -> bool:
        table = self._table
        # Entries of later epochs come behind this one: it is read before the epoch.
        self._reserved = table.word(T_RESERVED)
        self.epoch, self._used, self._first = table.epoch, table.word(T_USED), 0
        part = self._read()
        if part is None:
            return False
        self._kept.append(part)
        return True

    def _read(self) -> Part | None:
        """The next part; None where the ring has moved on."""
        first = self._first
        count = self._table.fitting(first, min(self._slots, self._used - first), _PART_BYTES)
        code, ids, found = self._table.part(self.epoch, first, count)
        if code == MISSED:
            self._table.misses += 1
            return None
        self._first += count
        return Part(ids, found.own, found.rows, self._first >= self._used)

    def _next(self) -> Part | None:
        with self._lock:
            if self._kept:
                return self._kept.popleft()
            if self._first >= self._used and not self._failure:
                return None
            part = None if self._failure else self._read()
            if part is None:
                raise TooSlowError(self._failure or self._too_slow("the table no longer has them"))
            return part

    def _keep(self) -> None:
        """Copy what has not been read yet."""
        left = self._used - self._first
        if not left or self._failure:
            return
        try:
            self._kept_bytes = self._budget.hold(left * self._bytes, _WHAT)
            size = self._kept_bytes.size
            while self._first < self._used:
                part = self._read()
                if part is None:
                    self._failure = self._too_slow("the table no longer has them")
                    return
                self._kept.append(part)
                size += text_bytes(part.ids)
                self._kept_bytes.resize(size, _WHAT)
        except ExhaustedError as error:
            self._failure = self._too_slow(str(error))
        if self._failure:
            self._first = self._used

    def _too_slow(self, why: str) -> str:
        return (
            f"all rows at epoch {self.epoch}: {why}, and the client has not taken them in time; "
            "ask again, or give the server more --history"
        )


_open: weakref.WeakSet[WholeTable] = weakref.WeakSet()
_lock = threading.Lock()
_thread: threading.Thread | None = None


def _guard(one: WholeTable) -> None:
    """Have a thread look after it; one does so for all of the process."""
    global _thread
    with _lock:
        _open.add(one)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_look, name="freshet-slow-readers", daemon=True)
            _thread.start()


def _look() -> None:
    global _thread
    while True:
        time.sleep(_LOOK_S)
        with _lock:
            found = list(_open)
            if not found:
                _thread = None
                return
        for one in found:
            try:
                one.keep_if_due()
            except Exception as error:  # of that table alone: its reader meets the same
                one.fail(str(error))
        del found, one
