"""Callbacks that keep nothing alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable


def weakly(method: Callable[[], None]) -> Callable[[], None]:
    """A method that does nothing once its object is gone: a thread that calls it does not keep the object alive."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        alive = reference()
        if alive is not None:
            alive()

    return call
