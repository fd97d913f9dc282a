"""Runs a job on Flink, embedded or on a cluster: starts it, waits for it, stops it with a savepoint."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from freshet.job.console import say
from freshet.job.errors import JobFailed
from freshet.job.flink.dataflow import build
from freshet.job.flink.errors import ENDS, LOST_JOB
from freshet.job.flink.gateway import start_gateway, stop_gateway
from freshet.job.flink.job_run import JobRun, NotOverError, RunResult, begin_attempt, place_of, ui_of
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.options import JOB_ID, client_heap_mb, environment, flink_options, memory_of_worker
from freshet.job.flink.rest import FlinkRest, FlinkRestError, UnknownJobError, await_answer, await_slots
from freshet.job.flink.state_files import CheckpointWatch
from freshet.job.flink.task_managers import TaskManagers, start_job_manager
from freshet.job.folder import layout, run_file
from freshet.job.machine.processes import stop_signals
from freshet.job.stores.plugins import open_file_systems, plugins_environ, wanted_plugins

_BY_ITSELF = 0  # in place of the signal by which a job is stopped
_ASK_S = 0.3  # between two questions for the state of a job on a cluster
_SILENCE_S = 60.0  # in which a cluster that is silent may come back: its JobManager is started again, say
_STOP_S = 3600.0  # for a savepoint at a stop; another signal ends the wait


class FlinkRun(JobRun):
    """One job and its Java processes, from `start` to `close`.

    Invariant: the Java processes end with this object, with this process, and with the thread that called `start`.
    """

    def __init__(self, spec: JobSpec, draw: Callable[[Any, JobSpec], None] = build) -> None:
        """Nothing runs yet; `draw` draws the dataflow on an environment."""
        super().__init__(spec)
        self._draw = draw
        self._java: subprocess.Popen[bytes] | None = None
        self._task_managers: TaskManagers | None = None
        self._client: Any = None
        self._result: Any = None

    def start(self) -> None:
        """Start Java and submit the job; `run.json` then says where it is.

        Raises: JobFailed when Flink refuses the job; GatewayError when Java does not start.
        """
        self.spec = spec = begin_attempt(self.spec)
        options = flink_options(spec)
        self.rest_address = f"{options['rest.address']}:{options['rest.port']}"
        try:
            await_answer(spec.cluster)  # Flink's client would ask for a minute
        except JobFailed as error:
            raise self._failed(error) from error
        if spec.cluster is not None:  # it may be there if this process is killed before it hears of it
            options[JOB_ID] = secrets.token_hex(16)
            run_file.update_run(spec.out_path, **place_of(spec, self.rest_address, options[JOB_ID]))
        # A cluster has plugins of its own; its client only submits.
        jars = [] if spec.cluster is not None else wanted_plugins(spec.user_options, [spec.checkpoint_dir, spec.resume])
        environ = plugins_environ(spec.out_path / layout.PLUGINS, jars)
        if spec.starts_task_managers:
            self._task_managers = TaskManagers(spec, options, environ=environ)
            self._task_managers.start()
        direct_mb = memory_of_worker(spec).direct_mb
        self._java = start_gateway(spec.logs, spec.tmp, client_heap_mb(spec), direct_mb, environ)
        try:
            if jars:
                open_file_systems(options)
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
        place = place_of(spec, self.rest_address, self.job_id)
        run_file.update_run(spec.out_path, state=run_file.RUNNING, pids=self._pids(), logs=str(spec.logs), **place)

    def cancel(self) -> None:
        """End the job without a savepoint, if it runs; a cluster would go on with it when this process has gone."""
        if self._client is not None and self.spec.cluster is not None:
            with contextlib.suppress(Exception):  # it has ended, or the connection has
                self._client.cancel().result()

    def close(self) -> None:
        """End all Java processes; an embedded job that still runs is gone with them, its checkpoints stay."""
        self.let_go()
        shutil.rmtree(self.spec.tmp, ignore_errors=True)

    def let_go(self) -> None:
        """End all Java processes; a job on a cluster goes on."""
        self._release()
        if self._task_managers is not None:
            self._task_managers.stop()
        if self._java is not None:
            stop_gateway(self._java)
            self._java = None

    def stop_with_savepoint(self, target: str) -> str:
        """Have Java itself do it: PyFlink's own method calls a signature that Flink 2 no longer has."""
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

    def _expect_success(self) -> None:
        try:
            self._result.result()
        except Exception as error:
            raise self._failed(error) from error

    def _death_of_java(self, code: int) -> str:
        """Describe the death of the Java process: its signal, or the last line of its log."""
        log = self.spec.logs / "java.log"
        if code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        else:
            how = " ".join([f"exit {code}:", *log.read_text(errors="replace").strip().splitlines()[-1:]])
        return f"the Java process died ({how}); {log} has what it said, and --resume latest goes on"

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
            say(f"{how}; started again", "warning")
        if ended:
            run_file.update_run(self.spec.out_path, pids=self._pids())


