"""A job on Flink while it runs, however it was started: its attempt, its end, and its savepoint."""

from __future__ import annotations

import contextlib
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshet.files.whole import remove_left_behind
from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError
from freshet.job.flink import figures
from freshet.job.flink.checkpoints import new_savepoint
from freshet.job.flink.errors import is_to_ask_again, root_cause
from freshet.job.flink.figures import RetainedNotice
from freshet.job.flink.job_spec import JobSpec, after_former, savepoint_target
from freshet.job.flink.rest import FlinkRest, FlinkRestError, with_address
from freshet.job.flink.state_files import CheckpointWatch, record_savepoint
from freshet.job.folder import layout, lock, run_file
from freshet.job.folder.run_file import forget_stop, read_stop
from freshet.job.uris import is_remote, location
from freshet.operators.telemetry.profile import forget_profiles, input_ended
from freshet.operators.telemetry.status_file import await_last

POLL_S = 0.1
_RESTART_POLL_S = 2.0
END_S = 5.0  # in which the client hears of the end of a job
LAST_STATUS_S = 30.0  # for the last files of operators


@dataclass(frozen=True)
class RunResult:
    """End of a job: `finished` by itself, or `stopped` with a savepoint (and by which signal, if by one; else 0)."""

    state: str
    job_id: str
    savepoint: str | None = None
    signal: int | None = None


class NotOverError(JobFailed):
    """This process gives up a job that goes on without it, as far as is known."""


