"""Requests that a server has answered, by kind: how many, how they ended, and how long they took.

The time for which a caller asked to wait, for an epoch or a position, does not count.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

LOOKUP, GET = "flight lookup", "flight get"
COMPUTED = ("nearest", "score", "what_if")  # requests whose answers are computed: see requests.py


def path_of(name: str) -> str:
    """Return the path of a request whose answer is computed."""
    return name.replace("_", "-")


_PATHS = {
    "embeddings": "http embeddings",
    "get-online-features": "http features",
    **{path_of(name): f"http {path_of(name)}" for name in COMPUTED},
    "rows": "http rows",
    "changes": "http changes",
    "healthz": "http health",
    "readyz": "http health",
    "metrics": "http metrics",
}
OTHER = "http other"
KINDS = (LOOKUP, GET, *dict.fromkeys(_PATHS.values()), OTHER)
ENDS = OK, REFUSED, FAILED = "ok", "refused", "failed"  # the last: by the server's fault
BOUNDS_S = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_NUMBER = {kind: number for number, kind in enumerate(KINDS)}
_SUM_US = len(ENDS)
_BUCKETS = _SUM_US + 1
_OF_KIND = _BUCKETS + len(BOUNDS_S) + 1
WORDS = _OF_KIND * len(KINDS)  # of a process
_waited_s: ContextVar[float] = ContextVar("waited_s", default=0.0)  # of this thread, or of this task


class Begun(NamedTuple):
    """Begin of a call: seconds of `time.perf_counter`, and the time that its thread or task had waited before."""

    clock_s: float
    waited_s: float


def begin() -> Begun:
    """Return the present as the begin of a call."""
    return Begun(time.perf_counter(), _waited_s.get())


def add_waited(seconds: float) -> None:
    """Note that the call of this thread or task has waited on purpose."""
    _waited_s.set(_waited_s.get() + seconds)


@dataclass(frozen=True, slots=True)
class KindOfCalls:
    """Calls of one kind: their number by end, by upper bound of the time (`BOUNDS_S`, then none), and all seconds."""

    kind: str
    ends: dict[str, int]
    within: list[int]
    seconds: float


class Calls:
    """Counts calls in memory that all processes of a server share; safe for threads.

    Invariant: the words of a process are written by it alone.
    """

    def __init__(self, words: memoryview, number: int) -> None:
        """Count for the process `number`; `words` are int64, `WORDS` of each process."""
        self._words, self._own = words, WORDS * number
        self._lock = threading.Lock()

    def count(self, kind: str, end: str, begun: Begun) -> None:
        """Count a call that began then, in this thread or task."""
        seconds = time.perf_counter() - begun.clock_s - (_waited_s.get() - begun.waited_s)
        at, bucket = self._own + _OF_KIND * _NUMBER[kind], bisect_left(BOUNDS_S, seconds)
        with self._lock:
            self._words[at + ENDS.index(end)] += 1
            self._words[at + _SUM_US] += int(seconds * 1e6)
            self._words[at + _BUCKETS + bucket] += 1

    def all(self) -> Iterator[KindOfCalls]:
        """Return the calls of all processes, by kind; without kinds of which there was none."""
        every = self._words.tolist()
        for kind, number in _NUMBER.items():
            first = _OF_KIND * number
            sums = [sum(every[first + word :: WORDS]) for word in range(_OF_KIND)]
            if any(sums):
                ends = dict(zip(ENDS, sums[:_SUM_US], strict=True))
                yield KindOfCalls(kind, ends, sums[_BUCKETS:], sums[_SUM_US] / 1e6)


def kind_of_path(path: str) -> str:
    """Return the kind of an HTTP request."""
    return _PATHS.get(path.removeprefix("/v1").lstrip("/").partition("/")[0], OTHER)


def end_of_status(status: int) -> str:
    """Return how an HTTP request has ended; that an epoch did not come in the client's time is no fault."""
    return OK if status < 400 else REFUSED if status < 500 or status == HTTPStatus.GATEWAY_TIMEOUT else FAILED
