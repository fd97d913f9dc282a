"""Bytes of requests and answers: upper bounds, computed before either is made, and one budget for those in flight.

HTTP and Flight share the budget, in all processes of a server.
"""

from __future__ import annotations

import mmap
import os
import threading
from types import TracebackType
from typing import NamedTuple, NoReturn

import pyarrow as pa

from freshet.job.serving.bounds import calls
from freshet.job.serving.protocol.errors import ExhaustedError

ONE_BYTES_MAX = 256 << 20  # of one request, or of one answer
ALL_BYTES_MAX = 1 << 30  # of all of them together
FREE_BYTES = 64 << 10  # what takes less is not counted: its thread or connection takes more
SMALL_BYTES = 1 << 20
KEPT_FOR_SMALL = ALL_BYTES_MAX // 8  # which larger ones can't take: who reads nothing must not stop single lookups
RETRY_S = 1  # after which a client may ask again
OBJECT_BYTES = 256  # of an id in the lists and sets that a JSON answer is made from, and of a nested list or object
_PARSED = 16  # bytes of Python's numbers and strings, for each character of JSON
NUMBER = 21  # characters of an integer of 64 bits, with a comma
FLOAT = 16  # of a float of 32 bits, with a comma
_OF_ROW = 64  # the names of a JSON row's fields, and what stands around them
_UNPACKED_AT_ONCE = 2
_WORD = 8
_BYTES, _REFUSED, _WORDS = 0, 1, 2


class RowShape(NamedTuple):
    """Contents of a row of an answer: the numbers of its embedding and of its logits."""

    width: int
    logits: int

    @property
    def in_arrow(self) -> int:
        """Bytes of a row as Arrow columns, but for the text of its id."""
        return 16 + 4 * self.width + (4 * self.logits + 8 if self.logits else 0)

    @property
    def in_json(self) -> int:
        """Characters of a row as a JSON object, but for its id."""
        return _OF_ROW + NUMBER + FLOAT * self.width + (FLOAT * self.logits + NUMBER if self.logits else 0)


def parsed(raw: bytes) -> int:
    """Bytes of what JSON of these bytes becomes in Python."""
    return _PARSED * len(raw) + OBJECT_BYTES * (raw.count(b"[") + raw.count(b"{"))


class Budget:
    """Data in flight, counted before it is allocated; safe for threads.

    Invariant: the words of a process are written by it alone. It adds first and looks at the sum then, so that
    processes which do so at once may both be refused, but never exceed the limit.
    """

    def __init__(self, number: int = 0, processes: int = 1, fd: int | None = None) -> None:
        """Count for the process `number` of several; `fd`: of the memory that they share (`shared_memory`)."""
        size = _WORD * (_WORDS + calls.WORDS) * processes
        raw = memoryview(bytearray(size)) if fd is None else memoryview(mmap.mmap(fd, size))
        words = raw.cast("q")
        self._words, of_calls = words[: _WORDS * processes], words[_WORDS * processes :]
        self.calls = calls.Calls(of_calls, number)
        self._own = _WORDS * number
        self._lock = threading.RLock()  # a collection of garbage amid a count may give bytes back in the same thread

    @property
    def in_flight(self) -> int:
        """Bytes in flight, in all processes."""
        return sum(self._words[_BYTES::_WORDS].tolist())

    @property
    def refused(self) -> int:
        """Requests that were refused, in all processes."""
        return sum(self._words[_REFUSED::_WORDS].tolist())

    def figures(self) -> dict[str, int]:
        """Return the figures as health and metrics show them."""
        return {"bytes_in_flight": self.in_flight, "bytes_in_flight_limit": ALL_BYTES_MAX, "refused": self.refused}

    def take(self, size: int, what: str, before: int = 0) -> None:
        """Count bytes that are about to be made, until they are given back; `before`: those in whose place they come.

        Raises: ExhaustedError where they are too many, before anything is made; what was counted before still is.
        """
        more = _counted(size) - _counted(before)
        if more <= 0:
            self._uncount(-more)
            return
        self.check(size, what)
        limit = ALL_BYTES_MAX if size <= SMALL_BYTES else ALL_BYTES_MAX - KEPT_FOR_SMALL
        with self._lock:
            self._words[self._own + _BYTES] += more
            total = self.in_flight
            if total <= limit:
                return
            self._words[self._own + _BYTES] -= more
        self.refuse(
            f"{what}: {size:,} bytes beside the {total - more - _counted(before):,} in flight are more than {limit:,}; "
            f"try again in {RETRY_S} s",
            again=True,
        )

    def check(self, size: int, what: str) -> None:
        """Raise ExhaustedError if one request or answer can never have room for `size` bytes."""
        if size > ONE_BYTES_MAX:
            self.refuse(
                f"{what}: up to {size:,} bytes, and one request or answer has at most {ONE_BYTES_MAX:,}; "
                "ask for less at once",
                again=False,
            )

    def give_back(self, size: int) -> None:
        """The inverse of `take`."""
        self._uncount(_counted(size))

    def refuse(self, text: str, again: bool) -> NoReturn:
        """Count a refusal.

        Raises: ExhaustedError, always.
        """
        with self._lock:
            self._words[self._own + _REFUSED] += 1
        raise ExhaustedError(text, again)

    def hold(self, size: int, what: str) -> Held:
        """Like `take`, and return an object that gives the bytes back.

        Raises: ExhaustedError.
        """
        self.take(size, what)
        return Held(self, size)

    def forget(self, number: int) -> None:
        """Give back what a process held that has ended."""
        self._words[_WORDS * number + _BYTES] = 0

    def _uncount(self, size: int) -> None:
        if size:
            with self._lock:
                self._words[self._own + _BYTES] -= size


def _counted(size: int) -> int:
    return size if size > FREE_BYTES else 0


class Held:
    """Bytes held of a budget, until `release`, the end of a `with` block, or until this object is collected."""

    def __init__(self, budget: Budget, size: int = 0) -> None:
        self._budget, self.size = budget, size

    def resize(self, size: int, what: str) -> None:
        """Hold another number of bytes.

        Raises: ExhaustedError; the old number is then still held.
        """
        self._budget.take(size, what, self.size)
        self.size = size

    def release(self) -> None:
        """Give the bytes back; further calls do nothing."""
        size, self.size = self.size, 0
        self._budget.give_back(size)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def __del__(self) -> None:
        # A stream whose client has gone before its first batch is never begun: no `finally` of it runs.
        self.release()


def shared_memory(processes: int) -> int:
    """Return a descriptor of memory in which `processes` processes count; children inherit it if it is passed."""
    fd = os.memfd_create("freshet-budget")
    os.ftruncate(fd, _WORD * (_WORDS + calls.WORDS) * processes)
    return fd


def unpack_few_at_once() -> None:
    """Bound how many compressed buffers of requests are unpacked at once.

    Arrow unpacks a batch before anybody can ask how large it becomes, in a pool of as many threads as there are
    processors. Each holds one buffer then, so fewer threads bound their sum.
    """
    pa.set_cpu_count(min(_UNPACKED_AT_ONCE, pa.cpu_count()))
