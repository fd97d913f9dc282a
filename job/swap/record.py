"""A swap of a service's model under way: its steps and what it was asked for, in one file."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field

from freshet.files.json_file import read_json, write_json
from freshet.files.owner_only import close_to_others
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.folder.lock import locked
from freshet.job.service.generations import Generation, Service

FILE = "swap.json"
_LOCK = ".swap.lock"
SNAPSHOT = "snapshot"  # folder in that of a swap: the graph as it was exported
WORK = "swaps"  # folder in V with what swaps make on the way
STEPS = "export", "embed", "run", "wait", "check", "promote", "keep", "stop"
_ADVICE = "remove it, stop the new job if it runs, and begin the swap again"


class SwapLine(NamedTuple):
    """The options of a swap as they are given. `options`: those of `freshet run`, by their names in its --config."""

    model: Path
    out: Path | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    in_turn: bool = False
    gate: str = ""
    hold: bool = False
    print_spec: bool = False
    wait_s: float = 3600.0
    keep_s: float = 3600.0

    @property
    def layers(self) -> list[str]:
        """Modules of layers that users write."""
        found = self.options.get("layers") or []
        return [found] if isinstance(found, str) else list(found)

    @property
    def asked(self) -> dict[str, str]:
        """The options that have to be the same where a line is repeated, by their names."""
        own = {"model": self.model, "out": self.out or "", "in_turn": self.in_turn, "gate": self.gate}
        return {name: str(value) for name, value in {**self.options, **own}.items()}


class SwapRecord(BaseModel):
    """A swap: the job that serves at its begin, the new one, and the seconds of each step that is done."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Annotated[str, Field(pattern="^[0-9a-f]{8}$")]  # it becomes the name of a folder
    began_ms: int
    asked: dict[str, Any]  # the options, as they were given
    old: str  # folder of the job that serves
    old_job_id: str
    out: str  # folder of the new one
    events: list[str] = []  # inputs of both
    cluster: str = ""  # of the job that serves; empty where it has none
    by_hand: bool = False  # somebody else starts the new job
    seconds: dict[str, float] = {}
    forgotten: dict[str, int] = {}  # vertices without learned rows that had such, by kind
    generation: int | None = None  # once it is promoted

    def as_json(self) -> dict[str, Any]:
        """Return what the command prints."""
        lost = {"forgotten": self.forgotten} if self.forgotten else {}
        return {"generation": self.generation, "out": self.out, "seconds": self.seconds, **lost}


class SwapStep(NamedTuple):
    """A step: it does what is left to do, also where it was killed on the way, and returns what it changes."""

    name: str
    act: Callable[[SwapRecord], Mapping[str, Any]]


class Swap:
    """The swap of a service; for who is alone with it (`Service.changing` is for promotions)."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._path = service.folder / FILE

    def record(self) -> SwapRecord | None:
        """Return the swap under way, if there is one.

        Raises: DamagedFileError
        """
        found: SwapRecord | None = read_json(self._path, SwapRecord, _ADVICE)
        return found

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only command that swaps this service.

        Raises: UsageError where another one does.
        """

        def refused(owner: str) -> str:
            return f"{self.service.folder}: {owner} swaps its model; wait for its end"

        with locked(self.service.folder / _LOCK, "freshet swap", refused):
            yield

    def begin(
        self, current: Generation, asked: Mapping[str, Any], options: Mapping[str, Any], **fields: Any
    ) -> SwapRecord:
        """Begin a swap: `options` are those of the new job, `fields` the other ones of the record."""
        made = SwapRecord(
            id=secrets.token_hex(4),
            began_ms=time.time_ns() // 10**6,
            asked=dict(asked),
            old=current.job,
            old_job_id=current.job_id,
            **fields,
        )
        close_to_others(self.service.folder)
        self.work(made).mkdir(parents=True)
        self.config(made).touch(mode=0o600)
        self.config(made).write_text(yaml.safe_dump(dict(options)))
        write_json(self._path, made.model_dump())
        return made

    def same(self, found: SwapRecord, asked: Mapping[str, Any]) -> SwapRecord:
        """Return the swap under way.

        Raises: UsageError where it was begun with other options.
        """
        if differing := sorted(
            name for name in asked.keys() | found.asked.keys() if asked.get(name) != found.asked.get(name)
        ):
            name = differing[0].replace("_", "-")
            had, got = found.asked.get(differing[0]), asked.get(differing[0])
            msg = (
                f"{self.service.folder}: a swap is under way with --{name} {had}, got {got}; repeat the same line to "
                f"go on with it, or remove {self._path} to give it up"
            )
            raise UsageError(msg)
        return found

    def work(self, record: SwapRecord) -> Path:
        """Return the folder of what a swap makes on the way."""
        return self.service.folder / WORK / record.id

    def config(self, record: SwapRecord) -> Path:
        """Return the --config file of the new job."""
        return self.work(record) / "run.yaml"

    def run(self, record: SwapRecord, steps: list[SwapStep], upto: str = STEPS[-1]) -> SwapRecord:
        """Do the steps that are not done yet, up to this one, and note each."""
        for step in steps:
            if step.name not in record.seconds:
                say(f"{step.name} ...")
                began = time.monotonic()
                changed = step.act(record)
                seconds = {**record.seconds, step.name: round(time.monotonic() - began, 3)}
                record = record.model_copy(update={**changed, "seconds": seconds})
                write_json(self._path, record.model_dump())
            if step.name == upto:
                break
        return record

    def end(self, record: SwapRecord) -> None:
        """Note that it is not under way any more, and remove the export; `freshet check` asks for what was embedded."""
        self._path.unlink(missing_ok=True)
        shutil.rmtree(self.work(record) / SNAPSHOT, ignore_errors=True)
