"""Levels and traffic of an operator as Flink's own metrics, for its web pages and its REST interface.

Their values are set from Flink's thread of the operator, at most twice a second: a gauge that asks Python would do so
on a thread of Java's. So they stand still while the operator itself waits; the profile files do not.
"""

from __future__ import annotations

import time
from typing import Any

from pyflink.datastream import RuntimeContext

from freshet.operators.telemetry.profile import COUNTS, Profile

GROUP = "freshet"
INTERVAL_S = 0.5


class OperatorMetrics:
    """The metrics `OPERATOR.freshet.NAME` of one subtask: what its profile counts, and of each level three.

    Names: those of the profile's counts; of a level LEVEL, LEVEL_peak and, where it has one, LEVEL_bound.
    """

    def __init__(self, context: RuntimeContext, profile: Profile) -> None:
        self._group = context.get_metrics_group().add_group(GROUP)
        self._profile = profile
        self._gauges: dict[str, Any] = {}
        self._set_at = float("-inf")

    def update(self) -> None:
        """Set all values when it is time to; on Flink's thread only."""
        now = time.monotonic()
        if now - self._set_at < INTERVAL_S:
            return
        self._set_at = now
        for name in COUNTS:
            self._set(name, getattr(self._profile, name))
        for name, level in self._profile.all_levels().items():
            self._set(name, level["now"])
            self._set(f"{name}_peak", level["peak"])
            self._set(f"{name}_bound", level["bound"])

    def _set(self, name: str, value: int | None) -> None:
        if value is None:
            return
        gauge = self._gauges.get(name)
        if gauge is None:
            # PyFlink's name for a gauge of Java's whose value Python sets
            gauge = self._gauges[name] = self._group.distribution(name)
        gauge.update(int(value))
