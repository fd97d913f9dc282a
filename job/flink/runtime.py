"""Runs a job on Flink, embedded or on a cluster: starts it, waits for it, stops it with a savepoint."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshet.files.json_file import write_json
from freshet.job.console import say
from freshet.job.errors import JobFailed
from freshet.job.flink import cluster
from freshet.job.flink.checkpoints import new_savepoint
from freshet.job.flink.dataflow import build
from freshet.job.flink.errors import is_to_ask_again, root_cause
from freshet.job.flink.gateway import start_gateway, stop_gateway
from freshet.job.flink.job_spec import JobSpec, after_former, savepoint_target
from freshet.job.flink.memory import client_heap_mb, memory_of_worker
from freshet.job.flink.options import environment, flink_options
from freshet.job.flink.rest import FlinkRest, FlinkRestError
from freshet.job.flink.state_files import CheckpointWatch, record_savepoint
from freshet.job.flink.task_managers import TaskManagers, start_job_manager
from freshet.job.folder import layout, run_file
from freshet.job.folder.stop_file import forget_stop, read_stop
from freshet.job.machine.signals import stop_signals
from freshet.job.uris import is_remote, location
from freshet.operators.telemetry.profile import forget_profiles, input_ended
from freshet.operators.telemetry.status_file import await_last

_POLL_S = 0.1
_BY_ITSELF = 0  # in place of the signal by which a job is stopped
_RESTART_POLL_S = 2.0
_END_S = 5.0  # in which the client hears of the end of a job
LAST_STATUS_S = 30.0  # for the last files of the Sink's parts, and what they say of them


@dataclass(frozen=True)
class RunResult:
    """End of a job: `finished` by itself, or `stopped` with a savepoint (and by which signal, if by one; else 0)."""

    state: str
    job_id: str
    savepoint: str | None = None
    signal: int | None = None


class FlinkRun:
    """One job, from `start` to `close`.

    Invariant: the Java processes end with this object, with this process, and with the thread that called `start`.
    """

    def __init__(self, spec: JobSpec, draw: Callable[[Any, JobSpec], None] = build) -> None:
        """Nothing runs yet; `draw` draws the dataflow on an environment."""
        self.spec, self._draw = spec, draw
        self.job_id = ""
        self.rest_address = ""
        self._java: subprocess.Popen[bytes] | None = None
        self._task_managers: TaskManagers | None = None
        self._client: Any = None
        self._result: Any = None
        self._rest: FlinkRest | None = None
        self._checkpoints: CheckpointWatch | None = None
        self._restarts_seen = 0
        self._began_ms = time.time() * 1e3

    def start(self) -> None:
        """Start Java and submit the job; `run.json` then says where it is.

        Raises: JobFailed when Flink refuses the job; GatewayError when Java does not start.
        """
        saved = self.spec.checkpoints / layout.SPEC
        self.spec = spec = after_former(self.spec, saved)
        spec.checkpoints.mkdir(parents=True, exist_ok=True)
        spec.save(saved)
        shutil.rmtree(spec.tmp, ignore_errors=True)  # of a run that was killed
        spec.tmp.mkdir(parents=True)
        forget_stop(spec.out_path)
        forget_profiles(spec.out_path)
        (spec.checkpoints / layout.RETAINED).unlink(missing_ok=True)
        run_file.update_run(spec.out_path, state=run_file.STARTING, runtime="flink", **run_file.this_process())
        options = flink_options(spec)
        self.rest_address = f"{options['rest.address']}:{options['rest.port']}"
        try:
            cluster.await_answer(spec.cluster)  # Flink's client would ask for a minute
        except JobFailed as error:
            raise self._failed(error) from error
        if spec.starts_task_managers:
            self._task_managers = TaskManagers(spec, options)
            self._task_managers.start()
        self._java = start_gateway(spec.logs, spec.tmp, client_heap_mb(spec), memory_of_worker(spec).direct_mb)
        try:
            if spec.starts_task_managers:
                start_job_manager(options)
            env = environment(options)
            self._draw(env, spec)
            self._client = env.execute_async(spec.name)
            self.job_id = str(self._client.get_job_id())
            self._result = self._client.get_job_execution_result()
        except Exception as error:
            raise self._failed(error) from error
        self._rest = FlinkRest(self.rest_address, self.job_id)
        self._checkpoints = CheckpointWatch(spec.checkpoints / self.job_id)
        run_file.update_run(
            spec.out_path,
            state=run_file.RUNNING,
            job_id=self.job_id,
            rest=self.rest_address,
            flink_ui=f"http://{self.rest_address}/#/job/{self.job_id}/overview",
            cluster=spec.cluster,
            pids=self._pids(),
            checkpoints=spec.checkpoint_uri,
            logs=str(spec.logs),
            started_ms=int(time.time() * 1e3),
        )

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
            if should_stop is not None and (number := should_stop()) is not None:
                say("stopping with a savepoint, once the epochs under way have ended; another signal ends at once")
                return self.stop(by_signal=number)
            if restarted is not None and time.monotonic() >= next_poll:
                self._report_restarts(restarted)
                self._tell_retained()
                next_poll = time.monotonic() + _RESTART_POLL_S
            time.sleep(_POLL_S)
        return self._ended()

    def stop(self, savepoint_dir: Path | str | None = None, by_signal: int | None = None) -> RunResult:
        """Stop the job with a savepoint, after all it has begun is complete; a job that has just ended is `finished`.

        Raises: JobFailed when the job fails meanwhile or the savepoint can't be written.
        """
        target = savepoint_target(savepoint_dir or self.spec.savepoint_uri)
        while True:
            try:
                path = self._stop_with_savepoint(target)
                break
            except Exception as error:
                self._replace_dead()  # a job without it restarts for ever, and takes no savepoint
                again = is_to_ask_again(str(error))
                # One that has just ended has no savepoint either, and Flink says so in many ways.
                if self._ends_within(_POLL_S if again else _END_S):
                    return self._ended()
                if not again:
                    raise self._failed(error) from error
        savepoint = location(path)
        if not is_remote(savepoint):
            record_savepoint(Path(savepoint))
        self._await_sinks()
        self._record(run_file.STOPPED, savepoint=savepoint)
        return RunResult(run_file.STOPPED, self.job_id, savepoint, by_signal)

    def cancel(self) -> None:
        """End the job without a savepoint, if it runs; a cluster would go on with it when this process has gone."""
        if self._client is not None and self.spec.cluster is not None:
            with contextlib.suppress(Exception):  # it has ended, or the connection has
                self._client.cancel().result()

    def close(self) -> None:
        """End all Java processes; an embedded job that still runs is gone with them, its checkpoints stay."""
        if self._checkpoints is not None:
            self._checkpoints.close()
        if self._rest is not None:
            self._rest.close()
        if self._task_managers is not None:
            self._task_managers.stop()
        if self._java is not None:
            stop_gateway(self._java)
            self._java = None
        shutil.rmtree(self.spec.tmp, ignore_errors=True)

    @property
    def own_checkpoint(self) -> Path | None:
        """The newest checkpoint that this run has completed, of those in a folder that can be looked into."""
        return None if self._checkpoints is None else self._checkpoints.newest

    def network_bytes(self) -> int | None:
        """Return Flink's network memory; None where Flink does not say."""
        try:
            return (self._rest.network_bytes() or None) if self._rest is not None else None
        except FlinkRestError:  # the cluster comes up, or has just ended
            return None

    def _stop_with_savepoint(self, target: str) -> str:
        """Call Java itself: PyFlink's own method calls a signature that Flink 2 no longer has."""
        from pyflink.java_gateway import get_gateway

        canonical = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL
        return str(self._client._j_job_client.stopWithSavepoint(False, target, canonical).get())

    def _is_done(self) -> bool:
        assert self._java is not None
        try:
            return bool(self._result.done())
        except Exception as error:  # whatever py4j makes of a lost connection
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._java.wait(2.0)
            if self._java.returncode is None:
                raise self._failed(error) from error
            raise self._failed(JobFailed(self._death_of_java(self._java.returncode))) from error

    def _ends_within(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not (done := self._is_done()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return done

    def _death_of_java(self, code: int) -> str:
        """Describe the death of the Java process: its signal, or the last line of its log."""
        log = self.spec.logs / "java.log"
        if code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        else:
            how = " ".join([f"exit {code}:", *log.read_text(errors="replace").strip().splitlines()[-1:]])
        return f"the Java process died ({how}); {log} has what it said, and --resume latest goes on"

    def _ended(self) -> RunResult:
        """Read how a job ended that is done: by itself, stopped by someone else, or failed."""
        try:
            self._result.result()
        except Exception as error:
            raise self._failed(error) from error
        self._await_sinks()
        out = self.spec.out_path
        savepoint = _await_savepoint(out) if read_stop(out).get("job_id") == self.job_id else None
        # On a cluster somebody may have stopped it by Flink's own means, before it had done anything.
        bounded = self.spec.ends_by_itself and self.spec.cluster is None
        if savepoint is None and input_ended(out, bounded=bounded):
            self._record(run_file.FINISHED)
            return RunResult(run_file.FINISHED, self.job_id)
        if savepoint is not None and not is_remote(savepoint):
            record_savepoint(Path(savepoint))
        self._record(run_file.STOPPED, savepoint=savepoint)
        return RunResult(run_file.STOPPED, self.job_id, savepoint)

    def _await_sinks(self) -> None:
        """Have the parts of the Sink finish, and the Partitioner: Flink may drop them once it calls the job ended."""
        if not await_last(self.spec.out_path, self._began_ms, LAST_STATUS_S):
            say(f"the last files of this run were not complete {LAST_STATUS_S:.0f} s after its end; they come again")

    def _pids(self) -> dict[str, int | list[int]]:
        assert self._java is not None
        pids: dict[str, int | list[int]] = {"client": os.getpid(), "java": self._java.pid}
        return pids if self._task_managers is None else {**pids, "taskmanagers": self._task_managers.pids}

    def _replace_dead(self) -> None:
        """Start TaskManagers that have died again; Flink restarts the job by itself."""
        if self._task_managers is None:
            return
        try:
            ended = self._task_managers.replace_dead()
        except JobFailed as error:
            raise self._failed(error) from error
        for how in ended:
            say(f"{how}; started again")
        if ended:
            run_file.update_run(self.spec.out_path, pids=self._pids())

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
        if not is_remote(self.spec.checkpoint_dir):
            return
        try:
            since_ms = self._rest.retained_since_ms(self.spec.checkpoints_retained)
        except FlinkRestError:
            return
        if since_ms is not None:
            write_json(self.spec.checkpoints / layout.RETAINED, {"since_ms": since_ms})

    def _failed(self, error: BaseException) -> JobFailed:
        cause = str(error) if isinstance(error, JobFailed) else root_cause(error)
        if self.spec.cluster is not None and not self.job_id:
            cause = cluster.told(self.spec.cluster, cause)
        with contextlib.suppress(OSError):  # a full disk may be the cause, which must be told
            self._record(run_file.FAILED, error=cause)
        return JobFailed(cause)

    def _record(self, state: str, **fields: Any) -> None:
        run_file.update_run(self.spec.out_path, state=state, ended_ms=int(time.time() * 1e3), **fields)


def run_job(
    spec: JobSpec,
    started: Callable[[FlinkRun], None] | None = None,
    progress: Callable[[], None] | None = None,
    restarted: Callable[[str], None] | None = None,
    is_enough: Callable[[], bool] = lambda: False,
    draw: Callable[[Any, JobSpec], None] = build,
) -> RunResult:
    """Run a job to its end; SIGINT, SIGTERM and `is_enough` stop it with a savepoint. Call it from the main thread.

    Raises: JobFailed with the root cause.
    """
    run = FlinkRun(spec, draw)
    with stop_signals() as caught:
        try:
            run.start()
            if started is not None:
                started(run)
            return run.wait(progress, restarted, lambda: caught[0] if caught else _BY_ITSELF if is_enough() else None)
        finally:
            run.close()


def _await_savepoint(out: Path, timeout_s: float = 10.0) -> str | None:
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
        time.sleep(_POLL_S)
    found = new_savepoint(request["savepoint_dir"], request["before"])
    return None if found is None else str(found)
