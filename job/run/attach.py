"""A command that finds its job at work on a cluster: attaches to it instead of starting a second one."""

from __future__ import annotations

import time
from pathlib import Path

from freshet.job.errors import UsageError
from freshet.job.folder.job_file import SavedJob
from freshet.job.lifecycle.ending import record_end
from freshet.job.lifecycle.job_state import JobState, state_of
from freshet.job.options.runtime_options import NEWEST
from freshet.job.run.job_states import JobStates

_ANSWER_S = 5.0  # for an answer of Flink
_PATIENCE_S = 10.0  # for a cluster that is just being started
_POLL_S = 0.5


def former_state(resume: str, cluster: str | None, out: Path) -> JobState:
    """Return the state of the job in a folder whose lock this process holds; an end that nobody recorded is recorded.

    `resume` and `cluster` are the options.

    Raises: UsageError where the job's cluster does not answer, or a state is named while the job runs.
    """
    state = _asked(cluster, out)
    if state.is_guess and resume in NEWEST:
        raise UsageError(_no_answer(out, state))
    if state.runs_on_cluster:
        if resume in NEWEST:
            return state
        msg = f"--out {out}: {state.worker} is still working on it; end it with `freshet stop {out}` first"
        raise UsageError(msg)
    record_end(out, state)
    return state


def _asked(cluster: str | None, out: Path) -> JobState:
    """Ask the cluster where the job was, and that of --cluster: both may be addresses of the same one."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        state = state_of(out, _ANSWER_S, has_lock=True)
        other = cluster if cluster != state.run.get("rest") else None
        if not state.runs_on_cluster and other is not None and state.run.get("cluster"):
            there = state_of(out, _ANSWER_S, has_lock=True, at=other)
            state = there if there.flink is not None else state
        if not state.is_guess or time.monotonic() > deadline:
            return state
        time.sleep(_POLL_S)


def _no_answer(out: Path, state: JobState) -> str:
    run, saved = state.run, SavedJob.read(out)
    newest = None
    if saved is not None:
        states = JobStates(out, saved.settings.job_id, saved.options.get("checkpoint_dir"), "--resume")
        newest = states.older_than(Path())
    gone = "" if newest is None else f"; if it is gone for good, name the state to go on from: --resume {newest}"
    return (
        f"--resume: the cluster {run['cluster']} does not answer, and the job {run['job_id']} of {out} may run there, "
        f"so that no other may begin; try again when the cluster answers{gone}"
    )
