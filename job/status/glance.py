"""Figures of a job that its status files alone have: nobody is asked for them, so that they can be read each second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freshet.job.lifecycle.lag_file import read_lag
from freshet.job.lifecycle.summary import figures_of, sink_statuses
from freshet.operators.parser.letter_box import read_reasons
from freshet.operators.telemetry.recent import LATENCIES_S, counts_of, events_per_s, recent_percentiles
from freshet.operators.telemetry.status_file import BUCKETS

Statuses = Sequence[Mapping[str, Any]]


def glance(out: Path, now_s: float, *, running: bool) -> dict[str, Any] | None:
    """Return the counts and rates of now; None where no part of a job has reported any.

    Freshness is None where no epoch came in the last minute, and rates are 0 for a job that is not `running`.
    """
    statuses, reasons = sink_statuses(out), read_reasons(out)
    if not statuses and not reasons:
        return None
    figures = figures_of(statuses)
    events, rejected = counted(figures, reasons)
    lag = read_lag(out, events, now_s)
    late = [one for one in statuses if now_s - one.get("time", 0.0) < LATENCIES_S]
    return {
        "events": events,
        "rejected": rejected,
        "rows": figures["rows"],
        "events_per_s": rate_now(statuses) if running else 0.0,
        "lag": None if lag is None else sum(lag.values()),
        **(freshness(late, lately=True) if running else {}),
    }


def counted(figures: Mapping[str, Any], reasons: Mapping[str, int]) -> tuple[int, int]:
    """Return the events read and those rejected; the reasons are newer than what the sink parts know."""
    rejected = max(sum(reasons.values()), figures["rejected"])
    return figures["events"] - figures["rejected"] + rejected, rejected


def rate_now(statuses: Statuses) -> float:
    """Return the events read a second, now."""
    return round(max((events_per_s(status) for status in statuses), default=0.0), 1)


def freshness(statuses: Statuses, *, lately: bool = False) -> dict[str, float | None]:
    """Return percentiles of the last minute; without `lately` of the job's life where no epoch came then."""
    whole, before = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.int64)
    for status in statuses:
        counts = counts_of(status["latency_counts"])
        whole += counts
        before += counts_of(status["latency_before"][1]) if "latency_before" in status else counts
    if lately:
        whole, before = np.maximum(whole - before, 0), np.zeros(BUCKETS, np.int64)
    return recent_percentiles(whole, before)
