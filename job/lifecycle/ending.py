"""End of a job that no client has seen: recorded in `run.json` as its client would have."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from freshet.job.errors import JobFailed, UsageError
from freshet.job.flink.errors import ENDS
from freshet.job.folder import layout, lock, run_file
from freshet.job.lifecycle.job_state import ENDED, REST_S, JobState, state_of

if TYPE_CHECKING:
    from freshet.job.flink.job_spec import JobSpec


def settled(out: Path, rest_s: float = REST_S) -> JobState:
    """Return the state of the job in `out` like `state_of`; an end that nobody has recorded is recorded first.

    Raises: UsageError where the folder is no job's; DamagedFileError where `run.json` is damaged.
    """
    state = state_of(out, rest_s)
    if not _lacks_end(state):
        return state
    with suppress(UsageError), lock.taken(out, "freshet"):  # else somebody else is about to, or nobody may write there
        record_end(out, state_of(out, rest_s, has_lock=True))  # somebody may have gone on with it meanwhile
    return state_of(out, rest_s)


def record_end(out: Path, state: JobState) -> None:
    """Record the end of a job that Flink, or its files, call over; for the holder of the folder's lock."""
    if not _lacks_end(state):
        return
    if state.flink not in ENDS:
        run_file.update_run(out, state=run_file.FINISHED, ended_ms=int(time.time() * 1e3))
        return
    from freshet.job.flink.runtime import ClusterRun

    run = ClusterRun(spec_of_cluster_job(out))
    try:
        run.attach(state.flink or "")
        with suppress(JobFailed):  # it is recorded
            run.wait()
    finally:
        run.close()


def _lacks_end(state: JobState) -> bool:
    over = state.flink in ENDS or state.state == ENDED
    return over and state.is_over and state.run.get("state") not in run_file.ENDED


def spec_of_cluster_job(out: Path) -> JobSpec:
    """Return what it takes to watch and to stop the job on a cluster that `run.json` describes, not to start it."""
    from freshet.job.flink.job_spec import JobSpec
    from freshet.job.folder.job_file import SavedJob  # takes long to load

    saved, cluster = SavedJob.read(out), run_file.read_run(out).get("cluster")
    given, job_id = (None, "") if saved is None else (saved.options.get("checkpoint_dir"), saved.settings.job_id)
    folder = layout.checkpoint_dir_of_job(given, job_id) or ""
    found = JobSpec(out=str(out), layers=1, cluster=cluster, checkpoint_dir=folder)
    with suppress(UsageError):  # it never began
        waits = JobSpec.load(found.checkpoints / layout.SPEC).ends_with_state
        return found.model_copy(update={"ends_with_state": waits})
    return found
