"""Completeness of a change log: no gaps between epochs, as many as the run reports, and all of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from freshet.job.console import Report
from freshet.job.folder import run_file
from freshet.operators.output_folders import STATUS
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.operators.telemetry.status_file import SINK_PREFIX

SUMMARY = "summary"  # of run.json: what the run printed at its end
_HELD = ("events", "rejected", "rows")
STATUS_FIELDS = dict.fromkeys(("part", "epoch", "visible", *_HELD), int)  # what is read of a status here
_SUSPECTS_MAX = 16


class Audit(NamedTuple):
    """Faults in words, and the epochs that contain NaN or infinity, which the oracle has to confirm."""

    faults: list[str]
    nonfinite: int
    suspects: list[int]


def audit(
    readers: Sequence[ChangeLogReader],
    run: Mapping[str, Any],
    before: Sequence[Mapping[str, Any]],
    statuses: Sequence[Mapping[str, Any]],
    report: Report,
) -> Audit:
    """Hold the change log of each kind, or the only one, against what `run.json` and `status/` say of them.

    Of a run that still goes on, or was killed, they give a lower bound (`before` the files of the log were listed) and
    an upper one (`statuses`, since then). Totals are compared once a run has ended in an orderly way.
    """
    faults, nonfinite, suspects, there = list[str](), 0, set[int](), 0
    for reader in readers:
        recorded = np.unique(reader.epochs())
        last = int(recorded.max(initial=0))
        faults += _of_epochs(f"epochs/{reader.kind}", recorded[recorded > 0], last, run, before)
        report("reading the change log")
        rows, where = reader.scan(), reader.where
        faults += _of_rows(where, rows.epochs, rows.counts, last, run, statuses)
        if rows.dead_nonzero:
            faults.append(f"{where}: {rows.dead_nonzero:,} rows of deleted vertices are not zero")
        within = rows.nonfinite_epochs[rows.nonfinite_epochs <= last]
        chosen = np.unique(np.linspace(0, len(within) - 1, min(len(within), _SUSPECTS_MAX)).astype(np.int64))
        suspects.update(within[chosen].tolist())
        nonfinite, there = nonfinite + rows.nonfinite, there + int(rows.counts[rows.epochs > 0].sum())
    faults += _of_count(there, run, statuses) + _of_summary(run, statuses)
    return Audit(faults, nonfinite, sorted(suspects))


def _of_epochs(
    where: str, recorded: np.ndarray, last: int, run: Mapping[str, Any], statuses: Sequence[Mapping[str, Any]]
) -> list[str]:
    faults = []
    if len(recorded) < last:
        first = int(np.setdiff1d(np.arange(1, last + 1), recorded)[0])
        faults.append(f"{where}: {last - len(recorded):,} of {last:,} epochs are not there, the first is {first:,}")
    summary = run.get(SUMMARY) or {}
    at_least = [("run.json", run["epoch"])] if run.get("epoch") is not None else []
    stated = [("status/", min(one["visible"] for one in statuses))] if statuses else []
    stated += [("the summary in run.json", summary["epochs"])] if "epochs" in summary else []
    for by, epoch in at_least + stated:
        if last < epoch or (run_file.has_finished(run) and (by, epoch) in stated and last > epoch):
            faults.append(f"{where}: the last epoch is {last:,}, by {by} it is {epoch:,}")
    return faults


def _of_rows(
    where: str,
    epochs: np.ndarray,
    counts: np.ndarray,
    last: int,
    run: Mapping[str, Any],
    statuses: Sequence[Mapping[str, Any]],
) -> list[str]:
    faults = []
    ended = run.get("state") in (run_file.FINISHED, run_file.STOPPED)
    # Rows may be visible before epochs/ tells of their epoch, but not once the run has ended in order.
    passed = max((one["epoch"] for one in statuses), default=last)
    top = last if run_file.has_finished(run) else max(last, passed)
    unknown = (epochs < 0) | (epochs > top) if ended or statuses else epochs < 0
    if unknown.any():
        faults.append(
            f"{where}: {int(counts[unknown].sum()):,} rows are of epochs that never were, such as "
            f"{int(epochs[unknown][0]):,}"
        )
    return faults


def _of_count(there: int, run: Mapping[str, Any], statuses: Sequence[Mapping[str, Any]]) -> list[str]:
    """Compare the rows of all kinds after epoch 0 with those that the parts have counted."""
    ended = run.get("state") in (run_file.FINISHED, run_file.STOPPED)
    if ended and statuses and not _lost(run, statuses) and all(one["visible"] == one["epoch"] for one in statuses):
        written = sum(one["rows"] for one in statuses)
        if written != there:
            return [f"embeddings/: {there:,} rows after epoch 0, by status/ it is {written:,}"]
    return []


def _lost(run: Mapping[str, Any], statuses: Sequence[Mapping[str, Any]]) -> list[int]:
    """The parts that have no status, where it is known how many there are."""
    return sorted(set(range(run.get("parts") or 0)) - {one["part"] for one in statuses})


def _of_summary(run: Mapping[str, Any], statuses: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return whether `status/` has a file of every part, and agrees with the summary of the run."""
    if not run_file.has_finished(run) or run.get("parts") is None:
        return []
    if lost := _lost(run, statuses):
        names = ", ".join(f"{STATUS}/{SINK_PREFIX}{part}.json" for part in lost)
        return [f"status/: {len(statuses)} of {run['parts']} files of the sink are there (lost or damaged: {names})"]
    stated = run.get(SUMMARY) or {}
    found = {name: max(one[name] for one in statuses) for name in ("events", "rejected")}
    found["rows"] = sum(one["rows"] for one in statuses)
    return [
        f"status/: {found[name]:,} {name}, by the {SUMMARY} in run.json it is {stated[name]:,}"
        for name in _HELD
        if name in stated and stated[name] != found[name]
    ]
