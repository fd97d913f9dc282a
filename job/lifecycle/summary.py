"""The last line of `freshet run`, made from the reports of the sink parts."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
from pydantic import Field

from freshet.job.console import say
from freshet.job.folder.returned_kinds import logs_of
from freshet.job.folder.run_file import glimpse_run, has_finished, read_run
from freshet.operators.output_folders import STATUS
from freshet.operators.parser.letter_box import read_attrs, read_dropped, read_noted, read_reasons
from freshet.operators.sink import log_proof
from freshet.operators.sink.change_log_reader import ChangeLogReader, NoChangeLogError
from freshet.operators.telemetry.figures import FEATURED, HAS_TS, LEARNED, NOTED, UNLEARNED, UNUSUAL_TS
from freshet.operators.telemetry.latency import KINDS, percentiles
from freshet.operators.telemetry.paging import BUDGET, PAGED, PRIVATE, leaves_little
from freshet.operators.telemetry.profile import read_figures, read_profiles
from freshet.operators.telemetry.status_file import BUCKETS, FROM_FLINK, SINK_PREFIX, read_statuses
from freshet.partitioner.times.units import MS, unusual_in_words
from freshet.schema import ATTR

_NEEDED = {name: int for name in ("events", "rejected", "epoch", "visible", "vertices", "rows")}
_Buckets = tuple[list[Annotated[int, Field(ge=0, lt=BUCKETS)]], list[int]]

_STATUS: dict[str, Any] = {**_NEEDED, "seconds": float, **{f"{name}_counts": _Buckets for name in KINDS}}
_VISIBLE = {"part": int, "visible": int}
_ZERO_FEATURES = """WARNING: all features are zeros, and so the embeddings say nothing of them.
  The model reads features, but no accepted event and no snapshot had one other than zero.
  Features are x of add_vertex and set_features, or of vertices.parquet (--snapshot); the reasons for rejected records,
  and the lines on columns before the start, say why those that came were not taken."""
_SAID_ABOVE = 0.01  # share of vertices without learned rows
_MANY_EVENTS = 10_000  # of which none has a `ts`: the next ones will hardly have any
_SUMMARY = {"events", "rejected", "reasons", "letters_dropped", "epochs", "seconds", "vertices", "rows"}


def progress(out: str | Path) -> dict[str, Any]:
    """Figures of all sink parts together: `epoch` is the last that all have passed.

    Counted since the job began: events accepted and rejected, rows of the change log without epoch 0, streaming time.
    """
    return figures_of(sink_statuses(Path(out)))


def sink_statuses(out: Path) -> list[dict[str, Any]]:
    """Return the last status of each sink part."""
    return read_statuses(out, needs=_STATUS)


def figures_of(statuses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures that `progress` does, from the statuses of the sink parts."""
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
        "seconds": most("seconds", 0.0),
        "vertices": most("vertices"),
        "rows": sum(status["rows"] for status in statuses),
        **latencies,
    }


def complete_epoch(out: str | Path) -> int:
    """The last epoch that is whole in the change log, in the files of all parts; without one, that they have passed."""
    out = Path(out)
    statuses = read_statuses(out, needs=_VISIBLE)
    if statuses and all(one.get(FROM_FLINK) for one in statuses):  # there is no change log here
        return min(int(one["visible"]) for one in statuses)
    run, known = read_run(out), {one["part"]: one["visible"] for one in statuses}
    parts = run.get("parts") or len(known) or 1
    finished, noted = has_finished(run), run.get("epoch")
    logs = logs_of(out)
    return max(0, min(log_proof.complete_epoch(log, parts, known, has_finished=finished, noted=noted) for log in logs))


def closing_summary(out: str | Path) -> dict[str, Any]:
    """Return the last line of `freshet run`; latencies are null if no epoch had an event.

    `latency_ms`: from the arrival of an epoch's first event at the Parser to its rows being in the tail or a file.
    `applied_ms`: to their being computed, in the Sink. Where a part's status is lost, the change log has the counts.
    """
    out = Path(out)
    run, statuses = read_run(out), read_statuses(out, needs=_STATUS)
    lost = sorted(set(range(run.get("parts", 0))) - {one.get("part") for one in statuses})
    former = run.get("summary") or {}
    if lost and has_finished(run) and former.keys() >= _SUMMARY:
        return dict.fromkeys(NOTED, 0) | former
    figures, reasons, noted = figures_of(statuses), read_reasons(out), read_noted(out)
    if lost:
        names = ", ".join(f"{STATUS}/{SINK_PREFIX}{part}.json" for part in lost)
        say(f"{out}: {names}: lost or damaged; what the summary says of them comes from the change log")
        figures |= _of_log(out, figures, sum(reasons.values()))
    # Of a run that was stopped, no epoch has reported the newest ones.
    rejected = sum(reasons.values()) or figures["rejected"]
    seconds, events = figures["seconds"], figures["events"] - figures["rejected"] + rejected
    vertices = figures["vertices"]
    if not vertices and figures["rows"]:
        vertices = sum(len(ChangeLogReader(out, log.kind).final(vectors=False).ids) for log in logs_of(out))
    return {
        "events": events,
        "rejected": rejected,
        "reasons": reasons,
        "letters_dropped": read_dropped(out),
        **{name: noted[name] for name in NOTED},
        "epochs": figures["epochs"],
        "seconds": seconds,
        "events_per_s": round(events / seconds, 1) if seconds > 0 else None,
        "vertices": vertices,
        "rows": figures["rows"],
        **{name: figure for name, figure in figures.items() if name.startswith(tuple(KINDS))},
        **unlearned(out),
        **(zero_features(out) if vertices else {}),
    }


