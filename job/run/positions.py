"""Start of the events after a snapshot: positions in `snapshot.json`, matched with the names in `--events`.

`snapshot.json` holds `positions`, a list of `{"source", "partition", "next_offset"}`: the source by its name, the first
line, row or offset that the snapshot does not cover, of a file `records`, how many it had, and of a topic `topic_id`
and `cluster_id`, whose offset it is. `times` are those of the input that it covers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from freshet.job.errors import UsageError
from freshet.job.kafka.address import KafkaAddress, is_kafka
from freshet.job.kafka.topic_specs import TopicIdentity
from freshet.job.run.sources import FoundSources
from freshet.state.served.times import NO_TIME, Moment

_KEY, _TIMES = "positions", "times"


class Position(BaseModel):
    """Coverage of one partition of a source by a snapshot; a file has one partition, 0."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    source: str
    partition: int = Field(default=0, ge=0)
    next_offset: int = Field(ge=0)
    records: int | None = Field(default=None, ge=0)
    topic_id: str | None = None
    cluster_id: str | None = None

    @property
    def is_all(self) -> bool:
        """True if the snapshot covers the whole source."""
        return self.records is not None and self.next_offset >= self.records

    def to_dict(self) -> dict[str, Any]:
        """Return the form in `snapshot.json`."""
        return self.model_dump(exclude_none=True)


class _Times(BaseModel):
    """Arrival of the last event that a snapshot covers, and the largest `ts` of them, in ms since 1970."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    as_of_ms: int | None = Field(default=None, ge=0, le=2**53)
    event_ts: int | None = Field(default=None, gt=NO_TIME, lt=2**63)


def read_positions(info: Mapping[str, Any], snapshot: Path) -> list[Position]:
    """The positions in what `snapshot.json` holds; none where it has none.

    Raises: UsageError when they can't be understood.
    """
    try:
        return TypeAdapter(list[Position]).validate_python(info.get(_KEY, []))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        msg = f"--snapshot {snapshot}: snapshot.json: {_KEY}.{where}: got {problem['input']!r}: {problem['msg']}"
        raise UsageError(msg) from None


def match(
    positions: Iterable[Position], found: FoundSources, snapshot: Path, say: Callable[[str], None]
) -> dict[int, dict[int, int]]:
    """Find where each source goes on behind the snapshot, by source and partition, and say so.

    Files go by the name that they had (or by the path, where that name means the same file from here), topics by the
    topic, for brokers move. What the snapshot covers whole need not be given.

    Raises: UsageError for a source that goes on behind the snapshot and is not given, or is given twice.
    """
    known: dict[str, int] = {}
    for index, name in enumerate(found.names):
        for each in known_as(name):
            if known.setdefault(each, index) != index:
                msg = f"--events: {name} is given twice; the positions in {snapshot} can't tell the two apart"
                raise UsageError(msg)
    taken = list(positions)
    for one in taken:
        if _place(one, known) is None:
            _refuse_left_out(one, found, snapshot)
    starts = covered(taken, found.names)
    for index, offsets in sorted(starts.items()):
        name = found.names[index]
        say(f"{name}: {snapshot} covers {_covered(name, offsets)}; reading on from there")
    return starts


def covered(positions: Iterable[Position], names: Sequence[str]) -> dict[int, dict[int, int]]:
    """Return the first offset that a snapshot does not cover, by source (its place in `names`) and partition."""
    known = {each: index for index, name in enumerate(names) for each in known_as(name)}
    found: dict[int, dict[int, int]] = {}
    for one in positions:
        if (place := _place(one, known)) is not None:
            found.setdefault(place, {})[one.partition] = one.next_offset
    return found


def times_of(info: Mapping[str, Any], snapshot: Path) -> Moment:
    """The times up to which a snapshot has the input, as `snapshot.json` holds them; nothing of earlier versions.

    Raises: UsageError when they can't be understood.
    """
    try:
        found = _Times.model_validate(info.get(_TIMES, {}))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, [_TIMES, *problem["loc"]]))
        msg = f"--snapshot {snapshot}: snapshot.json: {where}: got {problem['input']!r}: {problem['msg']}"
        raise UsageError(msg) from None
    return Moment(found.as_of_ms, found.event_ts)


def as_times(times: Moment) -> dict[str, Any]:
    """The inverse of `times_of`: fields of `snapshot.json`."""
    return {_TIMES: _Times(as_of_ms=times.arrived_ms, event_ts=times.event_ts).model_dump()}


def known_topics(positions: Iterable[Position]) -> dict[str, TopicIdentity]:
    """Return the identities of the topics of the positions, by their names."""
    return {
        KafkaAddress.parse(one.source).topic: TopicIdentity(one.topic_id, one.cluster_id)
        for one in positions
        if is_kafka(one.source)
    }


def _covered(name: str, offsets: Mapping[int, int]) -> str:
    if not is_kafka(name):
        return f"{offsets[0]:,} records"
    places = ", ".join(f"{offset:,} in partition {partition}" for partition, offset in sorted(offsets.items()))
    return f"what is before offset {places}"


def _place(one: Position, known: Mapping[str, int]) -> int | None:
    return next((known[name] for name in known_as(one.source) if name in known), None)


def known_as(name: str) -> list[str]:
    """Return the names by which a source of this name is known in another job: a topic's, or the paths of a file."""
    return [f"kafka:{KafkaAddress.parse(name).topic}"] if is_kafka(name) else [name, str(Path(name).resolve())]


def _refuse_left_out(one: Position, found: FoundSources, snapshot: Path) -> None:
    if one.next_offset == 0 or one.is_all:
        return
    of = "" if one.records is None else f" of {one.records:,}"
    place = f"partition {one.partition} of {one.source}" if is_kafka(one.source) else one.source
    msg = (
        f"--events: {snapshot} covers {place} up to {one.next_offset:,}{of}, but got {', '.join(found.names)}: give "
        f"it too (if it has another name now, write that into {snapshot / 'snapshot.json'} and take crc32 out of it), "
        "or `ignore-positions: true` in --config to read all events from their beginning"
    )
    raise UsageError(msg)
