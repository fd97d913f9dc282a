"""`run.json`: what a running or ended job is and where to reach it, for people and for `freshet stop`.

Beside it are `stop.json`, by which `freshet stop` announces to a job's process that it stops the job, and later the
savepoint; and the file that says that the job's base image is whole, with the time of the job's begin.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.files.whole import write_whole
from freshet.job.console import say
from freshet.job.folder import layout
from freshet.job.folder.layout import PLACE, RUN, SAVED_JOB, STOP
from freshet.job.machine.processes import Process, began_s

STARTING, RUNNING, FINISHED, STOPPED, FAILED = "starting", "running", "finished", "stopped", "failed"
ENDED = frozenset({FINISHED, STOPPED, FAILED})
# Where a cluster has a job, and the folder that it writes to.
_AT = "cluster", "rest", "job_id", "flink_ui", "checkpoints", "started_ms", "folder"
_MADE_AGAIN = "`freshet run --resume latest` on this folder makes it again"


@with_config(ConfigDict(extra="allow"))
class _Processes(TypedDict, total=False):
    client: int
    java: int | None
    taskmanagers: list[int]


class _Folder(TypedDict):
    """The folder of a job, as the process knew it that worked on it last."""

    path: str
    inode: int
    host: str


class _Attempt(TypedDict):
    """An attempt to go on with a job: its number (`Settings.run`), and the last complete epoch before it."""

    run: int
    epoch: int


@with_config(ConfigDict(extra="allow"))
class _Run(TypedDict, total=False):
    """Fields of the file that some command reads; all of them may be absent."""

    state: str
    before: str | None
    attempt: _Attempt
    tried: int | None
    runtime: str
    name: str
    host: str
    folder: _Folder
    pids: _Processes
    client_began_s: float | None
    started_ms: int
    epoch: int | None
    parts: int
    savepoint: str | None
    checkpoints: str
    cluster: str | None
    rest: str
    job_id: str
    error: str | None
    summary: dict[str, Any]
    serving: dict[str, Any] | None
    what_if: bool
    model_sha256: str | None
    snapshot: str | None
    sources: list[str]
    topics: list[dict[str, Any]]
    events_map: dict[str, Any] | list[dict[str, Any]]
    format: str
    registry: str
    id_type: str | None
    cast_ids: bool
    id_bytes_max: int
    ts_unit: str
    undirected: bool
    edge_ttl_ms: int
    ts_jump_ms: int
    edge_keys: str
    edge_key: str
    processor: dict[str, str]


def read_run(out: Path) -> dict[str, Any]:
    """Return the content of `out/run.json`; if it is damaged or missing, that of the job's other files.

    Empty if there is no job. Fields that only `run.json` has are then absent: the end of the job, and its process.

    Raises: DamagedFileError if it is damaged and no other file describes the job.
    """
    try:
        found = run_of_file(out)
    except DamagedFileError as error:
        made = _of_job_file(out)
        if not made:
            raise
        _say_once(f"{error}; until then job/job.json stands in for it")
        return made
    return found or _of_job_file(out)


def run_of_file(out: Path) -> dict[str, Any]:
    """Return the content of `out/run.json` alone, empty when there is none.

    Raises: DamagedFileError where it is damaged.
    """
    return dict(read_json(out / RUN, _Run, _MADE_AGAIN) or {})


def glimpse_run(out: Path) -> dict[str, Any]:
    """Like `read_run`, for repeated calls: empty if it is damaged, which is reported once."""
    try:
        return run_of_file(out)
    except DamagedFileError as error:
        _say_once(str(error))
        return {}


def _of_job_file(out: Path) -> dict[str, Any]:
    """Return the fields of a run that the job's own file has; empty if it is of no use."""
    if not (out / SAVED_JOB).is_file():
        return {}
    from freshet.job.folder.job_file import SavedJob  # what it needs takes long to load

    try:
        saved = SavedJob.read(out)
    except DamagedFileError:
        return {}
    return {} if saved is None else {**saved.run_fields(), **_place(out)}


def _place(out: Path) -> dict[str, Any]:
    """Return the fields of a run that say where a cluster has its job; empty where none has it."""
    try:
        return {name: value for name, value in (read_json(out / PLACE, _Run, _MADE_AGAIN) or {}).items() if name in _AT}
    except DamagedFileError as error:
        _say_once(str(error))
        return {}


def _keep_place(out: Path, run: Mapping[str, Any]) -> None:
    """Keep the place of a job on a cluster apart: without `run.json`, a second job would begin beside it."""
    place = {name: run[name] for name in _AT if name in run}
    if run.get("state") in ENDED or not (place.get("cluster") and "job_id" in place):
        (out / PLACE).unlink(missing_ok=True)
    elif place != _place(out):
        write_json(out / PLACE, place)


@lru_cache(maxsize=256)
def _say_once(text: str) -> None:
    say(text)


