"""The job whose embeddings are served, as described by its output folder."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Field

from freshet.files.json_file import DamagedFileError, read_json
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.folder.returned_kinds import WrittenRows, folder_name
from freshet.job.folder.run_file import (
    ENDED,
    FINISHED,
    STOPPED,
    glimpse_run,
    has_finished,
    run_of_file,
    running_process,
)
from freshet.job.service.generations import GENERATION
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.protocol.wanted import EPOCH
from freshet.operators.output_folders import LogFolders, log_id, tails_of
from freshet.operators.sink.tail.layout import beat_name, job_word
from freshet.state.served import layout as served

# The rest is loaded when it is needed: whatever brings numba in takes longer than a server needs to answer.
if TYPE_CHECKING:
    from freshet.gnn.readout import Readouts
    from freshet.operators.sink.tail.reader import Beat

_POLL_S = 0.1
T = TypeVar("T")


@lru_cache(maxsize=4)
def _read(model: str) -> Readouts:
    from freshet.gnn.readout import load_readouts

    return load_readouts(model)


def readouts_of(model: str, sha256: str = "") -> Readouts:
    """Return the readouts of a model folder, and the widths of its embeddings.

    `sha256`: that of the model that is expected there, if it is known.

    Raises: NotReadyError where another model is in the folder.
    """
    found = _read(model)
    if sha256 and found.sha256 != sha256:  # another one may have stood there before
        _read.cache_clear()
        found = _read(model)
        if found.sha256 != sha256:
            msg = (
                f"{model}: is another model than that of the rows (SHA-256 {found.sha256[:12]}, expected "
                f"{sha256[:12]}); put that one back"
            )
            raise NotReadyError(msg)
    return found


@dataclass(frozen=True)
class _Partitioning:
    id_kind: Literal["int", "string"]


@dataclass(frozen=True)
class _Tail:
    tables_folder: str = ""
    begins_empty: bool = False


@dataclass(frozen=True, kw_only=True)
class _Settings(WrittenRows):
    """Fields of a job's settings that are read."""

    job_id: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,64}$")]  # it becomes part of the names of tables
    parts: Annotated[int, Field(ge=1)]
    sources: list[str]
    model: str
    partitioning: _Partitioning
    tail: _Tail = _Tail()


@dataclass(frozen=True)
class _Saved:
    settings: _Settings
    model_sha256: str = ""


