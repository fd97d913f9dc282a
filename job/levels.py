"""What waits in a Flink job, in its operators and between them: the `levels` of `run.json`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from operators.levels import Told
from operators.profile import read_profiles

IN_FLIGHT = "in_flight_bytes"
LOOK_S = 1.0


def operator_levels(out: Path) -> dict[str, Told]:
    """What waits in the operators now, by OPERATOR.NAME, over all parts and subtasks."""
    profiles = read_profiles(out)
    return {f"{operator}.{name}": level for operator, one in profiles.items() for name, level in one["levels"].items()}


def in_flight_bytes(out: Path) -> int:
    """Bytes that an operator has handed to Flink for another task, and the other one has not taken.

    Each operator tells its own count twice a second, so while data moves this is right to half a second of it.
    """
    under_way = sum(one["bytes_out"] - one["bytes_away"] - one["bytes_in"] for one in read_profiles(out).values())
    return max(0, under_way)


class LevelWatch:
    """Looks at a running job once a second: nobody but an onlooker sees how much is under way between operators."""

    def __init__(self, out: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.network_bytes: Callable[[], int | None] = lambda: None  # Flink's network memory, where it is known
        self._out, self._clock = out, clock
        self._looked_at = float("-inf")
        self._in_flight: Told = {"now": 0, "peak": 0, "bound": None}

    def look(self) -> None:
        """See how much is under way, if it is time to."""
        if self._clock() - self._looked_at < LOOK_S:
            return
        self._looked_at = self._clock()
        if self._in_flight["bound"] is None:
            self._in_flight["bound"] = self.network_bytes()
        self._see()

    def told(self) -> dict[str, Told]:
        """All levels now; peaks are those since the job's last restart, except of what is under way."""
        self._see()
        return {IN_FLIGHT: dict(self._in_flight), **operator_levels(self._out)}

    def _see(self) -> None:
        now = in_flight_bytes(self._out)
        self._in_flight |= {"now": now, "peak": max(now, self._in_flight["peak"] or 0)}
