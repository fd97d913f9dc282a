"""How long events take until somebody can see what they changed: two histograms of a sink part.

`applied`: from the arrival of an epoch's first event at the Parser until the Sink has the epoch's rows. `readable`:
until somebody else can read them: in the tail, or, where that could not be written, in a visible file.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from operators.telemetry.status_file import BUCKETS, bucket_of, percentile_ms
from state.table import TableSet

KINDS = {"latency": "readable", "applied": "applied"}  # the name in status and summary, and the histogram


class Latencies:
    """Counts epochs by latency, in durable tables; what a writer's thread has counted enters them by `settle`.

    Units: times in milliseconds since 1970, as arrivals are.
    """

    def __init__(self, tables: TableSet) -> None:
        names = {"applied": "latency", "readable": "readable"}  # the one table had its name when there was no other
        self._tables = {kind: tables.add(name, "i8") for kind, name in names.items()}
        for table in self._tables.values():
            table.reserve(BUCKETS)
        self._lock = threading.Lock()
        self._fresh = np.zeros(BUCKETS, np.int64)  # of `readable`, not in the table yet

    def applied(self, arrived_ms: int, now_ms: float) -> None:
        """The Sink has the rows of an epoch whose first event came then."""
        self._add("applied", np.array([bucket_of(now_ms - arrived_ms)]), np.ones(1, np.int64))

    def readable(self, arrived_ms: Sequence[int], now_ms: float) -> None:
        """Epochs became visible; called by any thread."""
        with self._lock:
            for one in arrived_ms:
                self._fresh[bucket_of(now_ms - one)] += 1

    def settle(self) -> None:
        """Take over what other threads have counted; called by the thread that owns the tables."""
        if not self._fresh.any():
            return
        with self._lock:
            used = np.flatnonzero(self._fresh)
            self._add("readable", used, self._fresh[used])
            self._fresh[:] = 0

    def figures(self) -> dict[str, Any]:
        """For the status file: percentiles and the counts behind them, as [buckets, counts]."""
        fields: dict[str, Any] = {}
        with self._lock:
            counts = {name: table.data[:BUCKETS].copy() for name, table in self._tables.items()}
            counts["readable"] += self._fresh
        for name, kind in KINDS.items():
            used = np.flatnonzero(counts[kind])
            fields |= percentiles(name, counts[kind])
            fields[f"{name}_counts"] = [used.tolist(), counts[kind][used].tolist()]
        return fields

    def _add(self, name: str, buckets: np.ndarray, counts: np.ndarray) -> None:
        table = self._tables[name]
        table.touch_rows(buckets)
        table.data[buckets] += counts


def percentiles(name: str, counts: np.ndarray) -> dict[str, float | None]:
    """Median and 99th percentile of a histogram, by the names that users meet."""
    return {f"{name}_ms_p{percent}": percentile_ms(counts, percent) for percent in (50, 99)}
