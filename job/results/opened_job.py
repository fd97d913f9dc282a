"""A job to take the graph from: its folder, its settings, and whether it still runs."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from freshet.job.errors import UsageError
from freshet.job.folder import layout, run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.lifecycle.ending import settled
from freshet.job.lifecycle.job_state import JobState, at_work
from freshet.job.run.job_states import JobStates
from freshet.operators.epochs.cut_log import copy_log
from freshet.operators.settings import Settings

END_S = 60.0  # for the end of a job that writes no savepoint: it is being stopped, say
ANSWER_S = 5.0  # for an answer of Flink
_POLL_S = 0.1


@dataclass(frozen=True)
class Stopped:
    """A job whose graph is asked for: its folder, settings, end, and the properties of Kafka's clients."""

    out: Path
    settings: Settings
    saved: SavedJob
    run: dict[str, Any]
    properties: ClientProperties
    flink: Mapping[str, str] = field(default_factory=dict)  # Flink's own options, by which a store is reached
    is_live: bool = False  # it runs on Flink

    @property
    def is_local(self) -> bool:
        """True if it ran in the local runtime."""
        return self.saved.runtime == "local"

    @property
    def has_finished(self) -> bool:
        """True if it has read all of its input."""
        return run_file.has_finished(self.run)


def open_job(job: Path, model: Path | None, running: bool, properties: ClientProperties) -> Stopped:
    """Open the job in a folder for its state; `running`: it may still run.

    Raises: InputError when there is no such job, it runs and may not, or it was killed before it had begun.
    """
    _saved_in(job)
    state = settled(job, ANSWER_S)
    worker = at_work(job, ANSWER_S)
    if not running and (worker := worker or _elsewhere(state)):
        msg = f"{job}: {worker} is still working on it; stop it first: freshet stop {job}"
        raise UsageError(msg)
    stopped = describe_job(job, model, properties)
    stopped = replace(stopped, is_live=worker is not None and not stopped.is_local)
    if stopped.run.get("state") in run_file.ENDED and not state.runs_on_cluster:  # its process is about to end
        return as_ended(stopped) or stopped
    return stopped


def describe_job(job: Path, model: Path | None, properties: ClientProperties) -> Stopped:
    """Read what a job is, without asking whether anybody works on it.

    Raises: InputError when there is no job in the folder, its model is not there, or it was killed before it had begun.
    """
    saved, run = _saved_in(job), run_file.read_run(job)
    folder = model.absolute() if model else Path(saved.settings.model)
    if not (folder / "model.json").is_file():
        msg = f"{job}: its model {folder} is not there; say where it is now: --model M"
        raise UsageError(msg)
    settings = replace(saved.settings_at(job, folder), registry_login=properties.registry_login())
    if not (job / layout.IMAGE_DONE).exists():
        msg = (
            f"{job}: there is no {layout.IMAGE_DONE}: its run was killed before it had begun, and the snapshot that it "
            "was given is all there is (or that file was lost: `freshet run --resume latest` makes it again)"
        )
        raise UsageError(msg)
    return Stopped(job, settings, saved, run, properties, saved.flink)


def _saved_in(job: Path) -> SavedJob:
    saved = SavedJob.read(job)
    if saved is None:
        msg = f"{job}: no job in it ({layout.SAVED_JOB}); give the --out folder of a `freshet run`"
        raise UsageError(msg)
    return saved


def _elsewhere(state: JobState) -> str | None:
    """The other machine, or the silent cluster, where the job may still be at work."""
    run = state.run
    gone = "(if it is gone, name the state by --from)"
    if state.is_guess:
        return f"the cluster {run['cluster']}, which does not answer, {gone}"
    here = run.get("host") in (None, socket.gethostname())
    if here or run.get("cluster") or run.get("state") in (None, *run_file.ENDED):
        return None
    return f"the machine {run['host']} {gone}"


def as_ended(stopped: Stopped) -> Stopped | None:
    """The job once it has ended, if it is about to; else None."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        if at_work(stopped.out, ANSWER_S) is None:
            return replace(stopped, run=run_file.read_run(stopped.out), is_live=False)
        time.sleep(_POLL_S)
    return None


def copy_of_log(stopped: Stopped, work: Path) -> Path:
    """The cut log, copied: to open one is to take it over."""
    copy = work / layout.CUT_LOG
    if topic := stopped.settings.cuts.topic:
        from freshet.job.kafka.cut_topic import copy_topic

        copy_topic(KafkaAddress.parse(topic), stopped.properties, stopped.settings.job_id, copy)
        return copy
    found = cut_log_of(stopped)
    if found is not None:
        copy_log(found, copy)
    return copy


def cut_log_of(stopped: Stopped) -> Path | None:
    """Return the folder of the cut log; None where it is nowhere here."""
    return stopped.saved.cut_log(stopped.out, states_of(stopped).folder / layout.CUT_LOG)


def states_of(stopped: Stopped) -> JobStates:
    """Return the savepoints and checkpoints of the job."""
    checkpoints = stopped.saved.options.get("checkpoint_dir")
    return JobStates(stopped.out, stopped.settings.job_id, checkpoints, "--from", stopped.flink)
