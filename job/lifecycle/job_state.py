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
from freshet.job.folder import layout, lock, run_file
from freshet.operators.telemetry.profile import input_ended

RUNNING, STOPPED, ENDED, FAILED, LOST = "running", "stopped", "ended", "failed", "lost"
_RECORDED = {run_file.FINISHED: ENDED, run_file.STOPPED: STOPPED, run_file.FAILED: FAILED}
_OVER = {"FINISHED", "CANCELED", "FAILED"}  # in Flink's words
_NO_JOB = "404"  # a cluster that does not know the job
REST_S = 0.6  # for an answer of Flink: a status must come within a second


@dataclass(frozen=True)
class JobState:
    """State of a job, and how it is known.

    `state`: `running`; `stopped` (with a savepoint, or in the local runtime: it can go on), `ended` (all input is taken
    in), `failed`, or `lost`: nobody works on it and nobody recorded an end, so that it was killed. `detail` says how
    that is known, in words. `process` is the client's, where it lives on this machine; `flink` is Flink's word for the
    job, where a cluster was asked and knows it. `run` is what `run.json` says.
    """

    state: str
    detail: str
    run: Mapping[str, Any]
    process: int | None = None
    flink: str | None = None

    @property
    def is_over(self) -> bool:
        """Return whether nobody works on it."""
        return self.state != RUNNING


def state_of(out: Path, rest_s: float = REST_S) -> JobState:
    """Return the state of the job in `out`; `rest_s` is the time that Flink has for an answer.

    Raises: UsageError where the folder is no job's; DamagedFileError where `run.json` is damaged.
    """
    process = run_file.running_process(out)  # before the file: a process that ends has written its state first
    run = run_file.told_run(out)
    if not run and lock.is_held(out):  # it compiles kernels, say, and has prepared nothing yet
        return JobState(RUNNING, _somebody(run), run)
    if not run and not (out / layout.SAVED_JOB).is_file():
        msg = f"{out}: no job in it (neither {layout.RUN} nor {layout.SAVED_JOB}); give the --out of a `freshet run`"
        raise UsageError(msg)
    if run.get("cluster") and "job_id" in run and "rest" in run:
        return _on_cluster(out, run, process, rest_s)
    return _of_process(out, run, process)


def _of_process(out: Path, run: Mapping[str, Any], process: int | None) -> JobState:
    """Return the state of a job that ends with its process."""
    recorded, host = run.get("state"), run.get("host")
    if process is None and lock.is_held(out):
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


def _on_cluster(out: Path, run: Mapping[str, Any], process: int | None, rest_s: float) -> JobState:
    """Return the state of a job that goes on without the process that started it."""
    from freshet.job.flink.rest import FlinkRest, FlinkRestError  # takes long to load

    recorded, cluster = run.get("state"), run["cluster"]
    rest = FlinkRest(run["rest"], run["job_id"], rest_s)
    trouble, flink = "", None
    try:
        flink = rest.state()
    except FlinkRestError as error:
        trouble = f"{cluster} does not know the job" if _NO_JOB in str(error) else f"{cluster} does not answer"
    finally:
        rest.close()
    if flink is not None and flink not in _OVER:
        alone = "" if process is not None else ", without a client"
        return JobState(RUNNING, f"{flink} on the cluster {cluster}{alone}", run, process, flink)
    if process is None and lock.is_held(out):
        return JobState(RUNNING, _somebody(run), run, flink=flink)
    if recorded in _RECORDED and not (process is not None and _goes_on(run)):
        return JobState(_RECORDED[recorded], _end_of(run), run, process, flink)
    if process is not None:
        about = f"; {trouble}" if trouble else f"; {flink} on the cluster {cluster}"
        return JobState(RUNNING, f"process {process} works on it{about}", run, process, flink)
    if flink is None:
        return JobState(LOST, f"its client is gone, and the cluster {trouble}; go on with --resume latest", run)
    how = f"{flink} on the cluster {cluster}, its client is gone"
    return JobState(_end_by_flink(out, flink), how, run, flink=flink)


def _end_by_flink(out: Path, flink: str) -> str:
    """Return how a job has ended whose client did not see it; Flink calls a stop with a savepoint FINISHED, too."""
    if flink == "FAILED":
        return FAILED
    from freshet.job.flink.job_spec import JobSpec

    try:
        bounded = JobSpec.load(out / layout.CHECKPOINTS / layout.SPEC).ends_by_itself
    except UsageError:
        bounded = False
    return ENDED if flink == "FINISHED" and input_ended(out, bounded=bounded) else STOPPED


def _end_of(run: Mapping[str, Any]) -> str:
    """Return the recorded end in words."""
    if run.get("state") == run_file.FAILED:
        return str(run.get("error") or "no cause was recorded")
    if run.get("state") == run_file.STOPPED:
        return f"with savepoint {run['savepoint']}" if run.get("savepoint") else "without a savepoint"
    return "all input is taken in"
