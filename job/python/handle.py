"""The handle of a job that was started, or found at work, from Python."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from html import escape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from freshet.job.errors import EXIT_FAILED, UsageError
from freshet.job.folder import run_file
from freshet.job.lifecycle.job_state import FAILED, LOST, RUNNING, state_of
from freshet.job.python.display import INTERVAL_S, share_of, showing
from freshet.job.python.errors import JobFailedError, JobTimeoutError
from freshet.job.python.process import CommandProcess
from freshet.job.python.result import CommandResult, in_words, table_of
from freshet.job.python.served import ServerOfJob

if TYPE_CHECKING:
    from freshet.job.run.stop import JobEnd
    from freshet.job.serving.clients.client import EmbeddingClient

_STARTING = "starting"
_POLL_S = 0.05
_SHOWN = "epoch", "events", "events_per_s", "lag_total", "rejected", "vertices", "rows", "freshness_ms_p50"
STOP_S = 300.0  # for a stop


class RunHandle(os.PathLike[str]):
    """A job: its state, its figures, its end, and clients that read its embeddings.

    As a path it is the output folder. Where it is used by `with`, the job is stopped at the end, unless it is detached.
    """

    def __init__(
        self,
        out: Path,
        process: CommandProcess | None = None,
        *,
        detach: bool = False,
        tables: Path | None = None,
        has_server: bool = False,
    ) -> None:
        """`process`: the one that runs the job; None: somebody else has started it. `has_server`: `flight_port`."""
        self.out, self._process, self._detach = out, process, detach
        self._server = ServerOfJob(out, tables, lambda: has_server and not self.is_over)
        self._summary: CommandResult | None = None

    def __fspath__(self) -> str:
        return str(self.out)

    def __enter__(self) -> RunHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._detach and not self.is_over:
                self.stop()
        finally:
            self.close()

    def close(self) -> None:
        """End the server that `client` has started; the job goes on."""
        self._server.close()

    @property
    def state(self) -> str:
        """The state of the job: `starting`, or as `freshet status` names it."""
        if self._is_starting():
            return _STARTING
        return state_of(self.out).state

    @property
    def is_over(self) -> bool:
        """True if nobody works on the job, and its process has ended."""
        if self._process is not None:
            return self._process.code is not None
        return state_of(self.out).is_over

    @property
    def log(self) -> str:
        """The log of the process of the job so far; empty for a job that somebody else has started."""
        return "" if self._process is None else self._process.log().decode(errors="replace")

    @property
    def summary(self) -> CommandResult | None:
        """The JSON line of `freshet run`; None while the job runs, and where it failed."""
        if self._summary is None and self.is_over:
            printed = None if self._process is None else self._process.printed()
            printed = printed or run_file.glimpse_run(self.out).get("summary")
            self._summary = None if printed is None else CommandResult.of("freshet run", printed)
        return self._summary

    def status(self) -> CommandResult:
        """Return what `freshet status --json` prints; before the job has begun, its state alone."""
        if self._is_starting():
            return CommandResult.of("freshet status", {"state": _STARTING})
        from freshet.job.status.report import report

        return CommandResult.of("freshet status", report(self.out))

    def wait(self, timeout: float | None = None) -> CommandResult:
        """Wait for the end of the job, and return its summary; `timeout` in seconds.

        Interrupted, the job is stopped with a savepoint, unless it is detached.

        Raises: JobFailedError with the root cause; CheckFailedError where too much was rejected; UsageError for wrong
            use that the job has found; JobTimeoutError for one that goes on.
        """
        return self._watched(timeout, lambda: None)

    def progress(self, timeout: float | None = None) -> CommandResult:
        """Show the progress of the job until its end, in a terminal or a notebook; else as `wait`."""
        shown = showing(self)
        last = 0.0

        def show() -> None:
            nonlocal last
            if time.monotonic() - last >= INTERVAL_S:
                last = time.monotonic()
                shown.update(self.status())

        try:
            return self._watched(timeout, show)
        finally:
            shown.update(self._last_status())
            shown.close()

    def stop(self, savepoint: str | os.PathLike[str] | None = None, timeout: float = STOP_S) -> JobEnd:
        """Stop the job as `freshet stop` does, with a savepoint where it runs on Flink, and return its end.

        `savepoint`: folder or URI for it. A job that is over is left as it is.

        Raises: UsageError; JobFailedError where the job fails meanwhile; JobFailed where it can't be stopped.
        """
        from freshet.job.lifecycle.summary import complete_epoch
        from freshet.job.run.stop import JobEnd, NothingToStopError, stop_any

        folder = None if savepoint is None else os.fspath(savepoint)
        while not self.is_over:
            if self._is_starting() and self._process is not None:
                self._process.end()
                self._await(self._process, timeout)
                break
            try:
                end = stop_any(self.out, folder, timeout)
            except NothingToStopError:
                if not self.is_over:  # it is about to begin, or to end
                    time.sleep(_POLL_S)
                continue
            if self._process is not None:
                self._await(self._process, timeout)
            deadline = time.monotonic() + timeout  # of somebody else's job, the process ends a little later
            while not self.is_over and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            return end
        if not run_file.glimpse_run(self.out):  # nothing had begun
            return JobEnd(run_file.STOPPED, None, 0)
        state = state_of(self.out)
        if state.state in (FAILED, LOST):
            raise JobFailedError(state.detail, EXIT_FAILED)
        return JobEnd(str(state.run.get("state")), state.run.get("savepoint"), complete_epoch(self.out))

    def client(self, kind: str | None = None, timeout: float = 60.0) -> EmbeddingClient:
        """Return a client of the job's embeddings, once they are there; `kind`: whose, where the model returns several.

        A server for it is started beside the job, unless the job has one (`flight_port`). It ends with this process, or
        by `close`. Embeddings are also served after the job's end.

        Raises: NotReadyError where there are none in time; UsageError for a kind that is missing, or none of the
            model's; MissingExtraError without the packages of servers.
        """
        deadline = time.monotonic() + timeout
        while self._is_starting() and not self.is_over and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if self._process is not None and self._process.code not in (None, 0) and self._is_starting():
            self._process.fail(self._process.code)
        return self._server.client(kind, max(0.0, deadline - time.monotonic()))

    def __repr__(self) -> str:
        status = self._last_status()
        rows = [f"{name} {in_words(status[name])}" for name in _SHOWN if status.get(name) is not None]
        return f"Job in {self.out}: {', '.join([status['state'], *rows])}"

    def _repr_html_(self) -> str:
        status = self._last_status()
        share = share_of(status)
        rows = {"state": f"{status['state']}: {status['detail']}" if status.get("detail") else status["state"]}
        rows |= {name: in_words(status[name]) for name in _SHOWN if name in status}
        bar = "" if share is None else f"<progress value='{share:.4f}' max='1' style='width:20em'></progress>"
        shown = "" if share is None else f" {share:.0%}"
        return f"{table_of(f'Job in {self.out}', rows)}<div>{bar}{escape(shown)}</div>"

    def _last_status(self) -> dict[str, Any]:
        try:
            return self.status()
        except UsageError as error:
            return {"state": "gone", "detail": str(error)}

    def _is_starting(self) -> bool:
        """True until the process has taken the folder, with all that it reads checked."""
        if self._process is None:
            return False
        pid = run_file.glimpse_run(self.out).get("pids", {}).get("client") if self.out.is_dir() else None
        return pid != self._process.pid

    def has_begun(self) -> bool:
        """Return whether the process has checked what it reads and taken the folder, or has ended."""
        return self.is_over or not self._is_starting()

    def _await(self, process: CommandProcess, timeout_s: float) -> None:
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            msg = f"process {process.pid} has not ended {timeout_s:.0f} s after the stop"
            raise JobTimeoutError(msg) from None

    def _watched(self, timeout: float | None, look: Callable[[], None]) -> CommandResult:
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not self.is_over:
                look()
                if deadline is not None and time.monotonic() >= deadline:
                    msg = f"{self.out}: the job is {self.state} after {timeout:g} s; it goes on"
                    raise JobTimeoutError(msg)
                time.sleep(_POLL_S)
        except KeyboardInterrupt:
            self._interrupted()
            raise
        return self._end()

    def _interrupted(self) -> None:
        if self._detach:
            print(f"the job in {self.out} goes on; resume='auto' attaches to it", file=sys.stderr)
            return
        print(f"interrupted: stopping the job in {self.out}; resume='latest' goes on", file=sys.stderr)
        self.stop()

    def _end(self) -> CommandResult:
        if self._process is not None:
            self._summary = self._process.result()
            return self._summary
        state = state_of(self.out)
        if state.state in (FAILED, LOST):
            raise JobFailedError(state.detail, EXIT_FAILED)
        return self.summary or CommandResult.of("freshet run", {})


def running_job(out: Path) -> bool:
    """Return whether a process of this machine works on the job of a folder, or a client elsewhere."""
    if not out.is_dir():
        return False
    try:
        state = state_of(out)
    except UsageError:
        return False
    return state.state == RUNNING and (state.process is not None or not state.runs_on_cluster)
