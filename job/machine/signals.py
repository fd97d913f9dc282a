"""Signal handlers for as long as a block runs; only in the main thread, which alone may set them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)  # by which a job is stopped

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def handled(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Have the handler called at these signals, and the former ones again afterwards."""
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        _set(previous)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list instead of dying of them; a second one kills as usual."""
    caught: list[int] = []
    previous = {number: signal.getsignal(number) for number in STOPS}

    def catch(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        _set(previous)

    with handled(catch, *STOPS):
        yield caught


def _set(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
