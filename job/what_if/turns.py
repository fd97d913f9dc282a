"""Turns at a job's graph, first come first served: between two vertices of a request others have theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Waiter:
    """Somebody who waits: `goes_with` says whether his turn leaves the graph at its epoch."""

    def __init__(self, goes_with: Callable[[], bool], *, keeps: bool = False) -> None:
        """`keeps`: he has begun, and comes back to the same epoch."""
        self.goes_with, self.keeps, self.called = goes_with, keeps, threading.Event()


class GraphTurns:
    """Turns that one has at a time; `is_had`: somebody has one.

    Invariant: while somebody is between two parts of a turn, only those have one who leave the graph where it is.
    """

    def __init__(self) -> None:
        self._lock, self._waiting, self.is_had = threading.Lock(), list[_Waiter](), False

    @property
    def waiting(self) -> int:
        """Number of those who wait."""
        return len(self._waiting)

    @property
    def is_kept(self) -> bool:
        """Return whether somebody is between two parts of a turn; for who has the turn."""
        return any(one.keeps for one in self._waiting)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have a turn in which the graph may be brought on."""
        self.begin(lambda: False, None)
        try:
            yield
        finally:
            self.end()

    def begin(self, goes_with: Callable[[], bool], timeout_s: float | None) -> bool:
        """Begin a turn; False: others had theirs for that long.

        `goes_with`: whether it leaves the graph at its epoch, looked at while nobody has a turn.
        """
        waiter = _Waiter(goes_with)
        with self._lock:
            self._add(waiter)
        if waiter.called.wait(timeout_s):
            return True
        with self._lock:
            if is_late := not waiter.called.is_set():
                self._waiting.remove(waiter)
        return not is_late

    def end(self) -> None:
        """End a turn."""
        with self._lock:
            self.is_had = False
            self._call()

    def between(self) -> None:
        """Let those go first who wait now and leave the graph at its epoch; for who has the turn."""
        waiter = _Waiter(lambda: True, keeps=True)
        with self._lock:
            self.is_had = False
            self._add(waiter)
        waiter.called.wait()

    def _add(self, waiter: _Waiter) -> None:
        self._waiting.append(waiter)
        self._call()

    def _call(self) -> None:
        """Give the turn to the first who may have it."""
        if self.is_had:
            return
        is_kept = self.is_kept
        found = next((one for one in self._waiting if not is_kept or one.goes_with()), None)
        if found is not None:
            self._waiting.remove(found)
            self.is_had = True
            found.called.set()