class JobRun(ABC):
    """One job, from its start to `close`; how it is reached is up to the subclass."""

    def __init__(self, spec: JobSpec) -> None:
        """Nothing runs yet."""
        self.spec = spec
        self.job_id = ""
        self.rest_address = ""
        self._rest: FlinkRest | None = None
        self._checkpoints: CheckpointWatch | None = None
        self._restarts_seen, self._has_completed_away = 0, False
        self._retained: RetainedNotice | None = None
        self._began_ms = time.time() * 1e3

    @abstractmethod
    def start(self) -> None:
        """Start the job; `run.json` then says where it is."""

    @abstractmethod
    def _is_done(self) -> bool:
        """Return whether the job is over, however it ended."""

    @abstractmethod
    def stop_with_savepoint(self, target: str) -> str:
        """Stop the job with a savepoint below a folder (a URI); return where it is."""

    @abstractmethod
    def _expect_success(self) -> None:
        """Raise JobFailed with the cause if the job, which is over, has failed."""

    def _savepoint_of_others(self) -> str | None:
        """Return the savepoint with which somebody stopped the job by Flink's own means, if that is known."""
        return None

    def _replace_dead(self) -> None:  # noqa: B027
        """Start processes of the job that have died again, where they are this process's to start."""

    def wait(
        self,
        progress: Callable[[], None] | None = None,
        restarted: Callable[[str], None] | None = None,
        should_stop: Callable[[], int | None] | None = None,
    ) -> RunResult:
        """Wait until the job ends; `should_stop` returns the signal by which to stop it, None to go on.

        `progress` is called about ten times a second, `restarted` with the cause of each restart.
        Raises: JobFailed with the root cause.
        """
        next_poll = time.monotonic() + _RESTART_POLL_S
        while not self._is_done():
            self._replace_dead()
            if self._checkpoints is not None:
                self._checkpoints.look()
            if progress is not None:
                progress()
            if self.spec.ends_with_state and input_ended(self.spec.out_path, bounded=False):
                return self.stop(at_end=True)
            if should_stop is not None and (number := should_stop()) is not None:
                say("stopping with a savepoint, once the epochs under way have ended; another signal ends at once")
                return self.stop(by_signal=number)
            if restarted is not None and time.monotonic() >= next_poll:
                self._report_restarts(restarted)
                self._tell_retained()
                self._write_status()
                next_poll = time.monotonic() + _RESTART_POLL_S
            time.sleep(POLL_S)
        return self._ended()

    def stop(
        self, savepoint_dir: Path | str | None = None, by_signal: int | None = None, *, at_end: bool = False
    ) -> RunResult:
        """Stop the job with a savepoint, after all it has begun is complete; a job that has just ended is `finished`.

        So is one that is stopped `at_end` of its input, unless it failed meanwhile and reads a part of that again.
        Raises: JobFailed when the job fails meanwhile or the savepoint can't be written.
        """
        target = savepoint_target(savepoint_dir or self.spec.savepoint_uri)
        while True:
            try:
                with lock.locked(self.spec.out_path / layout.STOPPING, "freshet run", str):
                    path = self.stop_with_savepoint(target)
                break
            except Exception as error:
                self._replace_dead()  # a job without it restarts for ever, and takes no savepoint
                again = isinstance(error, UsageError) or is_to_ask_again(str(error))  # or somebody else stops it
                # One that has just ended has no savepoint either, and Flink says so in many ways.
                if self._ends_within(POLL_S if again else END_S):
                    return self._ended()
                if not again:
                    raise self._failed(error) from error
        savepoint = location(path)
        if not is_remote(savepoint):
            record_savepoint(Path(savepoint))
        self._await_last_files()
        has_finished = at_end and input_ended(self.spec.out_path, bounded=False)
        state = run_file.FINISHED if has_finished else run_file.STOPPED
        self._record(state, savepoint=savepoint)
        return RunResult(state, self.job_id, savepoint, by_signal)

    @property
    def own_checkpoint(self) -> Path | None:
        """The newest checkpoint that this run has completed, of those in a folder that can be looked into."""
        return None if self._checkpoints is None else self._checkpoints.newest

    @property
    def own_away(self) -> str | None:
        """The folder, in another store, of the checkpoints of this run, once it has completed one."""
        return self.job_id if self._has_completed_away else None

    def network_bytes(self) -> int | None:
        """Return Flink's network memory; None where Flink does not say."""
        try:
            return (self._rest.network_bytes() or None) if self._rest is not None else None
        except FlinkRestError:  # the cluster comes up, or has just ended
            return None

    def close(self) -> None:
        """Let go of the job, and remove what Flink needed while it ran."""
        self._release()
        shutil.rmtree(self.spec.tmp, ignore_errors=True)

    def _release(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        if self._rest is not None:
            self._rest.close()

    def _ends_within(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not (done := self._is_done()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return done

    def _ended(self) -> RunResult:
        """Read how a job ended that is done: by itself, stopped by someone else, or failed."""
        self._expect_success()
        self._await_last_files()
        out = self.spec.out_path
        savepoint = (
            _await_savepoint(out, self.spec.user_options) if read_stop(out).get("job_id") == self.job_id else None
        )
        # On a cluster somebody may have stopped it by Flink's own means, before it had done anything.
        bounded = self.spec.ends_by_itself and self.spec.cluster is None
        if savepoint is None and input_ended(out, bounded=bounded):
            at_end = self._savepoint_of_others() if self.spec.ends_with_state else None  # of a client that is gone
            self._record(run_file.FINISHED, savepoint=at_end)
            return RunResult(run_file.FINISHED, self.job_id, at_end)
        savepoint = savepoint or self._savepoint_of_others()
        if savepoint is not None and not is_remote(savepoint):
            record_savepoint(Path(savepoint))
        self._record(run_file.STOPPED, savepoint=savepoint)
        return RunResult(run_file.STOPPED, self.job_id, savepoint)

    def _await_last_files(self) -> None:
        """Have all operators write their last files: Flink may drop them once it calls the job ended."""
        if not await_last(self.spec.out_path, self._began_ms, LAST_STATUS_S):
            say(f"the last files of this run were not complete {LAST_STATUS_S:.0f} s after its end; they come again")

    def _report_restarts(self, restarted: Callable[[str], None]) -> None:
        assert self._rest is not None
        try:
            causes = self._rest.causes()
        except FlinkRestError:  # an embedded cluster that has just ended
            return
        for _, cause in causes[self._restarts_seen :]:
            restarted(cause)
        self._restarts_seen = max(self._restarts_seen, len(causes))

    def _tell_retained(self) -> None:
        """Tell the cut log of checkpoints that it can't see: they are in another store."""
        assert self._rest is not None
        if self._retained is None:
            self._retained = RetainedNotice(self.spec)
        if not self._retained.is_wanted:
            return
        try:
            since_ms = self._rest.retained_since_ms(self.spec.checkpoints_retained)
        except FlinkRestError:
            return
        if since_ms is not None:
            self._has_completed_away = True
            self._retained.tell(since_ms)

    def _write_status(self) -> None:
        """Write the status of a job on a cluster whose processes do not see its folder."""
        if self.spec.cluster is not None and self._rest is not None:
            sources = self.spec.stage.get("sources", ())
            figures.look(self.spec.out_path, self._rest, self.spec.parts, sources)

    def _failed(self, error: BaseException) -> JobFailed:
        cause = str(error) if isinstance(error, JobFailed) else root_cause(error)
        if self.spec.cluster is not None and not self.job_id:
            cause = with_address(self.spec.cluster, cause)
        with contextlib.suppress(OSError):  # a full disk may be the cause, which must be reported
            self._record(run_file.FAILED, error=cause)
        return JobFailed(cause)

    def _record(self, state: str, **fields: Any) -> None:
        run_file.update_run(self.spec.out_path, state=state, ended_ms=int(time.time() * 1e3), **fields)


def _await_savepoint(out: Path, store: Mapping[str, str], timeout_s: float = 10.0) -> str | None:
    """Return the savepoint of the process that asked for one; it learns of it about when we see the job end.

    None if it withdrew its request. If it reports nothing (killed, or timed out), the folder has the savepoint.
    """
    deadline = time.monotonic() + timeout_s
    request: dict[str, Any] = {}
    while time.monotonic() < deadline:
        if not (request := read_stop(out)):
            return None
        if "savepoint" in request:
            return str(request["savepoint"])
        time.sleep(POLL_S)
    return new_savepoint(request["savepoint_dir"], request["before"], store)


def begin_attempt(spec: JobSpec) -> JobSpec:
    """Return the spec as the job starts with it, once the folder has nothing of an earlier attempt."""
    saved = spec.checkpoints / layout.SPEC
    spec = after_former(spec, saved)
    spec.checkpoints.mkdir(parents=True, exist_ok=True)
    remove_left_behind(spec.checkpoints)
    spec.save(saved)
    shutil.rmtree(spec.tmp, ignore_errors=True)  # of a run that was killed
    spec.tmp.mkdir(parents=True)
    forget_stop(spec.out_path)
    forget_profiles(spec.out_path)
    (spec.checkpoints / layout.RETAINED).unlink(missing_ok=True)
    run_file.record_start(spec.out_path, runtime="flink")
    return spec


def place_of(spec: JobSpec, rest: str, job_id: str) -> dict[str, Any]:
    """Return the fields of `run.json` that say where the job is."""
    return {
        "job_id": job_id,
        "rest": rest,
        "flink_ui": ui_of(rest, job_id),
        "cluster": spec.cluster,
        "checkpoints": spec.checkpoint_uri,
        "started_ms": int(time.time() * 1e3),
        "tried": spec.stage.get("run"),
    }


def ui_of(rest: str, job_id: str) -> str:
    """Return the address of a job's page in Flink's UI."""
    return f"http://{rest}/#/job/{job_id}/overview"
