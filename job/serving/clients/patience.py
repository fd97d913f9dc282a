"""Ends lookup streams whose server does not answer in time.

gRPC limits the time of a whole call, and a stream is one call for as long as its client lives; a server
that is stopped keeps its connections, so that nobody else would ever end the wait.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LOOK_S = 0.2
NEVER = float("inf")


class Patient:
    """A stream that is waited for at most so long at a time: `within`."""

    def __init__(self, reader: Any) -> None:
        """`reader` has `cancel`, which any thread may call; whoever waits gets an error then."""
        self.reader = reader
        self._due = NEVER
        _watch(self)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Wait for an answer; TimeoutError instead of the error that an end by us brings."""
        self._due = time.monotonic() + seconds
        try:
            yield
        except Exception as error:
            if self._due == -NEVER:
                raise late(seconds) from error
            raise
        finally:
            self._due = NEVER

    def end_if_due(self, now: float) -> None:
        """Cancel the stream if its answer is late."""
        if now > self._due:
            self._due = -NEVER
            self.reader.cancel()


def late(seconds: float) -> TimeoutError:
    """Describe a server that has not answered in time."""
    return TimeoutError(f"no answer for {seconds:g} s: it is stopped, or far too busy")


_streams: weakref.WeakSet[Patient] = weakref.WeakSet()
_lock = threading.Lock()
_thread: threading.Thread | None = None


def _watch(stream: Patient) -> None:
    """Have a thread look at the stream; one does so for all streams of the process."""
    global _thread
    with _lock:
        _streams.add(stream)
        if _thread is None or not _thread.is_alive():  # of a process that forked, too
            _thread = threading.Thread(target=_look, name="freshet-patience", daemon=True)
            _thread.start()


def _look() -> None:
    while True:
        time.sleep(_LOOK_S)
        _end_those_due()


def _end_those_due() -> None:
    """Look at all streams once; none is held between two looks, so that one that nobody uses any more ends."""
    with _lock:
        streams = list(_streams)
    now = time.monotonic()
    for stream in streams:
        stream.end_if_due(now)
