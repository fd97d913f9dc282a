"""Events and latencies of the last seconds, for a status that others read whenever they like."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from freshet.operators.telemetry.status_file import BUCKETS, percentile_ms

EVENTS_S, LATENCIES_S = 5.0, 60.0  # the time that each covers
_LATENCY_SAMPLES = 6
SILENT_S = 10.0  # a part that has written nothing for so long has had no epoch
# Fields of a status, beside those that count since the job began.
RECENT: dict[str, Any] = {
    "events_before": tuple[float, int],
    "latency_before": tuple[float, tuple[list[int], list[int]]],
}


class Recent:
    """Samples of a sink part: events with their time, and latencies by bucket.

    Units: times in seconds since 1970.
    """

    def __init__(self) -> None:
        self._events: deque[tuple[float, int]] = deque()
        self._latencies: deque[tuple[float, np.ndarray]] = deque()

    def begin(self, now_s: float, latencies: np.ndarray) -> None:
        """Forget all samples, since a restore has set the counts back, to these."""
        self._events.clear()
        self._latencies.clear()
        self._latencies.append((now_s, latencies.copy()))

    def figures(self, now_s: float, events: int, latencies: np.ndarray) -> dict[str, Any]:
        """Take the counts of now; return what they were at the begin of the last seconds."""
        if self._events and now_s < self._events[-1][0]:  # the clock was set back
            self._events.clear()
            self._latencies.clear()
        self._events.append((now_s, events))
        while len(self._events) > 2 and self._events[1][0] <= now_s - EVENTS_S:
            self._events.popleft()
        if not self._latencies or now_s - self._latencies[-1][0] >= LATENCIES_S / _LATENCY_SAMPLES:
            self._latencies.append((now_s, latencies.copy()))
        while len(self._latencies) > 2 and self._latencies[1][0] <= now_s - LATENCIES_S:
            self._latencies.popleft()
        since_s, counts = self._latencies[0]
        used = np.flatnonzero(counts)
        return {
            "events_before": self._events[0],
            "latency_before": (since_s, (used.tolist(), counts[used].tolist())),
        }


def events_per_s(status: Mapping[str, Any], now_s: float | None = None) -> float:
    """Return the events a second of a sink part that is at work, by its last status; 0 after a while without one."""
    now_s = time.time() if now_s is None else now_s
    if "events_before" not in status or now_s - status["time"] > SILENT_S:
        return 0.0
    began_s, before = status["events_before"]
    seconds = max(now_s, status["time"]) - began_s
    return max(0.0, (status["events"] - before) / seconds) if seconds > 0 else 0.0


def counts_of(buckets: tuple[list[int], list[int]]) -> np.ndarray:
    """Return counts of latencies by bucket from [buckets, counts]."""
    counts = np.zeros(BUCKETS, np.int64)
    which, numbers = np.array(buckets, np.int64).reshape(2, -1)
    counts[which] = numbers
    return counts


def recent_percentiles(whole: np.ndarray, before: np.ndarray) -> dict[str, float | None]:
    """Return median and 99th percentile of what was counted since `before`; of all where that is nothing."""
    counts = np.maximum(whole - before, 0)
    counts = counts if counts.any() else whole
    return {f"freshness_ms_p{percent}": percentile_ms(counts, percent) for percent in (50, 99)}
