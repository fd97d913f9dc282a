"""A command and the job of its folder: what it is to do, found out once, and the job that it then runs or watches.

`plan_job` makes nothing; `freshet.job.run.runner.start` makes a `Running` of a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from freshet.job.console import say
from freshet.job.errors import EXIT_DONE
from freshet.job.folder import run_file
from freshet.job.lifecycle.job_state import JobState
from freshet.job.lifecycle.summary import StartUp, closing_summary, progress, remarks
from freshet.job.options.run_config import RunConfig
from freshet.job.run.attach import former_state
from freshet.job.run.model import as_the_snapshot_was_made
from freshet.job.run.new_job import Job
from freshet.job.run.preflight import check_services
from freshet.job.run.resume import nothing_left
from freshet.job.run.stop import JobEnd, stop_any
from freshet.job.run.watching import RejectWatch
from freshet.job.serving.embedded import server_of_run


@dataclass(frozen=True)
class JobPlan:
    """Plan of a command for the job of a folder, made before anything else is.

    `former`: the state of the job that is there, where the command goes on with one. `is_over`: that job has taken in
    all of its input. `in_application`: Flink has started this program, and the job is its application's.
    """

    config: RunConfig
    out: Path
    former: JobState | None = None
    is_over: bool = False
    in_application: bool = False

    @property
    def attaches(self) -> bool:
        """True if a cluster has the job and goes on with it, so that this process only watches it."""
        return self.former is not None and self.former.runs_on_cluster


def plan_job(config: RunConfig, *, in_application: bool = False) -> JobPlan:
    """Find out what a command does, before anything is made; the caller holds the lock of the folder.

    An end of the job that nobody recorded is recorded.

    Raises: UsageError for options that do not fit, or a cluster that does not answer; JobFailed for brokers that don't.
    """
    out = config.out.absolute()
    former = former_state(config.resume, config.cluster, out) if config.resume else None
    if former is not None and former.runs_on_cluster:
        return JobPlan(config, out, former, in_application=in_application)
    if not (is_over := nothing_left(config, out)):
        check_services(config)
    config = config if config.resume else as_the_snapshot_was_made(config)
    return JobPlan(config, out, former, is_over, in_application)


@dataclass(frozen=True)
class Running:
    """A job of this process, from its start to its end: `wait` runs or watches it, and sums it up.

    `to_its_end` does the work and returns the exit code; with `has_end` that is at the end of the job, which is then
    summed up. `is_own`: this process starts the job, and does not attach to it.
    """

    job: Job
    out: Path
    clock: StartUp
    rejects: RejectWatch
    to_its_end: Callable[[Running], int] = lambda _: EXIT_DONE
    flight_port: int | None = None
    server_options: Sequence[str] = ()
    server_config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    has_end: bool = True
    is_own: bool = True

    def status(self) -> dict[str, Any]:
        """Return the figures of the job so far."""
        return progress(self.out)

    def stop(self, savepoint: str | None = None) -> JobEnd:
        """Stop the job from another thread than that of `wait`, with a savepoint where it runs on Flink.

        Raises: UsageError when it does not run; JobFailed when it can't be stopped, or fails meanwhile.
        """
        return stop_any(self.out, savepoint)

    def wait(self) -> int:
        """Run the job to its end; returns the exit code. The last line on stdout is the summary.

        Raises: JobFailed with the root cause.
        """
        with server_of_run(self.flight_port, self.out, self.server_options, self.server_config):
            code = self.to_its_end(self)
        if not self.has_end:
            return code
        if self.is_own:
            run_file.update_run(self.out, startup_seconds=self.clock.seconds)
        return self.rejects.verdict(sum_up(self.out), code)


def sum_up(out: Path) -> dict[str, Any]:
    """Print the last line, the summary, and return it."""
    summary = closing_summary(out)
    run_file.update_run(out, summary=summary)
    for line in remarks(out, summary):
        say(line)
    print(orjson.dumps(summary).decode(), flush=True)
    return summary
