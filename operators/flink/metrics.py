"""Levels and traffic of an operator as Flink's own metrics, for its web pages and its REST interface.

Their values are set from Flink's thread of the operator, at most twice a second: a gauge that asks Python would do so
on a thread of Java's. So they stand still while the operator itself waits; the profile files do not.
"""

from __future__ import annotations

import time
from typing import Any

from pyflink.datastream import RuntimeContext

from freshet.operators.telemetry.figures import Figures, cumulative
from freshet.operators.telemetry.profile import COUNTS, Profile

GROUP = "freshet"
INTERVAL_S = 0.5
METER_S = 10  # the time that a rate covers; Java updates it every five seconds
# Name of a load's rate, by that of its sum, and the units in a sum of 1: shares are given in milliseconds a second.
_METERS = {
    "busy_s": ("busy_ms_per_s", 1000),
    "blocked_s": ("blocked_ms_per_s", 1000),
    "messages": ("messages_per_s", 1),
    "bytes": ("bytes_per_s", 1),
}


class OperatorMetrics:
    """The metrics `OPERATOR.freshet.NAME` of one subtask: what its profile counts, its levels, loads and figures.

    Names: those of the profile's counts; of a level LEVEL, LEVEL_peak and, where it has one, LEVEL_bound; of a load
    the names in `_METERS`, after PLACE_ if it is not the operator's own. Java lets these fall while nothing is counted.
    """

    def __init__(self, context: RuntimeContext, profile: Profile) -> None:
        self._group = context.get_metrics_group().add_group(GROUP)
        self._profile = profile
        self._gauges: dict[str, Any] = {}
        self._counters: dict[tuple[str, tuple[str, str] | None], tuple[Any, int]] = {}
        self._meters: dict[str, tuple[Any, int]] = {}  # with what was counted so far
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

        self._count_figures(self._profile.figures)
        for place, sums in self._profile.loads.sums().items():
            prefix = "" if place == self._profile.operator else f"{place.partition('-')[0]}_"
            for total, (name, units) in _METERS.items():
                if total in sums:
                    self._mark(prefix + name, int(sums[total] * units))

    def _count_figures(self, figures: Figures) -> None:
        """Give counts as counters: of rejected records by `reason` too, of latencies by `le` (the bound in seconds)."""
        for name, total in figures.counts.items():
            self._count(name, total)
        for name, size in figures.gauges.items():
            self._set(name, size)
        for reason, total in figures.reasons.items():
            self._count("rejected", total, ("reason", reason))
        for name, latencies in figures.latencies.items():
            for bound, total in cumulative(latencies):
                self._count(f"{name}_bucket", total, ("le", bound))
            self._count(f"{name}_count", sum(latencies[1]))

    def _count(self, name: str, total: int, label: tuple[str, str] | None = None) -> None:
        counter, before = self._counters.get((name, label)) or (None, 0)
        if counter is None:
            group = self._group if label is None else self._group.add_group(*label)
            counter = group.counter(name)
        if total != before:  # a restore may go back a little
            counter.inc(total - before)
        self._counters[name, label] = counter, total

    def _mark(self, name: str, total: int) -> None:
        meter, before = self._meters.get(name) or (self._group.meter(name, METER_S), 0)
        self._meters[name] = meter, max(total, before)
        if total > before:
            meter.mark_event(total - before)

    def _set(self, name: str, value: int | None) -> None:
        if value is None:
            return
        gauge = self._gauges.get(name)
        if gauge is None:
            # PyFlink's name for a gauge of Java's whose value Python sets
            gauge = self._gauges[name] = self._group.distribution(name)
        gauge.update(int(value))
