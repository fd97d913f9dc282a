"""Tables of earlier generations of a service, readable for a while after another one has taken over.

`kept.json` beside `table.json` names them, for all processes that read tables of the service. A server that is started
again has none: the tables of one that was killed go with it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import TypedDict

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.job.console import say
from freshet.job.serving.tables.place import say_once
from freshet.job.serving.tables.served_job import ServedJob

if TYPE_CHECKING:
    from freshet.state.served.writer import TableWriter

FILE = "kept.json"


class _Entry(TypedDict):
    generation: int
    path: str
    of: dict[str, Any]
    until_ms: int


class _File(TypedDict):
    kept: list[_Entry]


class KeptTable(NamedTuple):
    """The table of an earlier generation, what is known of its job, and until when it is kept."""

    generation: int
    path: Path
    of: dict[str, Any]
    until_ms: int


def read_kept(tables: Path) -> list[KeptTable]:
    """Return the tables that are kept now; none where the file is damaged."""
    try:
        found = read_json(tables / FILE, _File, "a server that is started keeps none that came before")
    except DamagedFileError as error:
        say_once(str(error))
        found = None
    entries = [] if found is None else found["kept"]
    kept = [KeptTable(one["generation"], Path(one["path"]), one["of"], one["until_ms"]) for one in entries]
    return [one for one in kept if one.until_ms > _now_ms()]


class KeptTables:
    """The tables that a server keeps; used by the thread that follows the jobs."""

    def __init__(self, tables: Path, keep_s: float) -> None:
        """`keep_s`: for how long each is kept; 0: not at all. What a former server has kept is not kept any more."""
        self._tables, self._keep_s = tables, keep_s
        self._held: list[tuple[KeptTable, TableWriter]] = []  # a table that no process holds would be removed
        (tables / FILE).unlink(missing_ok=True)

    def __contains__(self, table: TableWriter) -> bool:
        return any(held is table for _, held in self._held)

    def keep(self, job: ServedJob, table: TableWriter) -> None:
        """Keep the table of a generation, before another one takes over; where there is no space, say so."""
        if not self._keep_s or job.generation is None:
            return
        until_ms = _now_ms() + int(1000 * self._keep_s)
        one = KeptTable(job.generation, table.path, job.described(), until_ms)
        held = [each for each in self._held if each[0].generation != one.generation]
        try:
            self._write([*held, (one, table)])
        except OSError as error:
            say(f"generation {one.generation}: it is not kept: {self._tables / FILE}: {error.strerror}")
            return
        self._held = [*held, (one, table)]

    def drop_old(self) -> None:
        """Free the memory of those whose time is over."""
        if not any(one.until_ms <= _now_ms() for one, _ in self._held):
            return
        left = [each for each in self._held if each[0].until_ms > _now_ms()]
        for one, table in self._held:
            if one.until_ms <= _now_ms():
                table.path.unlink(missing_ok=True)
        self._held = left
        try:
            self._write(left)
        except OSError:  # of a full disk: whoever reads it goes by the time
            return

    def forget(self) -> None:
        """Keep none any more: the server ends."""
        (self._tables / FILE).unlink(missing_ok=True)
        for _, table in self._held:
            table.path.unlink(missing_ok=True)
        self._held = []

    def _write(self, held: list[tuple[KeptTable, TableWriter]]) -> None:
        entries = [{**one._asdict(), "path": str(one.path)} for one, _ in held]
        write_json(self._tables / FILE, {"kept": entries}, synced=False)


def _now_ms() -> int:
    return time.time_ns() // 10**6
