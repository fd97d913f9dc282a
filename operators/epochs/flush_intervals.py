"""Ends of intervals of epochs: the Partitioner decides, the cut log records them.

Both the coalesced output and the change log have intervals; files of the change log close where one ends.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

NO_LIMIT = 1 << 62  # a limit that no interval reaches


def monotonic_ms() -> float:
    """The clock of all intervals: it never goes back, and every process has its own zero."""
    return time.monotonic() * 1e3


@dataclass(slots=True)
class Intervals:
    """Ends an interval after `epochs` epochs, or `interval_ms` after the one before ended, and at every marker.

    `epochs` = 0: nobody wants them; `interval_ms` = 0: by count alone. The epoch after a pause ends its interval:
    what changes rarely is not held back.
    """

    epochs: int = 0
    interval_ms: float = 0.0
    last: int = 0  # the epoch that ended the last one
    _last_ms: float = 0.0

    def ends_with(self, epoch: int, now_ms: float, marker: bool) -> bool:
        """Return whether a new epoch ends an interval."""
        return bool(self.epochs) and (marker or epoch - self.last >= self.epochs or self._is_late(now_ms))

    def is_overdue(self, epoch: int, now_ms: float) -> bool:
        """Return whether the stream pauses, and epochs up to this one have waited long enough for an end."""
        return self.is_open(epoch) and self._is_late(now_ms)

    def is_open(self, epoch: int) -> bool:
        """Return whether the interval of this epoch, the newest, has not ended."""
        return bool(self.epochs) and epoch > self.last

    def note_end(self, epoch: int, now_ms: float) -> None:
        """An epoch that ends an interval was sealed."""
        self.last, self._last_ms = epoch, now_ms

    def _is_late(self, now_ms: float) -> bool:
        return 0 < self.interval_ms <= now_ms - self._last_ms