class ClusterRun(JobRun):
    """One job on a cluster, which goes on without this process: Java submits it, then Flink's REST is asked."""

    def __init__(self, spec: JobSpec, draw: Callable[[Any, JobSpec], None] = build) -> None:
        """Nothing runs yet; `draw` draws the dataflow on an environment."""
        super().__init__(spec)
        self._draw = draw
        self._flink = ""  # Flink's word for the state of the job
        self._next_s = 0.0
        self._silent_since_s: float | None = None

    def start(self) -> None:
        """Submit the job; `run.json` then says where it is.

        Raises: JobFailed when Flink refuses the job; GatewayError when Java does not start.
        """
        client = FlinkRun(self.spec, self._draw)
        try:
            client.start()
        finally:
            client.let_go()
        self.spec = client.spec
        run_file.update_run(self.spec.out_path, pids={"client": os.getpid()})
        self._reach(client.rest_address, client.job_id)

    def attach(self, ended: str = "") -> None:
        """Take over the job that `run.json` describes: another process has started it, and is gone.

        `ended`: Flink's word for its end, where that is known; the cluster may be gone, too, by now.
        """
        run = run_file.read_run(self.spec.out_path)
        self._flink = ended
        self._reach(self.spec.cluster or run["rest"], run["job_id"])
        self._began_ms = float(run.get("started_ms") or 0)
        with contextlib.suppress(FlinkRestError):
            self._restarts_seen = len(self._reached.causes())
        gone = {"error": None, "ended_ms": None} if run.get("state") in run_file.ENDED else {}
        place = {
            "rest": self.rest_address,
            "cluster": self.rest_address,
            "flink_ui": ui_of(self.rest_address, self.job_id),
        }
        run_file.update_run(self.spec.out_path, state=run_file.RUNNING, **gone, **place, **run_file.this_process())

    def leave(self) -> None:
        """Let the job go on without this process."""
        self._release()

    @property
    def _reached(self) -> FlinkRest:
        assert self._rest is not None
        return self._rest

    def _reach(self, address: str, job_id: str) -> None:
        self.rest_address, self.job_id = address, job_id
        self._rest = FlinkRest(address, job_id)
        self._checkpoints = CheckpointWatch(self.spec.checkpoints / job_id)

    def _is_done(self) -> bool:
        if self._flink not in ENDS and time.monotonic() >= self._next_s:
            self._ask()
            self._next_s = time.monotonic() + _ASK_S
        return self._flink in ENDS

    def _ask(self) -> None:
        try:
            self._flink = self._reached.state()
        except UnknownJobError as error:
            raise super()._failed(JobFailed(LOST_JOB)) from error
        except FlinkRestError as error:
            now_s = time.monotonic()
            if self._silent_since_s is None:
                self._silent_since_s = now_s
                say(
                    f"the cluster {self.rest_address} does not answer; it is asked for {_SILENCE_S:.0f} s more",
                    "warning",
                )
            if now_s - self._silent_since_s > _SILENCE_S:
                raise self._failed(error) from error
            return
        if self._silent_since_s is not None:
            self._silent_since_s = None
            say(f"the cluster {self.rest_address} answers again: the job is {self._flink}")

    def stop_with_savepoint(self, target: str) -> str:
        """Have Flink's REST server do it, and wait."""
        return self._reached.stop(target, _STOP_S)

    def _expect_success(self) -> None:
        if self._flink == "FAILED":
            causes: list[tuple[int, str]] = []
            with contextlib.suppress(FlinkRestError):
                causes = self._reached.causes()
            raise self._failed(JobFailed(causes[-1][1] if causes else "Flink calls it failed, and does not say why"))

    def _ended(self) -> RunResult:
        if self._flink != "CANCELED":
            return super()._ended()
        self._record(run_file.STOPPED, savepoint=None)
        return RunResult(run_file.STOPPED, self.job_id)

    def _savepoint_of_others(self) -> str | None:
        with contextlib.suppress(FlinkRestError):
            return self._reached.last_savepoint()
        return None

    def _failed(self, error: BaseException) -> JobFailed:
        """Record a failure of the job; what only this process fails at leaves the job as it is."""
        if self._flink in ENDS:
            return super()._failed(error)
        return NotOverError(f"{error}; the job may go on: --resume latest asks the cluster {self.rest_address} for it")


