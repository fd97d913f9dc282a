"""Time that operators of Java take in the task of a Python operator."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyflink.datastream import RuntimeContext

from freshet.operators.flink.metrics import INTERVAL_S
from freshet.operators.telemetry.profile import Profile


class TaskClock:
    """Seconds of a task in which it neither waited (for input, or for its receivers) nor was in its Python operator.

    For a task with one Python operator. Flink counts the waits in milliseconds.
    """

    def __init__(
        self, context: RuntimeContext, profile: Profile, clock_s: Callable[[], float] = time.perf_counter
    ) -> None:
        task = context._runtime_context.getMetricGroup().getTaskIOMetricGroup()
        self._waits = task.getIdleTimeMsPerSecond(), task.getSoftBackPressuredTimePerSecond()
        self._profile, self._clock_s = profile, clock_s
        self._first_s: float | None = None
        self._looked_s = float("-inf")
        self.beside_s = 0.0

    def look(self) -> None:
        """Count, if the last time was half a second ago; on the task's thread only."""
        now_s = self._clock_s()
        if now_s - self._looked_s < INTERVAL_S:
            return
        self._looked_s = now_s
        waited_s = sum(int(wait.getAccumulatedCount()) for wait in self._waits) / 1e3
        at_s = now_s - waited_s - self._profile.own_s - self._profile.emit_s
        if self._first_s is None:
            self._first_s = at_s
        self.beside_s = max(self.beside_s, at_s - self._first_s)
