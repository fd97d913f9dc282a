"""A clock for rings that stands still: time passes only while a sender waits, and then as long as it may."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from freshet.operators.flink import neighbours, shared_rings
from freshet.operators.flink.shared_rings import SendingRing

_hear = SendingRing.hear


@contextmanager
def still_clock() -> Iterator[None]:
    """Have waits for rings that were found already return at once, with all of their time gone."""
    now_s = time.monotonic()

    def monotonic() -> float:
        return now_s

    def hear(ring: SendingRing, timeout_s: float = 0.0) -> None:
        nonlocal now_s
        _hear(ring)
        now_s += timeout_s

    clock = SimpleNamespace(monotonic=monotonic, perf_counter=monotonic)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shared_rings, "time", clock)
        patched.setattr(neighbours, "time", clock)
        patched.setattr(SendingRing, "hear", hear)
        yield
