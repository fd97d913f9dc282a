"""Streams that are waited for, and no longer than somebody uses them."""

from __future__ import annotations

import gc
import time
import weakref

from freshet.job.serving.clients import patience


class Reader:
    """A reader that nobody cancels."""

    def cancel(self) -> None:
        raise AssertionError("it was not waited for")


def test_a_stream_that_nobody_uses_any_more_goes() -> None:
    """The server waits for its end; the thread that looks at streams must not keep the last one."""
    reader = Reader()
    stream, gone = patience.Patient(reader), weakref.ref(reader)
    time.sleep(3 * patience._LOOK_S)
    del stream, reader
    deadline = time.monotonic() + 5
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert gone() is None
