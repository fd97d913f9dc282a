"""`freshet stop`: stops the job that writes to a folder, over Flink's REST interface, with a savepoint."""

from __future__ import annotations

import os
import time
from pathlib import Path

from job import run_file
from job.checkpoints import NoCheckpointError, find_latest
from job.flink_rest import FlinkRest, FlinkRestError
from job.flink_runtime import STOP_FILE
from job.spec import location, savepoint_target

DEFAULT_TIMEOUT_S = 300.0


class NothingToStopError(RuntimeError):
    """No job runs there; the message says what was found."""


def stop_job(out: Path, savepoint_dir: Path | str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
    """Stop the job of `out` with a savepoint, wait until its process has ended too, and return the savepoint.

    Raises: NothingToStopError when `run.json` names no running job; FlinkRestError when Flink can't do it.
    """
    out = out.absolute()
    run = run_file.read_run(out)
    if run.get("state") != run_file.RUNNING or "job_id" not in run:
        message = f"{out}: no running job ({run_file.NAME} says {run.get('state', 'nothing')!r})"
        raise NothingToStopError(message)
    target = savepoint_target(savepoint_dir or f"{run['checkpoints']}/savepoints")
    request = {"job_id": run["job_id"], "savepoint_dir": target}
    run_file.write_json(out / STOP_FILE, request)
    began = time.time_ns()
    rest = FlinkRest(run["rest"], run["job_id"])
    try:
        savepoint = rest.stop(target, timeout_s)
    except FlinkRestError:
        # An embedded cluster goes down with its job, and its answer sometimes with it: then the savepoint is there.
        found = _written_since(target, began)
        if found is None:
            (out / STOP_FILE).unlink(missing_ok=True)
            raise
        savepoint = found
    finally:
        rest.close()
    run_file.write_json(out / STOP_FILE, {**request, "savepoint": savepoint})
    _await_end(out, run["pids"].get("client"), timeout_s)
    return savepoint


def _written_since(target: str, began_ns: int) -> str | None:
    folder = Path(location(target))
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        try:
            found = find_latest(folder)
        except NoCheckpointError:
            found = None
        if found is not None and (found / "_metadata").stat().st_mtime_ns >= began_ns:
            return str(found)
        time.sleep(0.1)
    return None


def _await_end(out: Path, client: int | None, timeout_s: float) -> None:
    """Wait until the process that started the job has recorded the end, or is gone (a detached cluster job)."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and run_file.read_run(out).get("state") not in run_file.ENDED:
        if client is None or not _alive(client):
            run_file.update_run(out, state=run_file.STOPPED)
            return
        time.sleep(0.1)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
