"""Shows what a long check is doing, from a thread of its own: much of its time goes into calls that report nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from freshet.job.console import LIVE_INTERVAL_S, ProgressDisplay

Tell = Callable[[str], None]


class CheckProgress:
    """Shows the newest status text, with the seconds since the check began; a context manager."""

    def __init__(self, progress: ProgressDisplay | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress or ProgressDisplay("freshet check")
        self._clock, self._began = clock, clock()
        self._text = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="freshet-check-progress", daemon=True)

    def __enter__(self) -> CheckProgress:
        self._progress.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._progress.close()

    def tell(self, text: str) -> None:
        """Set the status text."""
        self._text = text

    def show(self) -> None:
        """Show the newest text."""
        if self._text:
            self._progress.update(f"{self._text}  {self._clock() - self._began:,.0f} s")

    def _run(self) -> None:
        while not self._ended.wait(LIVE_INTERVAL_S):
            self.show()
