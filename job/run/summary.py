"""The line that `freshet run` ends with, put together from what the sink parts tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from operators.parser.letter_box import read_dropped, read_reasons
from operators.sink.change_log_reader import ChangeLogReader
from operators.telemetry.latency import KINDS, percentiles
from operators.telemetry.profile import read_profiles
from operators.telemetry.status_file import BUCKETS, read_statuses

_NEEDED = ("events", "rejected", "epoch", "visible", "seconds", "vertices", "rows")


def progress(out: str | Path) -> dict[str, Any]:
    """Figures of all sink parts together: `epoch` is the last that all have passed, `complete` the last in all files.

    Counted since the job began: events accepted and rejected, rows of the change log without epoch 0, streaming time.
    """
    statuses = read_statuses(Path(out), needs=(*_NEEDED, *(f"{name}_counts" for name in KINDS)))
    latencies: dict[str, float | None] = {}
    for name in KINDS:
        counts = np.zeros(BUCKETS, np.int64)
        for status in statuses:
            buckets, numbers = np.array(status[f"{name}_counts"], np.int64).reshape(2, -1)
            counts[buckets] += numbers
        latencies |= percentiles(name, counts)

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
        **latencies,
    }


def closing_summary(out: str | Path) -> dict[str, Any]:
    """What `freshet run` prints at its end; latencies are null where no epoch brought an event.

    `latency_ms`: from the arrival of an epoch's first event at the Parser to its rows being in the tail or a file.
    `applied_ms`: to their being computed, in the Sink.
    """
    figures, reasons = progress(out), read_reasons(Path(out))
    # Of a run that was stopped, no epoch has told of the newest ones.
    rejected = sum(reasons.values()) or figures["rejected"]
    seconds, events = figures["seconds"], figures["events"] - figures["rejected"] + rejected
    vertices = figures["vertices"]
    if not vertices and figures["rows"]:
        vertices = len(ChangeLogReader(out).final(vectors=False).ids)
    return {
        "events": events,
        "rejected": rejected,
        "reasons": reasons,
        "letters_dropped": read_dropped(Path(out)),
        "epochs": figures["epochs"],
        "seconds": seconds,
        "events_per_s": round(events / seconds, 1) if seconds > 0 else None,
        "vertices": vertices,
        "rows": figures["rows"],
        **{name: figure for name, figure in figures.items() if name.startswith(tuple(KINDS))},
    }


def profile(out: str | Path) -> dict[str, Any]:
    """What `run.json` says about where the time of a Flink job went.

    `profile_seconds`: by operator, the seconds in its stages; `profile`: those and all else that is counted; `sums`: by
    layer, what the sums have shown.
    """
    found = read_profiles(Path(out))
    sums = {name: counts["sums"] for name, counts in found.items() if "sums" in counts}
    return {"profile_seconds": {name: one["stage"] for name, one in found.items()}, "sums": sums, "profile": found}
