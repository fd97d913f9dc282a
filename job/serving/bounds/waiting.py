"""Calls that wait for an epoch or a position: how many may, and one look at the table for all of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from freshet.errors import FreshetError
from freshet.job.serving.bounds.budget import Budget
from freshet.job.serving.bounds.calls import add_waited
from freshet.job.serving.protocol.wanted import Wanted
from freshet.state.served.layout import T_POSITION_SEQ
from freshet.state.served.mapped import MappedTable

THREADS_MAX = 256  # calls over Flight: each holds one of gRPC's threads, which sleeps
TASKS_MAX = 2048  # over HTTP: each is a task of the event loop
_POLL_S, _LOOK_S = 0.001, 0.25
_LATE_S = 5.0
_NOTHING = (-1, -1, 0.0)


class Looks(Protocol):
    """Interface to the progress of the table: a Lookup."""

    budget: Budget

    @property
    def table(self) -> MappedTable:
        """The table as it is mapped now."""

    def lacks(self, wanted: Wanted, /) -> str | None:
        """Describe what is still missing; None if nothing is."""

    def lacks_now(self, wanted: Wanted, /) -> str | None:
        """Like `lacks`; raise the reason as an error if waiting makes no sense."""

    def expect(self, wanted: Wanted, /) -> None:
        """An error where something is missing."""


@dataclass(eq=False)
class _Waiter:
    wanted: Wanted
    deadline: float
    wake: Callable[[], None]
    gone: Callable[[], bool]


def _stays() -> bool:
    return False


class WaitingRoom:
    """Waiting calls of this process; a thread of its own polls the table, only while a call waits."""

    def __init__(self, lookup: Looks) -> None:
        self._lookup = lookup
        self._waiters: dict[bool, set[_Waiter]] = {True: set(), False: set()}  # those with a thread, and the others
        self._lock = threading.Lock()
        self._somebody = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen = _NOTHING

    def __len__(self) -> int:
        return sum(map(len, self._waiters.values()))

    def wait(self, wanted: Wanted, gone: Callable[[], bool] | None = None) -> None:
        """Return when the table is as far as wanted; `gone`: whether nobody waits for the answer any more.

        Raises: NotYetError at the timeout, or what the table's look raises; ExhaustedError where too many wait.
        """
        if self._lookup.lacks_now(wanted) is None:
            return
        event = threading.Event()
        waiter = self._enter(wanted, event.set, True, gone or _stays)
        began_s = time.perf_counter()
        try:
            event.wait(wanted.timeout_s + _LATE_S)
        finally:
            self._leave(waiter, True)
            add_waited(time.perf_counter() - began_s)
        self._lookup.expect(wanted)

    async def wait_as_task(self, wanted: Wanted) -> None:
        """Like `wait`, in an event loop."""
        if self._lookup.lacks_now(wanted) is None:
            return
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(ready.set)

        waiter = self._enter(wanted, wake, False, _stays)
        began_s = time.perf_counter()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(ready.wait(), wanted.timeout_s + _LATE_S)
        finally:
            self._leave(waiter, False)
            add_waited(time.perf_counter() - began_s)
        self._lookup.expect(wanted)

    def _enter(self, wanted: Wanted, wake: Callable[[], None], thread: bool, gone: Callable[[], bool]) -> _Waiter:
        waiter = _Waiter(wanted, time.monotonic() + wanted.timeout_s, wake, gone)
        most, waiting = THREADS_MAX if thread else TASKS_MAX, self._waiters[thread]
        with self._lock:
            if len(waiting) < most:
                waiting.add(waiter)
                self._seen = _NOTHING  # the table may have come to that since the caller looked
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="freshet-waiting", daemon=True)
                    self._thread.start()
                self._somebody.set()
                return waiter
        self._lookup.budget.refuse(
            f"min_epoch, min_position: {most} calls wait already; try again in a moment", again=True
        )

    def _leave(self, waiter: _Waiter, thread: bool) -> None:
        with self._lock:
            self._waiters[thread].discard(waiter)

    def _run(self) -> None:
        while True:
            with self._lock:
                waiters = [one for each in self._waiters.values() for one in each]
                if not waiters:
                    self._somebody.clear()
            if not waiters:
                self._seen = _NOTHING
                self._somebody.wait()
                continue
            self._look(waiters)
            time.sleep(_POLL_S)

    def _look(self, waiters: list[_Waiter]) -> None:
        """Wake those whose time has come; whoever is woken looks for himself."""
        now = time.monotonic()
        try:
            table = self._lookup.table
            epoch, positions = table.epoch, table.word(T_POSITION_SEQ)
        except FreshetError:  # the table has gone: who waits is to say so
            epoch = positions = -1
        changed = (epoch, positions) != self._seen[:2] or now - self._seen[2] > _LOOK_S
        if changed:
            self._seen = (epoch, positions, now)
        for one in waiters:
            if now >= one.deadline or (changed and (one.gone() or self._is_served(one, epoch))):
                one.wake()

    def _is_served(self, one: _Waiter, epoch: int) -> bool:
        if 0 <= epoch < one.wanted.min_epoch:
            return False
        try:
            return self._lookup.lacks(one.wanted) is None
        except FreshetError:
            return True