def has_finished(run: Mapping[str, Any]) -> bool:
    """Return whether the run, according to `run.json`, has read all of its input."""
    return bool(run.get("state") == FINISHED)


def update_run(out: Path, **fields: Any) -> dict[str, Any]:
    """Set fields of `out/run.json`, keep the others, and return all; a reader sees the old file or the new one.

    A damaged file is replaced. With a process comes the folder that it works on.
    """
    if "pids" in fields:
        out.mkdir(parents=True, exist_ok=True)
        fields["folder"] = {"path": str(out.resolve()), "inode": out.stat().st_ino, "host": socket.gethostname()}
    try:
        content = {**read_run(out), **fields}
    except DamagedFileError:
        content = fields
    write_json(out / RUN, content)
    _keep_place(out, content)
    return content


def original_of(out: Path, run: Mapping[str, Any]) -> Path | None:
    """Return the folder that `out` is a copy of, by the `run.json` in it; None where it is that of its job.

    A folder that was moved is no copy, nor is one that another machine sees at another path.
    """
    folder = run.get("folder")
    if folder is None or str(out.resolve()) == folder["path"]:
        return None
    original, here = Path(folder["path"]), out.stat()
    try:
        there = original.stat()
    except OSError:
        there = None
    if there is not None and there.st_ino == folder["inode"]:
        return None if os.path.samestat(there, here) else original
    return None if here.st_ino == folder["inode"] or folder["host"] == socket.gethostname() else original


def record_start(out: Path, **fields: Any) -> None:
    """Record that this process is about to start a job; the state before stays known until the job runs."""
    run = read_run(out)
    before = run.get("before") if run.get("state") == STARTING else run.get("state")
    update_run(out, state=STARTING, before=before, **fields, **this_process())


def record_resume(out: Path, **fields: Any) -> None:
    """Record that this process goes on with a job; a job that was killed while it ran is starting again."""
    if read_run(out).get("state") == RUNNING:
        record_start(out, **fields)
    else:
        update_run(out, **fields, **this_process())


def record_no_start(out: Path) -> bool:
    """Record that nothing came of a start; returns whether the job had begun before, whose state is as it was."""
    before = read_run(out).get("before")
    ended = {} if before else {"ended_ms": int(time.time() * 1e3)}
    update_run(out, state=before or STOPPED, before=None, **ended)
    return bool(before)


def came_to_nothing(run: Mapping[str, Any], number: int, epoch: int) -> bool:
    """Return whether the attempt of this number never started, or failed before its first epoch, as `run.json` says.

    `epoch` is the last complete one.
    """
    attempt = run.get("attempt")
    if attempt is None or attempt["run"] != number:
        return False
    return run.get("tried") != number or (run.get("state") == FAILED and epoch <= attempt["epoch"])


def this_process() -> dict[str, Any]:
    """Return the fields of `run.json` by which others see whether this process is alive."""
    return {"host": socket.gethostname(), "pids": {"client": os.getpid()}, "client_began_s": began_s()}


def running_process(out: Path) -> int | None:
    """The process on this machine that works on `out`; None when it has ended, or was killed."""
    run = glimpse_run(out)
    pid = run.get("pids", {}).get("client")
    if pid is None or pid == os.getpid() or run.get("host") != socket.gethostname():
        return None
    return pid if Process(pid, run.get("client_began_s")).is_alive() else None


def write_begun(out: Path) -> None:
    """Say that the base image is whole, and that the job begins now."""
    write_whole(out / layout.IMAGE_DONE, orjson.dumps({"began_ms": int(time.time() * 1e3)}))


def began_ms(out: Path) -> int | None:
    """Return when the job began, in ms since 1970; of an earlier version's by the age of the file, None without one."""
    path = out / layout.IMAGE_DONE
    try:
        content = path.read_bytes()
        found = orjson.loads(content)["began_ms"] if content else path.stat().st_mtime * 1e3
        return int(found)
    except (OSError, ValueError, LookupError, TypeError):
        return None


@with_config(ConfigDict(extra="allow"))
class _Request(TypedDict, total=False):
    job_id: str
    savepoint_dir: str
    before: list[str]
    savepoint: str


def read_stop(out: Path) -> dict[str, Any]:
    """Return the request by which another process stops the job that writes to `out`, empty when there is none.

    One that is damaged is none: it is said, and removed.
    """
    try:
        return dict(read_json(out / STOP, _Request, "it is taken for none; `freshet stop` writes another one") or {})
    except DamagedFileError as error:
        say(str(error))
        forget_stop(out)
        return {}


def write_stop(out: Path, request: dict[str, Any]) -> None:
    """Write a request to stop, or the same one answered with its savepoint."""
    write_json(out / STOP, request)


def forget_stop(out: Path) -> None:
    """Remove a request: it is taken back, or the job has ended."""
    (out / STOP).unlink(missing_ok=True)
