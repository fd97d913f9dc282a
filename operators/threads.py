"""Idle work of threads that serve a queue, without keeping the owner of the queue alive."""

from __future__ import annotations

import queue
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def next_of(items: queue.Queue[T] | queue.SimpleQueue[T], idle_s: float, on_idle: Callable[[], None]) -> T:
    """The next item; while there is none, `on_idle` is called every `idle_s` seconds."""
    while True:
        try:
            return items.get(timeout=idle_s)
        except queue.Empty:
            on_idle()


def weakly(method: Callable[[], None]) -> Callable[[], None]:
    """A method that does nothing once its object is gone: a thread that calls it does not keep the object alive."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        alive = reference()
        if alive is not None:
            alive()

    return call
