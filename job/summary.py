"""The line that `freshet run` ends with, put together from what the sink parts tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from job.change_log_reader import ChangeLogReader
from operators.letter_box import read_reasons
from operators.profile import read_profiles
from operators.status import BUCKETS, percentile_ms, read_statuses


def progress(out: str | Path) -> dict[str, Any]:
    """Figures of all sink parts together: `epoch` is the last that all have passed, `complete` the last in all files.

    Counted since the job began: events accepted and rejected, rows of the change log without epoch 0, streaming time.
    """
    statuses = read_statuses(Path(out))
    counts = np.zeros(BUCKETS, np.int64)
    for status in statuses:
        buckets, numbers = np.array(status["latency_counts"], np.int64).reshape(2, -1)
        counts[buckets] += numbers

    def most(name: str, nothing: float = 0) -> Any:
        return max((status[name] for status in statuses), default=nothing)

    return {
        "events": most("events"),
        "rejected": most("rejected"),
        "epochs": most("epoch"),
        "epoch": min((status["epoch"] for status in statuses), default=0),
        "complete": min((status["visible"] for status in statuses), default=0),
        "seconds": most("seconds", 0.0),
        "vertices": most("vertices"),
        "rows": sum(status["rows"] for status in statuses),
        "latency_ms_p50": percentile_ms(counts, 50),
        "latency_ms_p99": percentile_ms(counts, 99),
    }


def closing_summary(out: str | Path) -> dict[str, Any]:
    """What `freshet run` prints at its end; latencies are null where no epoch brought an event."""
    figures = progress(out)
    seconds = figures["seconds"]
    vertices = figures["vertices"]
    if not vertices and figures["rows"]:
        vertices = len(ChangeLogReader(out).final(vectors=False).ids)
    return {
        "events": figures["events"],
        "rejected": figures["rejected"],
        "reasons": read_reasons(Path(out)),
        "epochs": figures["epochs"],
        "seconds": seconds,
        "events_per_s": round(figures["events"] / seconds, 1) if seconds > 0 else None,
        "vertices": vertices,
        "rows": figures["rows"],
        "latency_ms_p50": figures["latency_ms_p50"],
        "latency_ms_p99": figures["latency_ms_p99"],
    }


def profile(out: str | Path) -> dict[str, Any]:
    """What `run.json` says about where the time of a Flink job went.

    `profile_seconds`: by operator, the seconds in its stages; `profile`: those and all else that is counted.
    """
    found = read_profiles(Path(out))
    return {"profile_seconds": {name: counts["stage"] for name, counts in found.items()}, "profile": found}