@dataclass(frozen=True, slots=True)
class TailsHere:
    """Description of the tails that a machine has or may have, for a server's processes; plain data."""

    folder: str
    job_id: str
    parts: int
    strings: bool
    width: int  # 0: not known without the model
    begins_empty: bool
    kind_name: str = ""  # see ServedJob

    def shared_fields(self) -> dict[str, Any]:
        """Return the fields that other servers need to begin without a table."""
        names = ("parts", "begins_empty", "strings", "width", "kind_name")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class ServedJob:
    """The job that writes to `out`, as a server of its embeddings, or of those of one kind, needs to know it."""

    out: Path
    job_id: str  # of the change log (see `log_id`)
    parts: int
    strings: bool
    sources: tuple[str, ...]
    model: str
    tables_folder: str = ""  # where each machine has tails of its own; empty: below `out`
    begins_empty: bool = False  # epoch 0 has no rows
    kind: str = ""  # where the model returns several
    kind_name: str = field(default="", kw_only=True)  # name of that kind, or of the only one that the model returns
    lacks: str = field(default="", kw_only=True)  # which rows the topic that it comes from can't have
    consistency: str = field(default=EPOCH, kw_only=True)  # of its rows
    model_sha256: str = field(default="", kw_only=True)  # empty where it is not known
    generation: int | None = field(default=None, kw_only=True)  # of a service that it is a job of
    # Width of the rows of an inner layer, which it writes in the place of embeddings (`--embeddings asked`); 0: it
    # writes embeddings.
    inner_width: int = field(default=0, kw_only=True)

    @staticmethod
    def read(out: Path, kind: str | None = None) -> ServedJob | None:
        """The job of an output folder; None where it holds none yet, or one that still prepares itself.

        Raises: UsageError where the model returns several kinds, and `kind` is none of them.
        """
        # Not by `Settings`: loading what all operators need would take most of the time that a server needs to start.
        found = read_json(out / layout.SAVED_JOB, _Saved, "no other file has all of it: put it back from a copy")
        if found is None or not (out / layout.IMAGE_DONE).exists():
            return None
        job = found.settings
        name = folder_name(job.kinds, kind, out)
        more = job.tail.tables_folder, job.tail.begins_empty, name
        strings, identity = job.partitioning.id_kind == "string", log_id(job.job_id, name)
        only = name or next(iter(job.kinds), "")
        named = {"kind_name": only, "model_sha256": found.model_sha256}
        of = out, identity, job.parts, strings, tuple(job.sources), job.model
        return ServedJob(*of, *more, **named, inner_width=job.inner_widths.get(only, 0))

    @staticmethod
    def of_tables(tables: Path, kind: str | None = None) -> ServedJob | None:
        """The job with this folder of tables, O/tables or O/tables/KIND; see `read`."""
        log = LogFolders.of_tables(tables)
        return ServedJob.read(log.out, kind or log.kind or None)

    @property
    def log(self) -> LogFolders:
        """The folders of its change log."""
        return LogFolders(self.out, self.kind)

    @property
    def readouts(self) -> Readouts:
        """Its model's readouts and widths."""
        return readouts_of(self.model)

    @property
    def width(self) -> int:
        """Numbers of a row that it writes."""
        return self.inner_width or self.readouts.widths[self.kind]

    @property
    def word(self) -> int:
        """Its id, as mapped files have it."""
        return job_word(self.job_id)

    @property
    def tails(self) -> Path:
        """The folder of its tails on this machine."""
        return tails_of(self.log, self.tables_folder)

    @property
    def tails_here(self) -> TailsHere:
        """The same, for other processes."""
        job = str(self.tails), self.job_id, self.parts, self.strings
        return TailsHere(*job, self.quick_width, self.begins_empty, self.kind_name)

    def described(self) -> dict[str, Any]:
        """Return what answers and readers of its table need to know of it, as plain data; see `JobHere`."""
        names = (
            "job_id",
            "sources",
            "model",
            "model_sha256",
            "kind",
            "kind_name",
            "lacks",
            "consistency",
            "generation",
            "inner_width",
        )
        out = {} if self.generation is None else {"out": str(self.out)}
        return {name: getattr(self, name) for name in names} | {"tails": asdict(self.tails_here)} | out

    def in_generation(self, generation: int) -> ServedJob:
        """Return the job as one of a service."""
        return replace(self, generation=generation)

    @property
    def identity(self) -> tuple[str, int | None]:
        """Its id and its generation: a job may serve in several generations of a service."""
        return self.job_id, self.generation

    @property
    def base(self) -> int:
        """The epoch under which its epoch 0 is served."""
        return (self.generation or 0) * GENERATION

    @property
    def quick_width(self) -> int:
        """Numbers of a row that it writes, 0 where the model would have to be loaded."""
        return self.inner_width

    def beats(self) -> list[Beat | None]:
        """Return the last heartbeat of each part."""
        from freshet.operators.sink.tail.reader import read_beat

        return [read_beat(self.tails / beat_name(part), self.word) for part in range(self.parts)]

    def complete_epoch(self) -> int:
        """The last epoch up to which the change log shows all rows of all parts."""
        from freshet.operators.sink import log_proof
        from freshet.operators.telemetry.status_file import read_statuses

        visible = {one["part"]: one["visible"] for one in read_statuses(self.out, needs={"part": int, "visible": int})}
        for part, beat in enumerate(self.beats()):
            if beat is not None:
                visible[part] = max(visible.get(part, log_proof.NOTHING), beat.visible)
        run = glimpse_run(self.out)
        found = log_proof.complete_epoch(
            self.log, self.parts, visible, has_finished=has_finished(run), noted=run.get("epoch")
        )
        return max(found, 0)

    def how_ended(self) -> int:
        """Return the job's end: finished or stopped, with complete output; else it runs, as far as is known."""
        state = str(glimpse_run(self.out).get("state"))
        return {FINISHED: served.ENDED, STOPPED: served.STOPPED}.get(state, served.RUNS)

    def is_over(self, rest_s: float | None = None) -> bool:
        """Return whether nobody runs the job: it has ended, failed, or was killed on this machine.

        A job on a cluster outlives its client; Flink has `rest_s` to say so (None: as long as for a status).
        """
        try:
            run = run_of_file(self.out)
        except DamagedFileError:  # nobody can say that somebody does
            return True
        died = run.get("host") == socket.gethostname() and running_process(self.out) is None
        if died and run.get("cluster"):
            return self._is_over_there(rest_s)
        return run.get("state") in ENDED or ("pids" in run and died)

    def _is_over_there(self, rest_s: float | None) -> bool:
        from freshet.job.lifecycle.job_state import REST_S, state_of

        try:
            return state_of(self.out, REST_S if rest_s is None else rest_s).is_over
        except UsageError:  # the folder is a copy: the job runs
            return False


def await_job(tables: Path, timeout_s: float, kind: str | None = None, option: str = "--tables") -> ServedJob:
    """The job whose tables these are, or the tables of a kind; waits while it prepares itself.

    Raises: UsageError when there is none in time, or where a kind is to be named.
    """
    return await_tables(tables, timeout_s, lambda: ServedJob.of_tables(tables, kind), option)


def await_tables(tables: Path, timeout_s: float, find: Callable[[], T | None], option: str = "--tables") -> T:
    """Wait for the result of `find` in a folder of tables, which that option of the command gave.

    Raises: UsageError when nothing is in time.
    """
    if layout.TABLES not in (tables.name, tables.parent.name):
        msg = f"{option} {tables}: expected the folder {layout.TABLES} of a job's --out, such as O/{layout.TABLES}"
        raise UsageError(msg)
    deadline, out = time.monotonic() + timeout_s, LogFolders.of_tables(tables).out
    while (found := find()) is None:
        if time.monotonic() >= deadline:
            lacking = [name for name in (layout.SAVED_JOB, layout.IMAGE_DONE) if not (out / name).exists()]
            which = f" (there is no {lacking[0]})" if lacking else ""
            msg = (
                f"{option} {tables}: {out} holds no job after {timeout_s:g} s{which}; give the "
                f"{layout.TABLES} of the --out folder of a `freshet run`"
            )
            raise UsageError(msg)
        time.sleep(_POLL_S)
    return found
