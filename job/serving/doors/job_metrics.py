"""Metrics for Prometheus: of a server's requests, and of the job whose folder is here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from freshet.errors import InputError
from freshet.job.folder import layout
from freshet.job.lifecycle.checkpoint_age import checkpoint_age_s
from freshet.job.lifecycle.job_state import ENDED, FAILED, LOST, RUNNING, STOPPED, JobState, state_of
from freshet.job.lifecycle.lag_file import read_lag
from freshet.job.serving.bounds.calls import BOUNDS_S, Calls
from freshet.operators.telemetry.figures import LEARNED, UNLEARNED, Figures, cumulative, seconds_of
from freshet.operators.telemetry.load import read_loads
from freshet.operators.telemetry.paging import BUDGET, PAGE_FAULTS, PAGED, PRIVATE, RESIDENT
from freshet.operators.telemetry.profile import read_figures

_STATES = RUNNING, STOPPED, ENDED, FAILED, LOST
_COUNTS = {
    "events": "events read, accepted or rejected",
    "epochs": "epochs sealed",
    "replaced": "edges added that were there, so that they took the place of these",
    "unchanged": "events that added a vertex or an edge that was there, and changed nothing",
    "deletions": "events that delete a vertex or an edge",
    "nothing_deleted": "those of them that were of a vertex or an edge that was not there",
    "tombstones_skipped": "messages without a value that were skipped",
    "rows_changed": "rows of the change log, without epoch 0",
    "redone_rows": "rows of sums that were summed again",
    PAGE_FAULTS: "pages that threads of a job with --memory waited for",
}
_SIZES = {
    "vertices": "live vertices of the graph",
    "edges": "live edges of the graph, each direction for itself",
    LEARNED: "live vertices of kinds with learned rows",
    UNLEARNED: "those of them whose ids were not there at training, with zeros in the place of their learned rows",
}
# Memory of a job with --memory, by the label `of`: the option itself, what the process holds beside files, all files of
# tables, and what is in memory of these.
_MEMORY = {BUDGET: "budget", PRIVATE: "private", PAGED: "files", RESIDENT: "resident"}
_LATENCIES = {
    "applied_seconds": "from the arrival of an epoch's first event until its rows are computed",
    "freshness_seconds": "from the arrival of an epoch's first event until others can read its rows",
}


def of_requests(calls: Calls) -> Iterator[Metric]:
    """Return the requests of all processes of a server, by kind and end, and their times."""
    counts = CounterMetricFamily("freshet_requests", "requests answered", labels=["kind", "end"])
    times = HistogramMetricFamily(
        "freshet_request_seconds", "time of a request, but for waits asked for", labels=["kind"]
    )
    for one in calls.all():
        for end, number in one.ends.items():
            counts.add_metric([one.kind, end], number)
        bounds = [*map(str, BOUNDS_S), "+Inf"]
        times.add_metric([one.kind], list(zip(bounds, itertools.accumulate(one.within), strict=True)), one.seconds)
    yield counts
    yield times


def of_job(out: Path) -> Iterator[Metric]:
    """Return the figures of the job of this folder; nothing where that is not here.

    Each sample has the label `job_name`, as in Flink's own metrics.
    """
    try:
        state = state_of(out)
    except InputError:
        return
    name = state.run.get("name") or layout.name_of_job(None, out)
    for metric in _of_folder(out, state):
        metric.samples = [one._replace(labels={"job_name": name, **one.labels}) for one in metric.samples]
        yield metric


def _of_folder(out: Path, state: JobState) -> Iterator[Metric]:
    yield from _of_state(out, state)
    figures = read_figures(out)
    yield from _of_figures(figures)
    lag = read_lag(out, figures.counts.get("events", 0))
    if lag is not None:
        lags = GaugeMetricFamily("freshet_lag", "records of the input that are not read yet", labels=["partition"])
        for partition, left in lag.items():
            lags.add_metric([partition], left)
        yield lags


def _of_state(out: Path, state: JobState) -> Iterator[Metric]:
    states = GaugeMetricFamily("freshet_job_state", "1: the job is in this state", labels=["state"])
    for name in _STATES:
        states.add_metric([name], float(name == state.state))
    yield states
    age_s = checkpoint_age_s(out, state)
    if age_s is not None:
        yield GaugeMetricFamily("freshet_checkpoint_age_seconds", "age of the newest durable state", age_s)
    busy = GaugeMetricFamily("freshet_busy", "share of time in which an operator works", labels=["operator"])
    for operator, load in read_loads(out, running=not state.is_over).items():
        if load.get("busy") is not None:
            busy.add_metric([operator], load["busy"])
    yield busy


def _of_figures(figures: Figures) -> Iterator[Metric]:
    for name, text in _COUNTS.items():
        if name in figures.counts:
            yield CounterMetricFamily(f"freshet_{name}", text, figures.counts[name])
    for name, text in _SIZES.items():
        if name in figures.gauges:
            yield GaugeMetricFamily(f"freshet_graph_{name}", text, figures.gauges[name])
    memory = GaugeMetricFamily("freshet_memory_bytes", "memory of a job with --memory", labels=["of"])
    for name, of in _MEMORY.items():
        if name in figures.gauges:
            memory.add_metric([of], figures.gauges[name])
    if memory.samples:
        yield memory
    if "rejected" in figures.counts:
        rejected = CounterMetricFamily("freshet_rejected", "records rejected", labels=["reason"])
        for reason, number in figures.reasons.items():
            rejected.add_metric([reason], number)
        yield rejected
    for name, text in _LATENCIES.items():
        if name in figures.latencies:
            found: Any = figures.latencies[name]
            yield HistogramMetricFamily(f"freshet_{name}", text, buckets=cumulative(found), sum_value=seconds_of(found))
