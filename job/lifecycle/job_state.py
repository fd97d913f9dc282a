"""State of a job, from its folder, the process that works on it, and Flink; the one place that decides it.

Nothing that was written is believed while its writer may be dead. A running job is one whose process lives, or that
its Flink cluster calls running; an end is believed as recorded, since whoever records it does so last.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshet.job.errors import UsageError
from freshet.job.flink.errors import ENDS
from freshet.job.folder import layout, lock, run_file
from freshet.operators.telemetry.profile import input_ended
from freshet.operators.telemetry.status_file import await_last

RUNNING, STOPPED, ENDED, FAILED, LOST = "running", "stopped", "ended", "failed", "lost"
_RECORDED = {run_file.FINISHED: ENDED, run_file.STOPPED: STOPPED, run_file.FAILED: FAILED}
REST_S = 0.6  # for an answer of Flink: a status must come within a second


@dataclass(frozen=True)
class JobState:
    """State of a job, and how it is known.

    `state`: `running`; `stopped` (with a savepoint, or in the local runtime: it can go on), `ended` (all input is taken
    in), `failed`, or `lost`: nobody works on it and nobody recorded an end, so that it was killed. `detail` says how
    that is known, in words. `process` is the client's, where it lives on this machine; `flink` is Flink's word for the
    job, where a cluster was asked and knows it. `run` is what `run.json` says. `is_guess`: the cluster did not answer,
    and the job may run there.
    """

    state: str
    detail: str
    run: Mapping[str, Any]
    process: int | None = None
    flink: str | None = None
    is_guess: bool = False

    @property
    def is_over(self) -> bool:
        """Return whether nobody works on it."""
        return self.state != RUNNING

    @property
    def runs_on_cluster(self) -> bool:
        """Return whether a cluster has the job and goes on with it, with or without a client."""
        return self.flink is not None and self.flink not in ENDS

    @property
    def worker(self) -> str | None:
        """Describe the process or cluster that works on the job; None where nobody does."""
        if self.process is not None:
            return f"process {self.process}"
        return f"the cluster {self.run['cluster']}" if self.runs_on_cluster else None if self.is_over else "a process"


def state_of(out: Path, rest_s: float = REST_S, *, has_lock: bool = False, at: str | None = None) -> JobState:
    """Return the state of the job in `out`; `rest_s` is the time that Flink has for an answer.

    `has_lock`: this process holds the lock of the folder, so that nobody else starts a job there. `at` is where to ask
    for a job on a cluster (HOST:PORT), if not where `run.json` says.

    Raises: UsageError where the folder is no job's, or a copy of that of a job that runs; DamagedFileError where
    `run.json` is damaged.
    """
    found = _state_of(out, rest_s, has_lock=has_lock, at=at)
    works = found.process is not None or found.runs_on_cluster
    if works and (original := run_file.original_of(out, found.run)) is not None:
        msg = (
            f"{out}: a copy of {original}, whose job runs ({found.detail}); give {original}, or stop that job "
            f"(freshet stop {original}) and copy the folder then"
        )
        raise UsageError(msg)
    return found


def _state_of(out: Path, rest_s: float, *, has_lock: bool, at: str | None) -> JobState:
    process = run_file.running_process(out)  # before the file: a process that ends has written its state first
    run = run_file.read_run(out)
    found = _seen(out, run, process, rest_s, has_lock, at)
    if (found is None or found.state == LOST) and run_file.read_run(out) != run:  # a process came and went meanwhile
        return _state_of(out, rest_s, has_lock=has_lock, at=at)
    if found is None:
        msg = f"{out}: no job in it (neither {layout.RUN} nor {layout.SAVED_JOB}); give the --out of a `freshet run`"
        raise UsageError(msg)
    return found


def _seen(
    out: Path, run: Mapping[str, Any], process: int | None, rest_s: float, has_lock: bool, at: str | None
) -> JobState | None:
    """Return the state of a job by its `run.json` as it was read; None where there is none."""
    if not run:  # one that has the lock compiles kernels, say, and has prepared nothing yet
        return JobState(RUNNING, _somebody(run), run) if not has_lock and lock.is_held(out) else None
    if run.get("cluster") and "job_id" in run and "rest" in run:
        run = run if at is None else {**run, "cluster": at, "rest": at}
        return _on_cluster(out, run, process, rest_s, has_lock)
    return _of_process(out, run, process, has_lock)


def at_work(out: Path, rest_s: float = REST_S) -> str | None:
    """Describe the process or cluster that works on the job in `out`; None where nobody does."""
    return state_of(out, rest_s).worker


def _of_process(out: Path, run: Mapping[str, Any], process: int | None, has_lock: bool) -> JobState:
    """Return the state of a job that ends with its process."""
    recorded, host = run.get("state"), run.get("host")
    if process is None and not has_lock and lock.is_held(out):
        return JobState(RUNNING, _somebody(run), run)
    if recorded in _RECORDED and not (process is not None and _goes_on(run)):
        return JobState(_RECORDED[recorded], _end_of(run), run, process)
    if process is not None:
        starts = "" if recorded == run_file.RUNNING else " (it is starting)"
        return JobState(RUNNING, f"process {process} works on it{starts}", run, process)
    client = run.get("pids", {}).get("client")
    who = "no process works on it" if client is None else f"process {client} on {host} is gone (killed?)"
    return JobState(LOST, f"{who}; go on with --resume latest", run)


def _goes_on(run: Mapping[str, Any]) -> bool:
    """Return whether the end that is recorded is that of an earlier process than the one that works there."""
    return float(run.get("client_began_s") or 0.0) > float(run.get("ended_ms") or 0) / 1e3


def _somebody(run: Mapping[str, Any]) -> str:
    """Describe the process that holds the lock of the folder: one that has just started, or one elsewhere."""
    host = run.get("host")
    elsewhere = host not in (None, socket.gethostname()) and run.get("state") not in _RECORDED
    return f"a process on {host} works on it" if elsewhere else "a process works on it (it is starting)"


def _on_cluster(out: Path, run: Mapping[str, Any], process: int | None, rest_s: float, has_lock: bool) -> JobState:
    """Return the state of a job that goes on without the process that started it."""
    from freshet.job.flink.rest import FlinkRest, FlinkRestError, UnknownJobError  # take long to load

    recorded, cluster = run.get("state"), run["cluster"]
    rest = FlinkRest(run["rest"], run["job_id"], rest_s)
    trouble, flink, answers = "", None, True
    try:
        flink = rest.state()
    except UnknownJobError:
        trouble = f"the cluster {cluster} does not know the job"
    except FlinkRestError:
        trouble, answers = f"the cluster {cluster} does not answer", False
    finally:
        rest.close()
    if flink is not None and flink not in ENDS:
        alone = "" if process is not None else ", without a client"
        return JobState(RUNNING, f"{flink} on the cluster {cluster}{alone}", run, process, flink)
    if process is None and not has_lock and lock.is_held(out):
        return JobState(RUNNING, _somebody(run), run, flink=flink)
    if recorded in _RECORDED and not (process is not None and _goes_on(run)):
        return JobState(_RECORDED[recorded], _end_of(run), run, process, flink)
    if process is not None:
        return JobState(RUNNING, f"process {process} works on it; {trouble or f'{flink} there'}", run, process, flink)
    if flink is not None:
        how = f"{flink} on the cluster {cluster}, its client is gone"
        return JobState(_end_by_flink(out, flink), how, run, flink=flink)
    if answers and _has_ended(out, run):  # Flink forgets jobs after an hour
        return JobState(ENDED, f"all input is taken in; {trouble} any more", run)
    unknown = "go on with --resume latest" if answers else "the job may run there"
    return JobState(LOST, f"its client is gone, and {trouble}; {unknown}", run, is_guess=not answers)


def _end_by_flink(out: Path, flink: str) -> str:
    """Return how a job has ended whose client did not see it; Flink calls a stop with a savepoint FINISHED, too."""
    if flink == "FAILED":
        return FAILED
    return ENDED if flink == "FINISHED" and input_ended(out, bounded=False) else STOPPED


def _has_ended(out: Path, run: Mapping[str, Any]) -> bool:
    """Return whether the files of a job say that it has read all of its input and written all of its output."""
    return input_ended(out, bounded=False) and await_last(out, float(run.get("started_ms") or 0), 0.0)


def _end_of(run: Mapping[str, Any]) -> str:
    """Return the recorded end in words."""
    if run.get("state") == run_file.FAILED:
        return str(run.get("error") or "no cause was recorded")
    if run.get("state") == run_file.STOPPED:
        return f"with savepoint {run['savepoint']}" if run.get("savepoint") else "without a savepoint"
    return "all input is taken in"
