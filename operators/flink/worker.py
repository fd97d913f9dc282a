"""One Python thread per operator instance, on which everything numeric runs.

A thread that Java started may hang for good when an extension (numba, pyarrow, pybind11) raises or re-acquires the
interpreter lock on it, so Flink's own threads only move bytes and state, and hand the rest over to a `Worker`.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from freshet.files.owner_only import write_for_owner_only
from freshet.operators.threads import next_of

T = TypeVar("T")

# A hand-over beside busy Python threads waits for the switch interval; the default of 5 ms is half an epoch.
SWITCH_INTERVAL_S = 5e-4
IDLE_S = 0.5


class WorkerError(RuntimeError):
    """Error of a call on the worker, as one line of text: no part of the original reaches Flink's thread."""


class Worker:
    """Runs calls one after the other on a thread of its own.

    Invariant: `call` returns what the function returned, or raises `WorkerError`; calls never overlap.
    """

    def __init__(self, name: str, errors: Path | None = None, on_idle: Callable[[], None] = lambda: None) -> None:
        """Start the thread; full tracebacks are appended to the file `errors`.

        `on_idle` is called on the thread about twice a second while nobody calls, also while the caller's own thread
        waits elsewhere. It must not be a method of whoever stops this worker, which would then never be dropped.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        write_for_owner_only()  # also in a TaskManager that others have started
        self.name = name
        self.busy_s = 0.0  # in calls so far; true whenever no call is under way
        self._errors, self._on_idle = errors, on_idle
        self._calls: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        self._closed = self._idle_failed = False
        # A daemon: a worker that is stuck in a long call must not keep a dying process alive.
        self._thread = threading.Thread(target=self._run, name=f"freshet-{name}", daemon=True)
        self._thread.start()

    def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Run `fn(*args)` on the worker and wait for it.

        Raises: WorkerError with the type and message of what `fn` raised.
        """
        if self._closed:
            msg = f"{self.name}: called after it was stopped"
            raise WorkerError(msg)
        self._calls.put((fn, args))
        done, value = self._results.get()
        if not done:
            raise WorkerError(value)
        result: T = value
        return result

    def stop(self, timeout_s: float = 10.0) -> None:
        """Let the thread end; safe to call twice."""
        if not self._closed:
            self._closed = True
            self._calls.put(None)
            self._thread.join(timeout_s)

    def _idle(self) -> None:
        try:
            self._on_idle()
            self._idle_failed = False
        except BaseException as error:  # nobody waits for it; the thread must go on, for the next call
            if not self._idle_failed:  # twice a second the same would fill what disk is left
                print(self._describe(error), file=sys.stderr)
            self._idle_failed = True

    def _run(self) -> None:
        while (item := next_of(self._calls, IDLE_S, self._idle)) is not None:
            fn, args = item
            began = time.perf_counter()
            try:
                result: tuple[bool, Any] = (True, fn(*args))
            except BaseException as error:  # whatever it is, the waiting thread must hear of it
                result = (False, self._describe(error))
            self.busy_s += time.perf_counter() - began
            del item, fn, args  # or the last blocks of an idle operator stay in memory
            self._results.put(result)
            del result

    def _describe(self, error: BaseException) -> str:
        """One line for the user; the traceback goes to the file."""
        if self._errors is not None:
            try:
                self._errors.parent.mkdir(parents=True, exist_ok=True)
                with self._errors.open("a", encoding="utf-8") as file:
                    file.write(f"--- {self.name}\n{''.join(traceback.format_exception(error))}\n")
            except OSError as failure:
                print(f"{self.name}: {self._errors}: {failure}", file=sys.stderr)
        text = " ".join(str(error).split()) or "no message"
        return f"{self.name}: {type(error).__name__}: {text}"
