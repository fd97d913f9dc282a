"""Figures of an operator for people who are to be alerted: counts, live sizes, reasons, and latencies.

They are plain data, since an operator's profile file and Flink's metrics pass them on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Buckets = tuple[list[int], list[int]]  # those of `status_file` that are not empty, and their counts
_KINDS = "counts", "gauges", "reasons", "latencies"
# Gauges of vertices of kinds with learned rows, and of those whose ids the model does not know.
LEARNED, UNLEARNED = "learned_vertices", "unlearned_vertices"
FEATURED = "featured_tasks"  # gauge of Storages 0: tasks in which a vertex has had features other than zeros
# Counts of accepted events that may not have done what was meant; the last ones are of messages without a value.
NOTED = "replaced", "unchanged", "nothing_deleted", "tombstones_skipped"
NOTED_AND_ALL = (*NOTED, "deletions")  # those of which some deleted nothing
UNUSUAL_TS = "unusual_ts"  # gauge of the Partitioner: the first `ts` before 2000 or past 2100, in milliseconds
HAS_TS = "has_ts"  # gauge of the Partitioner where epochs end by event time: 1 if any event had a `ts`, else 0
_PER_DOUBLING, _FIRST_S = 8, 1e-5
_DOUBLINGS = range(6, 24)  # from 0.6 ms to 84 s


@dataclass(slots=True)
class Figures:
    """Figures of a stage, or of several together.

    `counts` never fall within a job, except where a restore goes back a little; `gauges` do; `reasons`: rejected
    records by reason; `latencies`: epochs by bucket.
    """

    counts: dict[str, int] = field(default_factory=dict)
    gauges: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    latencies: dict[str, Buckets] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return plain data, without what is empty."""
        by_name = {name: getattr(self, name) for name in _KINDS}
        return {name: value for name, value in by_name.items() if value}

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Figures:
        """Return the figures of this plain form."""
        found = {name: dict(plain.get(name, {})) for name in _KINDS}
        return Figures(**found)


def all_figures(parts: Iterable[Figures]) -> Figures:
    """Return the sums of figures of several parts."""
    found = Figures()
    for part in parts:
        for into, more in ((found.counts, part.counts), (found.gauges, part.gauges), (found.reasons, part.reasons)):
            for name, number in more.items():
                into[name] = into.get(name, 0) + number
        for name, (which, numbers) in part.latencies.items():
            counts = dict(zip(*found.latencies.get(name, ([], [])), strict=True))
            for bucket, number in zip(which, numbers, strict=True):
                counts[bucket] = counts.get(bucket, 0) + number
            found.latencies[name] = sorted(counts), [counts[bucket] for bucket in sorted(counts)]
    return found


def cumulative(latencies: Buckets) -> list[tuple[str, int]]:
    """Return upper bounds of seconds, the last one infinite, and the number of epochs within each, as for Prometheus.

    The bounds are edges of our buckets, eight of which are a doubling, so that no count is a guess.
    """
    which, numbers = latencies
    found, buckets = list(zip(which, numbers, strict=True)), []
    for doubling in _DOUBLINGS:
        below = sum(number for bucket, number in found if bucket < doubling * _PER_DOUBLING)
        buckets.append((f"{_FIRST_S * 2**doubling:.5g}", below))
    return [*buckets, ("+Inf", sum(numbers))]


def seconds_of(latencies: Buckets) -> float:
    """Return the sum of all latencies, by the middles of their buckets."""
    pairs = zip(*latencies, strict=True)
    return float(sum(number * _FIRST_S * 2 ** ((bucket + 0.5) / _PER_DOUBLING) for bucket, number in pairs))
