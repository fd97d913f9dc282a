"""`freshet stop`: ends the job that writes to a folder, with a savepoint where it runs on Flink."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from freshet.files.json_file import DamagedFileError
from freshet.job.console import say
from freshet.job.errors import EXIT_DONE, JobFailed, UsageError
from freshet.job.flink.checkpoints import new_savepoint, savepoints_in
from freshet.job.flink.job_run import LAST_STATUS_S
from freshet.job.flink.job_spec import savepoint_target
from freshet.job.flink.rest import NOT_IN_TIME, FlinkRest, FlinkRestError
from freshet.job.flink.state_files import record_savepoint
from freshet.job.folder import layout, lock, run_file
from freshet.job.folder.run_file import forget_stop, write_stop
from freshet.job.lifecycle.ending import settled
from freshet.job.lifecycle.job_state import LOST, state_of
from freshet.job.lifecycle.summary import complete_epoch
from freshet.job.machine.processes import Process
from freshet.job.uris import is_remote, local_path
from freshet.operators.telemetry.status_file import await_last

DEFAULT_TIMEOUT_S = 300.0
_POLL_S = 0.05
_ANSWER_S = 5.0  # for an answer of Flink
_PATIENCE_S = 15.0  # for a process on another machine to record the end, if there is one; for a job that ends anyway


class NothingToStopError(UsageError):
    """No job runs there; the message says what was found and what to do."""


class JobEnd(NamedTuple):
    """End of a job that was stopped: `finished` or `stopped`, its savepoint, and the last epoch that is complete."""

    state: str
    savepoint: str | None
    epoch: int


def stop(out: Path, savepoint: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S) -> int:
    """Stop the job of `out`; print its savepoint and the epoch up to which the output is complete, as a JSON line.

    Raises: UsageError when no job runs there; JobFailed when it can't be stopped, or fails meanwhile.
    """
    found = stop_any(out.absolute(), savepoint, timeout_s)
    again = found.savepoint if savepoint is not None else "latest"
    end = "the job came to its end" if found.state == run_file.FINISHED else f"stopped; go on with --resume {again}"
    say(f"{end}; the output is complete up to epoch {found.epoch}")
    print(orjson.dumps(found._asdict()).decode(), flush=True)
    return EXIT_DONE


def stop_any(out: Path, savepoint: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S) -> JobEnd:
    """Stop the job of `out`, in whichever runtime; `savepoint` is the folder for one.

    Raises: as `stop`.
    """
    run = _told_or_placed(out)
    if run.get("runtime") == "local" and savepoint is not None:
        msg = "--savepoint: the local runtime has its state in OUT/state and writes none; leave --savepoint out"
        raise UsageError(msg)
    on_cluster = run.get("cluster") is not None and _is_on_cluster(out)
    starts = run.get("state") == run_file.STARTING and savepoint is None and not on_cluster
    if run.get("runtime") == "local" or starts:
        state = stop_process(out, timeout_s)
        path = run_file.read_run(out).get("savepoint")
        path = None if path == run.get("savepoint") else path
    else:
        path = stop_job(out, savepoint, timeout_s)
        state = run_file.FINISHED if path is None else run_file.STOPPED
    return JobEnd(state, path, complete_epoch(out))


def stop_process(out: Path, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
    """End the process that works on `out` as SIGTERM does, and wait for it; returns how the job ended.

    Raises: NothingToStopError; JobFailed when it fails meanwhile, or is not done in time.
    """
    process = _process_of(out)
    run = run_file.read_run(out)
    _client_of(run).send(signal.SIGTERM)
    if not _await_process(run, timeout_s):
        msg = f"process {process} has not ended {timeout_s:.0f} s after SIGTERM"
        raise JobFailed(msg)
    run = run_file.read_run(out)
    if run.get("state") == run_file.FAILED:
        raise JobFailed(str(run.get("error")))
    state = str(run.get("state"))
    return state if state in run_file.ENDED else run_file.STOPPED  # it had not begun to go on


def stop_job(out: Path, savepoint_dir: Path | str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S) -> str | None:
    """Stop the Flink job of `out` with a savepoint, wait until its process has ended too, and return the savepoint.

    None when the job came to its end by itself meanwhile.

    Raises: NothingToStopError when no job runs; FlinkRestError when Flink can't do it.
    """
    out = out.absolute()
    run = run_file.read_run(out)
    on_cluster = run.get("cluster") is not None and _is_on_cluster(out)
    if run.get("cluster") is None and run.get("host") == socket.gethostname():
        _process_of(out)
    elif not on_cluster:
        _refuse_ended(out)
    if not on_cluster and (run.get("state") != run_file.RUNNING or "job_id" not in run):
        msg = f"{out}: the job is still starting; try again once it says `job ...`, or press Ctrl-C there"
        raise NothingToStopError(msg)
    if lacking := [name for name in ("rest", "checkpoints", "started_ms") if name not in run]:
        msg = f"{out / layout.RUN}: does not say {' and '.join(lacking)} of the job; end the process that it names"
        raise NothingToStopError(msg)
    target = savepoint_target(savepoint_dir or f"{run['checkpoints']}/{layout.SAVEPOINTS}")
    with _one_at_a_time(out, timeout_s) as comes_second:
        if comes_second:
            _await_end(out, run, _PATIENCE_S)
            if on_cluster:
                settled(out, _ANSWER_S)
            if run_file.read_run(out).get("state") in run_file.ENDED:
                return _end_of_others(out, run, JobFailed(f"{out}: its job was stopped without a savepoint meanwhile"))
        return _stop_by_flink(out, run, target, on_cluster, timeout_s)


@contextmanager
def _one_at_a_time(out: Path, timeout_s: float) -> Iterator[bool]:
    """Have nobody else ask Flink to stop the job meanwhile, at which it would start the job again.

    Yields whether somebody else has asked before. Raises: JobFailed when they are not done in time.
    """
    deadline, comes_second = time.monotonic() + timeout_s, False

    def refused(owner: str) -> str:
        return f"{out}: {owner} is stopping its job, and not done after {timeout_s:.0f} s"

    with ExitStack() as held:
        while True:
            try:
                held.enter_context(lock.locked(out / layout.STOPPING, "freshet stop", refused))
                break
            except UsageError as error:
                comes_second = True
                if time.monotonic() >= deadline:
                    raise JobFailed(str(error)) from None
                time.sleep(_POLL_S)
        yield comes_second


def _stop_by_flink(out: Path, run: dict[str, Any], target: str, on_cluster: bool, timeout_s: float) -> str | None:
    """Have Flink stop a job; return the savepoint once its end is recorded, None if it came to its end meanwhile.

    Raises: FlinkRestError when Flink can't do it; JobFailed when it fails meanwhile.
    """
    store = _store_options(out) if is_remote(target) else None
    before = savepoints_in(target, store)
    request = {"job_id": run["job_id"], "savepoint_dir": target, "before": before}
    write_stop(out, request)
    rest = FlinkRest(run["rest"], run["job_id"])
    try:
        savepoint = rest.stop(target, timeout_s)
    except FlinkRestError as error:
        # An embedded cluster goes down with its job, and its answer sometimes with it: then the savepoint is there.
        found = _await_savepoint(target, before, store)
        if found is None and NOT_IN_TIME in str(error):
            raise
        if found is None:
            forget_stop(out)
            _await_end(out, run, _PATIENCE_S)
            if on_cluster:
                settled(out, _ANSWER_S)
            return _end_of_others(out, run, error)
        savepoint = found
    finally:
        rest.close()
    write_stop(out, {**request, "savepoint": savepoint})
    _await_end(out, run, timeout_s)
    await_last(out, run["started_ms"], LAST_STATUS_S)  # where no process of ours has waited for it
    if not is_remote(savepoint):  # the same
        record_savepoint(local_path(savepoint))
    with suppress(UsageError), lock.taken(out, "freshet stop"):  # else somebody goes on with the job by now, say
        now = run_file.read_run(out)
        is_unseen = now.get("state") not in run_file.ENDED or now.get("savepoint") != savepoint
        if is_unseen and now.get("job_id") == run["job_id"]:
            ended_ms, epoch = int(time.time() * 1e3), complete_epoch(out)
            run_file.update_run(out, state=run_file.STOPPED, savepoint=savepoint, epoch=epoch, ended_ms=ended_ms)
    return savepoint


def _end_of_others(out: Path, run: Mapping[str, Any], error: JobFailed) -> str | None:
    """Return the savepoint with which somebody else has stopped a job meanwhile; None if it came to its end.

    Raises: JobFailed with its cause if it failed; the given error, if it goes on.
    """
    now = run_file.read_run(out)
    state, savepoint = now.get("state"), now.get("savepoint")
    if state == run_file.FINISHED:
        return None
    if state == run_file.FAILED:
        raise JobFailed(str(now.get("error"))) from error
    if state == run_file.STOPPED and savepoint and savepoint != run.get("savepoint"):
        return str(savepoint)
    raise error


def _store_options(out: Path) -> dict[str, str] | None:
    from freshet.job.folder.job_file import store_options  # takes long to load

    return store_options(out)


def _told_or_placed(out: Path) -> dict[str, Any]:
    """Return what `run.json` says; where it is damaged, what other files say of a job on a cluster.

    Raises: DamagedFileError where it is damaged, and nothing else says where the job is.
    """
    try:
        return run_file.run_of_file(out)
    except DamagedFileError:
        if "cluster" not in (run := run_file.read_run(out)):
            raise
        return run


def is_worked_on(out: Path) -> bool:
    """Return whether a process, here or on another machine, watches the job of a folder."""
    return run_file.running_process(out) is not None or lock.is_held(out)


def _is_on_cluster(out: Path) -> bool:
    """Return whether a cluster goes on with the job; an end that it alone has seen is recorded.

    Raises: NothingToStopError for a job that was lost with its cluster; JobFailed when the cluster does not answer.
    """
    state = settled(out, _ANSWER_S)
    if state.is_guess:
        msg = f"{out}: {state.detail}; try again when it answers"
        raise JobFailed(msg)
    if state.state == LOST:
        msg = f"{out}: no running job: {state.detail}"
        raise NothingToStopError(msg)
    return state.runs_on_cluster


def _refuse_ended(out: Path) -> dict[str, Any]:
    run = run_file.read_run(out)
    state = run.get("state")
    if state in (None, *run_file.ENDED):
        msg = f"{out}: no running job ({layout.RUN} says {state or 'nothing'})"
        raise NothingToStopError(msg)
    return run


def _process_of(out: Path) -> int:
    """The living process on this machine that works on `out`."""
    state_of(out)  # refuses a copy of the folder
    pid = run_file.running_process(out)  # before the state: a process that ends now has written its state first
    run = _refuse_ended(out)
    if run.get("host") != socket.gethostname():
        msg = f"{out}: its job runs on the machine {run.get('host')}; stop it there"
        raise NothingToStopError(msg)
    if pid is None and run.get("pids", {}).get("client") is None:
        msg = f"{out / layout.RUN}: does not say which process works there; go on with --resume latest if none does"
        raise NothingToStopError(msg)
    if pid is None:
        process = run.get("pids", {}).get("client")
        msg = f"{out}: no running job: process {process} is gone (killed?); go on with --resume latest"
        raise NothingToStopError(msg)
    return pid


def _await_savepoint(target: str, before: list[str], store: Mapping[str, str] | None) -> str | None:
    """A savepoint of which Flink's answer was lost; None where none appears."""
    deadline = time.monotonic() + 2.0
    while (found := new_savepoint(target, before, store)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found


def _await_end(out: Path, run: dict[str, Any], timeout_s: float) -> None:
    """Wait until the process that started the job has recorded the end and is gone; one elsewhere has less time."""
    here = run.get("host") == socket.gethostname()
    deadline = time.monotonic() + (timeout_s if here else _PATIENCE_S)
    while time.monotonic() < deadline and run_file.read_run(out).get("state") not in run_file.ENDED:
        if (here or run.get("cluster")) and not is_worked_on(out):
            break
        time.sleep(_POLL_S)
    if here:
        _await_process(run, deadline - time.monotonic())


def _await_process(run: dict[str, Any], timeout_s: float) -> bool:
    """Wait for the end of the process that `run.json` names; whether it has come."""
    client = _client_of(run)
    return client.pid == os.getpid() or client.await_end(timeout_s)


def _client_of(run: dict[str, Any]) -> Process:
    return Process(run["pids"]["client"], run.get("client_began_s"))
