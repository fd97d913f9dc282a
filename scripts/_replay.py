"""Takes a stream of events through a broker, a job, its export and a new job, for scripts that judge scores on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from tests.support.runs.jobs import FRESHET, Job, Log, TopicInput, read_log

PARTITIONS = 4
EQUAL = 1e-4  # largest difference of two jobs' scores, of the largest score
Figures = dict[str, Any]


class Scores:
    """Scores of vertices by a change log; vertices without one have -inf. Shapes: all (vertices,) float64."""

    def __init__(self, log: Log, vertices: int) -> None:
        self.last = log.last
        self._log, self._vertices = log, vertices

    def after(self, epoch: int) -> np.ndarray:
        """The scores after an epoch."""
        found = np.full(self._vertices, -np.inf)
        rows = slice(0, int(np.searchsorted(self._log.epoch, epoch, side="right")))
        found[self._log.id[rows]] = np.where(self._log.deleted[rows], -np.inf, self._log.vector[rows, 0])
        return found


class Replayed(NamedTuple):
    """The outcome of a replay: the scores of the job, the epoch of its export, and figures of all jobs."""

    scores: Scores
    exported: int
    figures: Figures


def halve(folder: Path) -> None:
    """Write the two halves of FOLDER/events.jsonl."""
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "first.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    (folder / "second.jsonl").write_bytes(b"".join(lines[len(lines) // 2 :]))


def replay(name: str, folder: Path, work: Path, topic: str, how: tuple[Any, ...], vertices: int) -> Replayed:
    """Take the events of a folder through the job of its model `name`, the job's export and a new job from that.

    The folder has `snapshot` and what `halve` writes; `how` are options of both jobs; ids are 0 to vertices - 1.
    """
    given = TopicInput(folder / name, folder / "events.jsonl", 0, folder / "snapshot", topic)
    job, exported = Job(given, work / name), work / f"{name}-export"
    successor = Job(TopicInput(given.model, given.events, 0, exported, topic), work / f"{name}-successor")
    try:
        first = _produce(folder / "first.jsonl", topic)
        job.start(*how)
        half = _followed(name, job, first)
        export = job.exported(exported)
        _good(f"{name}: freshet export", export.code, export.errors)
        second = _produce(folder / "second.jsonl", topic)
        job.start("--resume", "latest")
        whole = _followed(name, job, first + second)
        going_on = successor.done(*how, "--until", "latest")
        checks = [one.checked(timeout_s=None) for one in (job, successor)]
    finally:
        job.end()
        successor.end()
    epoch = int(export.result["epoch"])
    print(f"{name}: {first:,} and {second:,} events; exported at epoch {epoch}", file=sys.stderr)
    scores, other = (Scores(read_log(one.out), vertices) for one in (job, successor))
    difference = _difference(scores.after(scores.last), other.after(other.last))
    figures = {"events": whole["events"], "rejected": whole["rejected"], "continued": going_on["events"]}
    figures |= {"events_per_s": [half["events_per_s"], going_on["events_per_s"]], "difference": difference}
    figures["checks"] = [one.result.get("max_rel_error") for one in checks]
    figures["is_good"] = difference <= EQUAL and not any(one.code for one in checks)
    return Replayed(scores, epoch, figures)


def _produce(events: Path, topic: str) -> int:
    """Send events to a topic; returns how many."""
    command = [FRESHET, "produce", "--events", events, "--to", topic, "--partitions", PARTITIONS]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"freshet produce: exit {done.returncode}\n{done.stderr[-3000:]}")
    return int(orjson.loads(done.stdout)["events"])


def _difference(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference of two jobs' scores, of the largest score."""
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return float("inf")
    both = np.isfinite(one)
    return float(np.abs(one[both] - other[both]).max() / np.abs(one[both]).max())


def _followed(name: str, job: Job, events: int) -> Figures:
    """Stop the job once it has taken `events`; returns what it says in the end."""
    job.until(lambda: (job.out / "run.json").exists(), timeout_s=600)
    job.until(lambda: job.status().get("events", 0) >= events, timeout_s=1800)
    stopped = job.stop()
    _good(f"{name}: freshet stop", stopped.code, stopped.errors)
    return job.wait().result


def _good(told: str, code: int, errors: str) -> None:
    if code:
        sys.exit(f"{told}: exit {code}\n{errors[-3000:]}")
