"""Time from events to their visible results: two histograms of a sink part.

`applied`: from the arrival of an epoch's first event at the Parser until the Sink has the epoch's rows. `readable`:
until somebody else can read them: in the tail, or, where that could not be written, in a visible file.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from freshet.operators.telemetry.elapsed import Elapsed
from freshet.operators.telemetry.status_file import BUCKETS, bucket_of, percentile_ms

if TYPE_CHECKING:  # whoever reads figures needs no tables, which take long to load
    from freshet.state.table import TableSet

KINDS = {"latency": "readable", "applied": "applied"}  # the name in status and summary, and the histogram


class Latencies:
    """Counts epochs by latency, in durable tables; what has been counted since a marker enters them by `settle`.

    A time later than now, of a host whose clock is ahead, is not counted.

    Units: times in milliseconds since 1970, as arrivals are.
    """

    def __init__(self, tables: TableSet, elapsed: Elapsed | None = None) -> None:
        """`elapsed` knows the time since a stamp; None: it is the difference to now."""
        self._elapsed = elapsed
        names = {"applied": "latency", "readable": "readable"}  # the one table had its name when there was no other
        self._tables = {kind: tables.add(name, "i8") for kind, name in names.items()}
        for table in self._tables.values():
            table.reserve(BUCKETS)
        self._lock = threading.Lock()
        self._fresh = {kind: np.zeros(BUCKETS, np.int64) for kind in names}  # not in the tables yet

    def since_ms(self, stamp_ms: float, now_ms: float) -> float | None:
        """Return the milliseconds since a stamp; None for one that is later than now."""
        if self._elapsed is None:
            return now_ms - stamp_ms
        with self._lock:
            return self._elapsed.since_ms(stamp_ms, now_ms)

    def applied(self, arrived_ms: int, now_ms: float) -> None:
        """The Sink has the rows of an epoch whose first event came then."""
        self._count("applied", arrived_ms, now_ms)

    def readable(self, arrived_ms: Sequence[int], now_ms: float) -> None:
        """Epochs became visible; called by any thread."""
        for one in arrived_ms:
            self._count("readable", one, now_ms)

    def _count(self, kind: str, arrived_ms: int, now_ms: float) -> None:
        if (latency_ms := self.since_ms(arrived_ms, now_ms)) is not None:
            with self._lock:
                self._fresh[kind][bucket_of(latency_ms)] += 1

    def settle(self) -> None:
        """Have what was counted in the tables; called at a marker, by the thread that owns them."""
        with self._lock:
            for kind, fresh in self._fresh.items():
                used, table = np.flatnonzero(fresh), self._tables[kind]
                table.touch_rows(used)
                table.data[used] += fresh[used]
                fresh[:] = 0

    def counts(self, kind: str) -> np.ndarray:
        """Return the epochs by bucket, of one of both kinds."""
        with self._lock:
            counts: np.ndarray = self._tables[kind].data[:BUCKETS] + self._fresh[kind]
        return counts

    def buckets(self, kind: str) -> tuple[list[int], list[int]]:
        """Return the buckets that are not empty, and their counts."""
        counts = self.counts(kind)
        used = np.flatnonzero(counts)
        return used.tolist(), counts[used].tolist()

    def figures(self) -> dict[str, Any]:
        """Return the figures for the status file: percentiles and the counts behind them, as [buckets, counts]."""
        fields: dict[str, Any] = {}
        for name, kind in KINDS.items():
            fields |= percentiles(name, self.counts(kind))
            fields[f"{name}_counts"] = list(self.buckets(kind))
        return fields


def percentiles(name: str, counts: np.ndarray) -> dict[str, float | None]:
    """Median and 99th percentile of a histogram, by the names that users meet."""
    return {f"{name}_ms_p{percent}": percentile_ms(counts, percent) for percent in (50, 99)}
