"""Status of a job as one JSON object, from its folder and, where it runs on Flink, from there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from freshet.job.errors import UsageError
from freshet.job.flink.job_spec import JobSpec
from freshet.job.folder import layout
from freshet.job.kafka.topic_specs import TopicOutput
from freshet.job.lifecycle.checkpoint_age import checkpoint_age_s
from freshet.job.lifecycle.job_state import REST_S, state_of
from freshet.job.lifecycle.lag_file import read_lag
from freshet.job.lifecycle.summary import complete_epoch, figures_of, sink_statuses, unlearned, zero_features
from freshet.job.status.asked_lag import AskedLag
from freshet.job.status.glance import counted, freshness, rate_now
from freshet.job.status.memory import memory_of
from freshet.job.uris import is_remote, local_path
from freshet.operators.dataflow import OUTLET
from freshet.operators.parser.letter_box import read_noted, read_reasons
from freshet.operators.telemetry.figures import NOTED
from freshet.operators.telemetry.load import LETTERS, SOURCE, layer_loads, read_loads
from freshet.operators.telemetry.profile import read_figures

Report = dict[str, Any]


def report(out: Path) -> Report:
    """Return the status of the job in `out`.

    Raises: UsageError where the folder is no job's; DamagedFileError where `run.json` is damaged.
    """
    state = state_of(out)
    run, running = state.run, not state.is_over
    if state.runs_on_cluster:
        _ask_flink(out, run)
    statuses, reasons, noted = sink_statuses(out), read_reasons(out), read_noted(out)
    figures = figures_of(statuses)
    events, rejected = counted(figures, reasons)
    seconds = figures["seconds"]
    lag, spec, why = read_lag(out, events), _spec(out, run), None
    if (lag is None and running) or (not running and run.get("topics")):  # no process of a run watches it
        lag, why = lag_asker(out).read(out, run, events)
    operators = _operators(out, run, spec, running)
    return {
        "state": state.state,
        "detail": state.detail,
        "name": run.get("name") or layout.name_of_job(None, out),
        "job_id": run.get("job_id"),
        "epoch": figures["epoch"] if running else complete_epoch(out),
        "events": events,
        "rejected": rejected,
        "reasons": reasons,
        **{name: noted[name] for name in NOTED},
        "events_per_s": rate_now(statuses) if running else 0.0,
        "events_per_s_mean": round(events / seconds, 1) if seconds > 0 else None,
        "lag": lag,
        "lag_total": None if lag is None else sum(lag.values()),
        "lag_unknown": why,
        **freshness(statuses),
        "checkpoint_age_s": checkpoint_age_s(out, state),
        "vertices": figures["vertices"],
        "rows": figures["rows"],
        **(zero_features(out) if figures["vertices"] else {}),
        **unlearned(out),
        "parts": run.get("parts"),
        "processes": 1 if spec is None else spec.parallelism,
        "runtime": "local" if run.get("runtime") == "local" else "flink",
        "started_ms": run.get("started_ms"),
        "flink": state.flink,
        "servers": _servers(run) if running else [],
        "memory": memory_of(read_figures(out), operators),
        "layers": layer_loads(operators),
        "operators": operators,
    }


@lru_cache(maxsize=8)
def lag_asker(_out: Path) -> AskedLag:
    """Return what keeps the answers of brokers from one status of a job to the next."""
    return AskedLag()


def _ask_flink(out: Path, run: Mapping[str, Any]) -> None:
    """Bring the status up to date if the job's processes do not see the folder."""
    from freshet.job.flink.figures import look
    from freshet.job.flink.rest import FlinkRest  # takes long to load

    rest = FlinkRest(run["rest"], run["job_id"], REST_S)
    try:
        look(out, rest, run.get("parts") or 1, run.get("sources") or ())
    finally:
        rest.close()


def _spec(out: Path, run: Mapping[str, Any]) -> JobSpec | None:
    """Return what Flink's job was built from; None in the local runtime, and before it was submitted."""
    if run.get("runtime") == "local":
        return None
    try:
        return JobSpec.load(_beside_checkpoints(out, run) / layout.SPEC)
    except UsageError:
        return None


def _beside_checkpoints(out: Path, run: Mapping[str, Any]) -> Path:
    where = str(run.get("checkpoints") or "")
    return local_path(where) if where and not is_remote(where) else out / layout.CHECKPOINTS


def _servers(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the servers that are known: the one that the run has started. Others do not report to the job."""
    serving = run.get("serving")
    return [dict(serving)] if serving else []


def _operators(out: Path, run: Mapping[str, Any], spec: JobSpec | None, running: bool) -> dict[str, dict[str, Any]]:
    """Return the loads by operator, with the names of topics."""
    found, names = read_loads(out, running=running), run.get("sources") or []
    for place, load in found.items():
        kind, _, index = place.partition("-")
        if kind == SOURCE and index.isdigit() and int(index) < len(names):
            load["topic"] = names[int(index)]
        if written := _written(spec, place):
            load["topic"] = ", ".join(str(one.address) for one in written)
    return found


def _written(spec: JobSpec | None, place: str) -> list[TopicOutput]:
    """Return the topics that a place in the flow writes."""
    if spec is None or place not in (OUTLET, LETTERS):
        return []
    if place == OUTLET:
        return list(spec.embedding_topics.values())
    return [] if spec.letters_to is None else [spec.letters_to]
