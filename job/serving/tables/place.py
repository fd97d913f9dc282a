"""Location of a job's table: in memory if it fits, else beside the tails; readers find it in `table.json`."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.files.owner_only import close_to_others
from freshet.files.whole import remove_left_behind
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.service.generations import GENERATION
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.sink.tail.layout import boot_word
from freshet.state.served.layout import SHM, T_BOOT, T_JOB, TableShape
from freshet.state.served.mapped import MappedTable, NoTableError, is_held

if TYPE_CHECKING:
    from freshet.state.served.writer import TableWriter

_LOCK, _TABLE, _SERVER = ".serve.lock", "table.json", "server.json"
_SPARE = 1.2  # of what is free in memory, for others


@with_config(ConfigDict(extra="allow"))
class _ServerFile(TypedDict, total=False):
    """Fields of `table.json` and `server.json` that are read."""

    path: str
    of: dict[str, Any]
    pid: int
    flight: str
    http: str


@contextmanager
def only_server(tables: Path) -> Iterator[None]:
    """Be the one server of a job on this machine; a process that dies lets go.

    Raises: UsageError where there is one.
    """
    tables.mkdir(parents=True, exist_ok=True)
    close_to_others(tables)
    with (tables / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            other = read_server(tables)
            msg = f"--tables {tables}: process {other.get('pid', '?')} serves it already, at {other.get('flight', '?')}"
            raise UsageError(msg) from error
        remove_left_behind(tables)
        yield


def write_server(tables: Path, **fields: Any) -> None:
    """Say where the server is."""
    write_json(tables / _SERVER, fields, synced=False)


def read_server(tables: Path) -> dict[str, Any]:
    """Return the record of the server, empty if there is none."""
    return _read(tables / _SERVER)


def read_table_file(tables: Path) -> Path | None:
    """The table that is valid now; None where there is none."""
    found = read_shown(tables)
    return None if found is None else found[0]


def read_shown(tables: Path) -> tuple[Path, dict[str, Any] | None] | None:
    """The table that is valid now and the description of its job (None: of an earlier version); None without one."""
    found = _read(tables / _TABLE)
    return None if "path" not in found else (Path(found["path"]), found.get("of"))


def new_table(job: ServedJob, tables: Path, shape: TableShape) -> TableWriter:
    """An empty table; nobody knows of it yet.

    Raises: OSError when there is no space for it.
    """
    from freshet.state.served.writer import TableWriter

    folder = SHM if _fits(shape.nbytes) else tables
    name = f"{_prefix(job, tables)}{secrets.token_hex(4)}.table"
    return TableWriter(folder / name, shape, job.word, boot_word(), str(tables.absolute()))


def show(job: ServedJob, tables: Path, table: TableWriter) -> None:
    """Have readers take this table, with all that answers say of its job, and remove every other one of the job."""
    fields = {"path": str(table.path), "job_id": job.job_id, "model": job.model, "of": job.described()}
    write_json(tables / _TABLE, fields, synced=False)
    _remove(job, tables, keep=table.path)


def left_behind(job: ServedJob, tables: Path) -> MappedTable | None:
    """The table of a server that was killed, as it stands; None where there is none of use."""
    path = read_table_file(tables)
    if path is None:
        return None
    with suppress(FileNotFoundError, NoTableError):
        found = MappedTable(path)
        identity = found.word(T_JOB), found.word(T_BOOT), found.strings
        is_ours = identity == (job.word, boot_word(), job.strings)
        if is_ours and not found.superseded and found.epoch // GENERATION == (job.generation or 0):
            return found
    return None


def take_over(job: ServedJob, tables: Path) -> TableWriter | None:
    """Open an existing table to continue it, after repairing half-written rows."""
    from freshet.state.served.writer import TableWriter

    found = left_behind(job, tables)
    if found is None or found.width != job.width:
        return None
    with suppress(FileNotFoundError, NoTableError):
        return TableWriter.take_over(found.path)
    return None


def shown_epoch(job: ServedJob, tables: Path) -> int:
    """The epoch that readers of a table that was left have seen; -1 where there is none."""
    found = left_behind(job, tables)
    return -1 if found is None else found.epoch


def withdraw_others(job: ServedJob, tables: Path) -> None:
    """Have nobody begin with the table of another job whose server was killed: its rows are not this server's."""
    if _read(tables / _TABLE).get("job_id", job.job_id) != job.job_id:
        (tables / _TABLE).unlink(missing_ok=True)


def forget(job: ServedJob, tables: Path) -> None:
    """Remove all tables of the job: the server ends in good order."""
    (tables / _TABLE).unlink(missing_ok=True)
    (tables / _SERVER).unlink(missing_ok=True)
    _remove(job, tables, keep=None)


def _remove(job: ServedJob, tables: Path, keep: Path | None) -> None:
    """Remove the job's tables, and those that nobody holds of a former job here or of a folder that is gone."""
    for folder in (SHM, tables):
        for path in folder.glob("freshet-*.table"):
            ours, same_folder = path.name.startswith(_prefix(job, tables)), f"-{mark_of(tables)}-" in path.name
            if path != keep and (ours or _is_dead(path, same_folder)):
                path.unlink(missing_ok=True)


def _prefix(job: ServedJob, tables: Path) -> str:
    """Prefix of the names of the tables of one folder; a service may have two of a job, of two generations."""
    generation = "" if job.generation is None else f"g{job.generation}-"
    return f"freshet-{job.job_id}-{mark_of(tables)}-{generation}"


def mark_of(tables: Path) -> str:
    """Return the mark of a folder: a copied one has another server, and its own tables."""
    return hashlib.sha256(str(tables.absolute()).encode()).hexdigest()[:8]


def _is_dead(path: Path, same_folder: bool) -> bool:
    """Return whether a table's server is gone, and no other can continue with the table.

    Another container that shares the memory may call its folder by our name, and a killed server's table is gone on
    with as long as its folder is there.
    """
    try:
        table = MappedTable(path)
        if not same_folder and (not table.folder or Path(table.folder).exists()):
            return False
        return not is_held(path)
    except (NoTableError, OSError):
        return False


def _fits(size: int) -> bool:
    try:
        disk = os.statvfs(SHM)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize > _SPARE * size


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file that a server writes at its start; empty if it is missing or damaged."""
    try:
        return dict(read_json(path, _ServerFile, "a server that is started writes it again") or {})
    except DamagedFileError as error:
        say_once(str(error))
        return {}


@lru_cache(maxsize=64)
def say_once(text: str) -> None:
    """Say something that is met again and again."""
    say(text)


def has_server(tables: Path) -> bool:
    """Return whether a process serves from these tables now."""
    try:
        with (tables / _LOCK).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def shown_generation(tables: Path) -> int:
    """Return the generation of the table that readers get; -1 without one."""
    found = read_shown(tables)
    generation = None if found is None or found[1] is None else found[1].get("generation")
    return generation if isinstance(generation, int) else -1
