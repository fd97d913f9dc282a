"""The generations of a service: the jobs whose embeddings it has served, one after the other, in one file.

The epoch that is served is `generation * GENERATION + the job's epoch`, so that what is served never goes back, also
where a new job takes over, or an earlier one again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.files.owner_only import close_to_others
from freshet.files.whole import write_whole
from freshet.job.errors import UsageError
from freshet.kind_names import read_kind
from freshet.state.served.generation import GENERATION as GENERATION

GENERATIONS_MAX = 9000  # past them a served epoch would leave 63 bits
FILE = "generations.jsonl"
TABLES = "tables"
CONTRACT = "service.json"
_LOCK = ".lock"
_BYTES_MAX = 64 << 20  # of the file, of 9,000 lines
_ADVICE = "put it back from a copy, or make a new service folder by `freshet promote` and start its servers with that"

Why: TypeAlias = Literal["promote", "rollback", "swap"]


def _absolute(path: str) -> str:
    if not os.path.isabs(path) or "\0" in path:
        msg = f"expected an absolute path, got {path[:100]!r}"
        raise ValueError(msg)
    return path


class Generation(BaseModel):
    """A job that serves, or has served. `from_` is the generation before, None of the first one."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    generation: Annotated[int, Field(ge=0, lt=GENERATIONS_MAX)]
    job: Annotated[str, AfterValidator(_absolute)]
    job_id: Annotated[str, Field(min_length=1)]
    model: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]  # SHA-256
    since_ms: int
    why: Why
    from_: Annotated[int | None, Field(alias="from")] = None

    @property
    def place(self) -> str:
        """Source of its embeddings, in words."""
        return self.job

    @property
    def out(self) -> Path:
        """Output folder of the job."""
        return Path(self.job)

    @property
    def base(self) -> int:
        """The served epoch of the job's epoch 0."""
        return self.generation * GENERATION


class Contract(BaseModel):
    """The kinds, ids and sources that readers of a service rely on in every job of it, as generation 0 has them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    returned: list[str]  # kinds of vertices whose embeddings are served; empty where vertices have no kinds
    id_kind: Annotated[str, Field(pattern="^(int|string)$")]
    sources: list[str]  # inputs of the jobs, by their names


class Service:
    """A service folder V."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    @staticmethod
    def at(given: Path) -> tuple[Service, str | None] | None:
        """Return the service of a service folder, or of a folder of its tables with their kind; None without one."""
        folder, tables = given.absolute(), given.absolute().parent
        for above, kind in ((folder, None), (tables, None), (tables.parent, read_kind(folder.name))):
            is_ours = above == folder or (folder.name if kind is None else tables.name) == TABLES
            if is_ours and (above / FILE).is_file():
                return Service(above), kind
        return None

    @property
    def tables(self) -> Path:
        """Folder in which its servers keep their tables; those of a kind have one below it."""
        return self.folder / TABLES

    def generations(self) -> list[Generation]:
        """All of them, the current one last; none where the folder is no service yet.

        Raises: DamagedFileError for a file that is not as it was written.
        """
        path = self.folder / FILE
        try:
            if path.stat().st_size > _BYTES_MAX:
                raise _damaged(path, f"expected at most {_BYTES_MAX:,} bytes, got {path.stat().st_size:,}")
            text = path.read_text()
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise _damaged(path, f"can't be read: {error}") from None
        if not text.endswith("\n"):
            raise _damaged(path, "its last line is not complete")
        found = list[Generation]()
        for number, line in enumerate(text.splitlines(), 1):
            try:
                found.append(Generation.model_validate_json(line))
            except ValidationError as error:
                why = error.errors()[0]
                where = f" ({why['loc'][0]})" if why["loc"] else ""
                raise _damaged(path, f"line {number} is no generation: {why['msg']}{where}") from None
        if [one.generation for one in found] != list(range(len(found))):
            raise _damaged(path, "expected generations from 0 on, one a line")
        return found

    def current(self) -> Generation | None:
        """The generation that serves; None where the folder is no service yet."""
        found = self.generations()
        return found[-1] if found else None

    def serving(self) -> Generation:
        """Return the generation that serves.

        Raises: UsageError where the folder is no service yet.
        """
        if (found := self.current()) is None:
            msg = f"{self.folder}: no service; `freshet promote` makes one"
            raise UsageError(msg)
        return found

    def numbered(self, number: int | None) -> Generation:
        """Return a generation by its number, or the current one.

        Raises: UsageError for one that it has not had.
        """
        found = self.generations()
        at = len(found) - 1 if number is None else number
        if not 0 <= at < len(found):
            msg = f"{self.folder}: there is no generation {number}; its generations are 0 to {len(found) - 1}"
            raise UsageError(msg)
        return found[at]

    def contract(self) -> Contract:
        """Return what its readers rely on.

        Raises: DamagedFileError
        """
        path = self.folder / CONTRACT
        found: Contract | None = read_json(path, Contract, _ADVICE)
        if found is None:
            raise _damaged(path, "is not there")
        return found

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Be the one who changes the folder.

        Raises: UsageError where another process does.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        close_to_others(self.folder)
        with (self.folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                msg = f"{self.folder}: another command is changing the service; try again when it has ended"
                raise UsageError(msg) from error
            yield

    def begin(self, contract: Contract) -> None:
        """Write what its readers may rely on, before generation 0; for who is `changing`."""
        write_json(self.folder / CONTRACT, contract.model_dump())

    def add(self, generation: Generation) -> None:
        """Write one more generation, which serves from now on; for who is `changing`."""
        lines = [one.model_dump_json(by_alias=True) for one in [*self.generations(), generation]]
        write_whole(self.folder / FILE, ("\n".join(lines) + "\n").encode())


def _damaged(path: Path, why: str) -> DamagedFileError:
    return DamagedFileError(f"{path}: {why}; {_ADVICE}")
