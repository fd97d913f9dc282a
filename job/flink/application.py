"""The one job of a Flink application: its program runs where the JobManager runs, in application mode.

When a JobManager with high availability takes over, it runs the program again, and has recovered the job before: what
the program submits is then not a second job, since it has the id of the first.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from freshet.job.flink.dataflow import build
from freshet.job.flink.job_run import JobRun, RunResult, begin_attempt, place_of
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.options import JOB_ID, environment, job_options
from freshet.job.flink.runtime import ClusterRun
from freshet.job.folder import layout, run_file

if TYPE_CHECKING:
    from pyflink.datastream import StreamExecutionEnvironment

_FLINK_CLIENT = "PYFLINK_GATEWAY_PORT"  # set by Flink's own client, which has started Java already
_NOT_OURS = ("taskmanager.", "rest.", "execution.target", "io.tmp.dirs")  # where the job runs is the client's affair


def is_started_by_flink() -> bool:
    """Return whether Flink's client has started this program, and submits what it draws."""
    return _FLINK_CLIENT in os.environ


def environment_of_client(spec: JobSpec, more: dict[str, str] | None = None) -> StreamExecutionEnvironment:
    """Return the environment of Flink's client, with what belongs to the job itself."""
    options = {key: value for key, value in job_options(spec).items() if not key.startswith(_NOT_OURS)}
    return environment(options | (more or {}))


def flink_setting(key: str) -> str | None:
    """Return an option of Flink as the client was given it."""
    found = environment({})._j_stream_execution_environment.getConfiguration().toMap()
    return dict(found).get(key)


def execute_nothing() -> None:
    """Run a job without work: Flink takes a program that submits none as failed."""
    from freshet.job.flink.dataflow import discard

    env = environment({})
    discard(env.from_collection([0]))
    env.execute("freshet: nothing left to do")


class ApplicationRun(ClusterRun):
    """The job of this application, submitted by this program or recovered by its JobManager."""

    def start(self) -> None:
        """Submit the job; `run.json` then says where it is."""
        self.spec, rest = begin_attempt(self.spec), str(self.spec.cluster)
        job_id = flink_setting(JOB_ID) or secrets.token_hex(16)
        run_file.update_run(self.spec.out_path, application=True, **place_of(self.spec, rest, job_id))
        self._submit(self.spec, job_id)
        self._reach(rest, job_id)
        run_file.update_run(self.spec.out_path, state=run_file.RUNNING, logs=str(self.spec.logs))

    def go_on(self) -> None:
        """Take over the job that the JobManager has recovered, by submitting the same one again."""
        saved = JobSpec.load(self.spec.checkpoints / layout.SPEC)
        self._submit(saved, run_file.read_run(self.spec.out_path)["job_id"])
        self.attach()

    def _submit(self, spec: JobSpec, job_id: str) -> None:
        env = environment_of_client(spec, {JOB_ID: job_id})
        build(env, spec)
        env.execute_async(spec.name)


def run_application(
    recovered: bool,
    spec: JobSpec,
    started: Callable[[JobRun], None] | None = None,
    progress: Callable[[], None] | None = None,
    restarted: Callable[[str], None] | None = None,
    is_enough: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Like `run_job`, inside an application; signals are the JobManager's affair.

    `recovered`: the JobManager has the job already.
    Raises: JobFailed with the root cause.
    """
    run: Any = ApplicationRun(spec)
    try:
        run.go_on() if recovered else run.start()
        if started is not None:
            started(run)
        return run.wait(progress, restarted, lambda: 0 if is_enough() else None)
    finally:
        run.close()
