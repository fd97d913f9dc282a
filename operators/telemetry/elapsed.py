"""Time since a stamp of the wall clock, which may have been set meanwhile."""

from __future__ import annotations

from collections.abc import Callable

_SLACK_MS = 1000.0  # that a clock is corrected by little by little, or that the clocks of two hosts differ by
_SETTINGS_MAX = 16  # of the clock that are remembered


class Elapsed:
    """The time since stamps, by the monotonic clock.

    The difference of both clocks changes when the wall clock is set. A stamp may be of any setting that this process
    has seen: the time since it is the shortest one that is possible. So processes of one host need not share a clock
    other than the wall's.
    """

    def __init__(self, now_ms: float, monotonic_ms: Callable[[], float]) -> None:
        """`now_ms`: milliseconds since 1970, as both clocks are read."""
        self._monotonic_ms = monotonic_ms
        self._offsets = [now_ms - monotonic_ms()]

    def since_ms(self, stamp_ms: float, now_ms: float) -> float | None:
        """Return the milliseconds since a stamp; None for one of a host whose clock is ahead of this one."""
        monotonic = self._monotonic_ms()
        offset = now_ms - monotonic
        if abs(offset - self._offsets[-1]) <= _SLACK_MS:
            self._offsets[-1] = offset
        else:
            self._offsets = [*self._offsets[1 - _SETTINGS_MAX :], offset]
        possible = [found for one in self._offsets if (found := monotonic + one - stamp_ms) >= -_SLACK_MS]
        return max(0.0, min(possible)) if possible else None
