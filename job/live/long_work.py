"""Progress of work that is mostly short: nothing is shown before it has lasted for some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from freshet.job.console import ProgressDisplay

_SHORT_S = 5.0


class LongWork:
    """Shows what is reported, once the work is long; a context manager."""

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._label, self._clock, self._began = label, clock, clock()
        self._display: ProgressDisplay | None = None

    def report(self, text: str) -> None:
        """Take the newest line."""
        if self._display is None and self._clock() - self._began < _SHORT_S:
            return
        if self._display is None:
            self._display = ProgressDisplay(self._label)
            self._display.__enter__()
        self._display.update(text)

    def __enter__(self) -> LongWork:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._display is not None:
            self._display.close()
