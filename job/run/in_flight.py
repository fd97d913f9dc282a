"""Data that waits in a Flink job, in its operators and between them: the `levels` of `run.json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from freshet.operators.telemetry.level import Told
from freshet.operators.telemetry.profile import read_profiles

IN_FLIGHT = "in_flight_bytes"
LOOK_S = 1.0
Profiles = Mapping[str, Mapping[str, Any]]  # what `read_profiles` returns


def operator_levels(profiles: Profiles) -> dict[str, Told]:
    """Return the levels of the operators, by OPERATOR.NAME, over all parts and subtasks."""
    return {f"{operator}.{name}": level for operator, one in profiles.items() for name, level in one["levels"].items()}


def in_flight_bytes(profiles: Profiles) -> int:
    """Return the bytes that operators have passed to Flink and other tasks have not received yet.

    Each operator reports its own count twice a second: while data moves, the sum is off by up to half a second of
    traffic.
    """
    return max(0, sum(one["bytes_out"] - one["bytes_away"] - one["bytes_in"] for one in profiles.values()))


class LevelWatch:
    """Looks at a running job once a second, since no operator knows how much is under way between all of them."""

    def __init__(self, out: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.network_bytes: Callable[[], int | None] = lambda: None  # Flink's network memory, where it is known
        self._out, self._clock = out, clock
        self._looked_at = float("-inf")
        self._in_flight: Told = {"now": 0, "peak": 0, "bound": None}

    def look(self) -> None:
        """Count the data under way, if the last count was a second ago."""
        if self._clock() - self._looked_at < LOOK_S:
            return
        self._looked_at = self._clock()
        if self._in_flight["bound"] is None:
            self._in_flight["bound"] = self.network_bytes()
        self._see(read_profiles(self._out))

    def told(self) -> dict[str, Told]:
        """Return all levels now; peaks are those since the job's last restart, except of data under way."""
        profiles = read_profiles(self._out)
        self._see(profiles)
        return {IN_FLIGHT: dict(self._in_flight), **operator_levels(profiles)}

    def _see(self, profiles: Profiles) -> None:
        now = in_flight_bytes(profiles)
        self._in_flight |= {"now": now, "peak": max(now, self._in_flight["peak"] or 0)}
