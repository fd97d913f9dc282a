"""Operators of this process that are opening: events read before all of them are ready would only wait."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

_loading: set[int] = set()


@contextlib.contextmanager
def counted_as_loading(operator: object) -> Iterator[None]:
    """Count an operator for as long as it opens."""
    _loading.add(id(operator))
    try:
        yield
    finally:
        _loading.discard(id(operator))


def await_others(timeout_s: float = 120.0) -> None:
    """Let the other operators of this process load first."""
    deadline = time.monotonic() + timeout_s
    while _loading and time.monotonic() < deadline:
        time.sleep(0.01)