def unlearned(out: Path) -> dict[str, int]:
    """Return the number of live vertices whose ids have no learned row; nothing where the model has no such rows."""
    gauges = read_figures(out).gauges
    return {UNLEARNED: gauges[UNLEARNED]} if UNLEARNED in gauges else {}


def zero_features(out: Path) -> dict[str, bool]:
    """Return that no vertex has features other than zeros, though the model reads some; nothing where one has."""
    return {"zero_features": True} if read_figures(out).gauges.get(FEATURED) == 0 else {}


def unusual_ts_in_words(out: Path) -> str:
    """Describe a `ts` that may be of another unit than the job's; empty where there is none."""
    found = read_figures(out).gauges.get(UNUSUAL_TS)
    if found is None:
        return ""
    run = glimpse_run(out)
    readers = "history and --edge-ttl read it" if run.get("edge_ttl_ms") else "history reads it"
    return (
        f"ts: got {unusual_in_words(found, run.get('ts_unit', MS))} ({readers}; the unit holds for the job's life, so "
        "a new job is needed for another; if ts is of this unit, nothing is wrong)"
    )


def without_ts_in_words(out: Path, events_min: int) -> str:
    """Describe that no event had a `ts` though epochs are to end by it; empty before `events_min` accepted events."""
    figures = read_figures(out)
    accepted = figures.counts.get("events", 0) - figures.counts.get("rejected", 0)
    if figures.gauges.get(HAS_TS) != 0 or accepted < events_min:
        return ""
    return f"warning: --epoch-event-time: none of the {accepted:,} events had a ts, so no epoch ended by it"


def unlearned_in_words(gauges: Mapping[str, int]) -> str:
    """Say that many vertices have no learned row; empty where they are few, or the model has no such rows."""
    count, vertices = gauges.get(UNLEARNED, 0), gauges.get(LEARNED, 0)
    if count <= _SAID_ABOVE * vertices:
        return ""
    return (
        f"{count:,} of {vertices:,} vertices ({count / vertices:.1%}) have ids that the model has no learned rows of: "
        "zeros stand in their place. If these are others than at training, see `ids` of export_model; if they are new, "
        "train and export the model again"
    )


def live_remarks(out: Path, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Lines for people about a run, by name, as soon as they are due; each once."""
    if ATTR not in known and read_attrs(out):
        yield (
            ATTR,
            "edges come with attr: it is checked and not kept, no layer reads it and no export of this job has it",
        )
    gauges = {} if {UNLEARNED, BUDGET} <= set(known) else read_figures(out).gauges
    if UNLEARNED not in known and (words := unlearned_in_words(gauges)):
        yield UNLEARNED, words
    if BUDGET not in known and (scarce := scarce_memory_in_words(gauges)):
        yield BUDGET, scarce
    if UNUSUAL_TS not in known and (words := unusual_ts_in_words(out)):
        yield UNUSUAL_TS, words
    if HAS_TS not in known and (words := without_ts_in_words(out, _MANY_EVENTS)):
        yield HAS_TS, words


def scarce_memory_in_words(gauges: Mapping[str, int]) -> str | None:
    """Return that little of --memory is left for tables, or None."""
    if not gauges.get(PAGED) or not leaves_little(gauges):
        return None
    mib = f"{gauges[PRIVATE] >> 20:,} MiB of the {gauges[BUDGET] >> 20:,} of --memory"
    return (
        f"the process takes {mib} beside the pages of its tables (libraries, indexes of ids and edges, buffers): most "
        "pages are read again when they are touched; give more --memory"
    )


def remarks(out: Path, summary: Mapping[str, Any]) -> Iterator[str]:
    """Lines for people about a run that has ended, beside its summary."""
    if attrs := read_attrs(out):
        yield f"attr of {attrs:,} edges of the events was checked and not kept"
    if words := unlearned_in_words(read_figures(out).gauges):
        yield words
    if words := unusual_ts_in_words(out):
        yield words
    if words := without_ts_in_words(out, 1):
        yield words
    if summary.get("zero_features"):
        yield _ZERO_FEATURES


def _of_log(out: Path, figures: Mapping[str, Any], rejected: int) -> dict[str, Any]:
    """Return the figures that can be counted in the change log."""
    try:
        logs = [ChangeLogReader(out, log.kind) for log in logs_of(out)]
    except NoChangeLogError:
        return {}
    last, rows = min(log.last_epoch() or 0 for log in logs), 0
    for log in logs:
        found = log.scan()
        rows += int(found.counts[found.epochs > 0].sum())
    accepted = int(logs[0].positions().events.sum())
    rejected = max(rejected, figures["rejected"])
    counts = {"rejected": rejected, "events": max(accepted + rejected, figures["events"]), "vertices": 0}
    return {**counts, "epochs": last, "rows": rows}


def profile(out: str | Path) -> dict[str, Any]:
    """Return the fields of `run.json` about the time of a Flink job.

    `profile_seconds`: by operator, the seconds in its stages; `profile`: those and all else that is counted; `sums`: by
    layer, what the sums have shown.
    """
    found = read_profiles(Path(out))
    sums = {name: counts["sums"] for name, counts in found.items() if "sums" in counts}
    return {"profile_seconds": {name: one["stage"] for name, one in found.items()}, "sums": sums, "profile": found}


class StartUp:
    """Seconds from the start of the command to the milestones of its start-up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        before_s = time.time() - psutil.Process().create_time()
        self._began = time.monotonic() - before_s

    def reached(self, milestone: str) -> float:
        """Note a milestone, the first time; returns when it was reached."""
        return self.seconds.setdefault(milestone, round(time.monotonic() - self._began, 2))