def run_job(
    spec: JobSpec,
    started: Callable[[JobRun], None] | None = None,
    progress: Callable[[], None] | None = None,
    restarted: Callable[[str], None] | None = None,
    is_enough: Callable[[], bool] = lambda: False,
    draw: Callable[[Any, JobSpec], None] = build,
    waiting: Callable[[str], None] | None = None,
) -> RunResult:
    """Run a job to its end; SIGINT, SIGTERM and `is_enough` stop it with a savepoint. Call it from the main thread.

    `waiting` is called while the job waits for slots of its cluster.
    Raises: JobFailed with the root cause.
    """
    with stop_signals() as caught:
        if not _has_slots(spec, waiting, lambda: bool(caught)):
            return RunResult(run_file.STOPPED, "", signal=caught[0])
        run = FlinkRun(spec, draw) if spec.cluster is None else ClusterRun(spec, draw)
        return _to_its_end(run, run.start, caught, started, progress, restarted, is_enough)


def submit_job(spec: JobSpec) -> None:
    """Submit a job to its cluster, once there are slots for it, and let it go on without this process.

    Raises: JobFailed when Flink refuses the job.
    """
    if any(topic.end is not None for topic in spec.topics):
        say("--detach: nobody keeps a state at the end of --until, so that no --resume reads on from there")
    _has_slots(spec)
    run = ClusterRun(spec)
    try:
        run.start()
    finally:
        run.leave()


def attach_job(
    spec: JobSpec,
    started: Callable[[JobRun], None] | None = None,
    progress: Callable[[], None] | None = None,
    restarted: Callable[[str], None] | None = None,
    is_enough: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Like `run_job`, for the job on a cluster that `run.json` of the folder describes."""
    run = ClusterRun(spec)
    with stop_signals() as caught:
        return _to_its_end(run, run.attach, caught, started, progress, restarted, is_enough)


def _has_slots(
    spec: JobSpec, waiting: Callable[[str], None] | None = None, is_stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Wait for the slots of a job, if it is for a cluster; whether they came before the job was stopped."""
    if spec.cluster is None:
        return True
    say_once = lru_cache(maxsize=256)(say)

    def report(text: str) -> None:
        say_once(text)
        if waiting is not None:
            waiting(text)

    run_file.record_start(spec.out_path)
    if await_slots(spec.cluster, spec.slots_of_cluster, report, is_stopped):
        return True
    run_file.record_no_start(spec.out_path)
    return False


def _to_its_end(
    run: JobRun,
    begin: Callable[[], None],
    caught: list[int],
    started: Callable[[JobRun], None] | None,
    progress: Callable[[], None] | None,
    restarted: Callable[[str], None] | None,
    is_enough: Callable[[], bool],
) -> RunResult:
    try:
        begin()
        if started is not None:
            started(run)
        return run.wait(progress, restarted, lambda: caught[0] if caught else _BY_ITSELF if is_enough() else None)
    finally:
        run.close()
