"""Where the events go on after a snapshot: positions in `snapshot.json`, matched with what `--events` names.

`snapshot.json` holds `positions`, a list of `{"source", "partition", "next_offset"}`: the source by its name, the first
line, row or offset that the snapshot does not cover, and of a file `records`, how many it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from job.errors import UsageError
from job.folder.layout import START
from job.folder.run_file import write_json
from job.kafka.address import KafkaAddress, is_kafka
from job.run.sources import Sources
from operators.parser.files import Chunk
from operators.parser.skipping import plan_from

_KEY = "positions"


class Position(BaseModel):
    """How far a snapshot covers one partition of a source (0 of a file)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    source: str
    partition: int = Field(default=0, ge=0)
    next_offset: int = Field(ge=0)
    records: int | None = Field(default=None, ge=0)

    @property
    def is_all(self) -> bool:
        """Whether nothing of the source is left."""
        return self.records is not None and self.next_offset >= self.records

    def to_dict(self) -> dict[str, Any]:
        """As it stands in `snapshot.json`."""
        return self.model_dump(exclude_none=True)


@dataclass(frozen=True)
class Start:
    """Where a job begins in its sources, by their index: in files (all others from 0), and by partition in topics."""

    files: dict[int, int] = field(default_factory=dict)
    topics: dict[int, dict[int, int]] = field(default_factory=dict)

    def save(self, out: Path) -> None:
        """Write down where the files begin (topics are recorded with their starts), before the job is recorded."""
        write_json(out / START, {"files": {str(source): first for source, first in self.files.items()}})

    @staticmethod
    def load(out: Path) -> Start:
        """What a job has saved; jobs of earlier versions have not."""
        try:
            content = orjson.loads((out / START).read_bytes())
        except FileNotFoundError:
            return Start()
        return Start({int(source): int(first) for source, first in content["files"].items()})

    def chunks(self, sources: Sources) -> list[Chunk]:
        """The reading plan of the files.

        Raises: EventFileError for one that can't be read, or that is too short.
        """
        return [chunk for file in sources.files for chunk in plan_from(file, self.files.get(file.source, 0))]


def read_positions(info: Mapping[str, Any], snapshot: Path) -> list[Position]:
    """The positions in what `snapshot.json` holds; none where it has none.

    Raises: UsageError when they can't be understood.
    """
    try:
        return TypeAdapter(list[Position]).validate_python(info.get(_KEY, []))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        message = f"--snapshot {snapshot}: snapshot.json: {_KEY}.{where}: got {problem['input']!r}: {problem['msg']}"
        raise UsageError(message) from None


def match(positions: Iterable[Position], sources: Sources, snapshot: Path, say: Callable[[str], None]) -> Start:
    """Where the sources begin, so that nothing is read that the snapshot covers, and say so.

    Files go by the name that they had (or by the path, where that name means the same file from here), topics by the
    topic, for brokers move. What the snapshot covers whole need not be given.

    Raises: UsageError for a source that goes on behind the snapshot and is not given, or is given twice.
    """
    found: dict[str, int] = {}
    for index, name in enumerate(sources.names):
        for known in _known_as(name):
            if found.setdefault(known, index) != index:
                message = f"--events: {name} is given twice; the positions in {snapshot} tell the two not apart"
                raise UsageError(message)
    start = Start()
    for one in positions:
        index = next((found[name] for name in _known_as(one.source) if name in found), -1)
        if index < 0:
            _refuse_left_out(one, sources, snapshot)
        elif index in sources.topics:
            start.topics.setdefault(index, {})[one.partition] = one.next_offset
        else:
            start.files[index] = one.next_offset
    for index, first in start.files.items():
        say(f"{sources.names[index]}: {snapshot} covers {first:,} records; reading on from there")
    for index, offsets in start.topics.items():
        places = ", ".join(f"{offset:,} in partition {partition}" for partition, offset in sorted(offsets.items()))
        say(f"{sources.names[index]}: {snapshot} covers what is before offset {places}; reading on from there")
    return start


def _known_as(name: str) -> list[str]:
    return [f"kafka:{KafkaAddress.parse(name).topic}"] if is_kafka(name) else [name, str(Path(name).resolve())]


def _refuse_left_out(one: Position, sources: Sources, snapshot: Path) -> None:
    if one.next_offset == 0 or one.is_all:
        return
    of = "" if one.records is None else f" of {one.records:,}"
    place = f"partition {one.partition} of {one.source}" if is_kafka(one.source) else one.source
    message = (
        f"--events: {snapshot} covers {place} up to {one.next_offset:,}{of}, but got {', '.join(sources.names)}: give "
        f"it too (if it has another name now, write that into {snapshot / 'snapshot.json'}), or --ignore-positions to "
        "read all events from their beginning"
    )
    raise UsageError(message)
