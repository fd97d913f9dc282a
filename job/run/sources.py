"""Inputs of a job: files (those of a folder one by one) and Kafka topics of `--events`, numbered in that order.

`find_sources` separates files and topics, and `plan_sources` determines the range to read of each. `Source` is their
interface; the implementations are in `file_source` and `topic_source`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, NotRequired, Protocol

from typing_extensions import TypedDict

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.folder.layout import CHUNKS, START
from freshet.job.kafka.address import KafkaAddress, KafkaAddressError, is_kafka
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicIdentity, TopicInput
from freshet.job.run.source_kinds import FileSource, TopicSource
from freshet.operators.epochs.cut import FILES
from freshet.operators.epochs.event_time import NO_END
from freshet.operators.parser.core import Parser
from freshet.operators.parser.event_files import EventFile, EventFileError, list_files
from freshet.operators.parser.files import Chunk
from freshet.operators.parser.stages import is_parsed_ahead, read_plan, write_plan
from freshet.operators.settings import Settings
from freshet.partitioner.events import Events

Offsets = Mapping[int, int]  # by partition; a file has one, 0
_ADVICE = "put it back from a copy, or start the job again in a new --out"


class _Starts(TypedDict):
    """Content of START: by source, the first record; and whether the plan beside it records its end."""

    files: dict[int, int]
    plan_has_end: NotRequired[bool]


class Source(Protocol):
    """A file or topic that a job reads.

    Offsets are those of messages, or count a file's lines or rows; they stand by partition, of which a file has one, 0.
    """

    @property
    def index(self) -> int:
        """Its place among the sources, which events carry."""

    @property
    def name(self) -> str:
        """Name in `--events` when the job began."""

    @property
    def start(self) -> Offsets:
        """The first offset that is read; a partition that is not here was added later."""

    @property
    def end(self) -> Offsets | None:
        """Offset after the last; None if it is read without end."""

    def events(self, partition: int, parser: Parser, begin: int | None = None) -> Iterator[Events]:
        """The events of a partition from its start, or from this offset on, read again."""

    def ends_at(self, position: int, covered: int) -> bool:
        """Return whether an epoch that covers a partition up to `covered` has its last event at `position`."""


@dataclass(frozen=True, slots=True)
class FoundSources:
    """Files and topics of `--events`: the index in `names` numbers both."""

    names: tuple[str, ...] = ()
    files: tuple[EventFile, ...] = ()
    topics: dict[int, KafkaAddress] = field(default_factory=dict)


def find_sources(events: Sequence[str]) -> FoundSources:
    """Return what the values of `--events` name.

    Raises: EventFileError for a path that can't be read; KafkaAddressError; UsageError for a topic that comes twice.
    """
    names: list[str] = []
    files: list[EventFile] = []
    topics: dict[int, KafkaAddress] = {}
    for given in events:
        if not is_kafka(given):
            found = [replace(file, source=file.source + len(names)) for file in list_files([given])]
            files += found
            names += [file.name for file in found]
            continue
        address = KafkaAddress.parse(given)
        if address.topic in {other.topic for other in topics.values()}:
            msg = f"--events {given}: the topic {address.topic} is named twice; its events would count twice"
            raise UsageError(msg)
        topics[len(names)] = address
        names.append(str(address))
    return FoundSources(tuple(names), tuple(files), topics)


def named_sources(events: Sequence[str], recorded: Sequence[str]) -> tuple[FoundSources, list[str]]:
    """The sources, and for each the name that the run recorded for it, in reading order.

    Files that lie elsewhere now, and brokers that have another address, are taken by their place in the order.

    Raises:
        UsageError: they can't be the run's.
    """
    try:
        found = find_sources(events)
    except (EventFileError, KafkaAddressError) as error:
        msg = f"--events: {error}"
        raise UsageError(msg) from None
    if set(recorded) <= set(found.names):
        return found, list(found.names)
    if len(recorded) == len(found.names):
        return found, list(recorded)
    msg = f"--events: got {len(found.names)} files, the run read {len(recorded)}: {', '.join(recorded)}"
    raise UsageError(msg)


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a job, each with where it is read from and to."""

    files: tuple[FileSource, ...] = ()
    topics: tuple[TopicSource, ...] = ()

    def __iter__(self) -> Iterator[Source]:
        """Yield the sources in the order of `--events`."""
        both: tuple[Source, ...] = (*self.files, *self.topics)
        return iter(sorted(both, key=lambda source: source.index))

    @property
    def chunks(self) -> list[Chunk]:
        """Chunks of the files to read, in order."""
        return [chunk for file in self.files for chunk in file.chunks]

    @property
    def records(self) -> int:
        """Number of records in these chunks."""
        return sum(chunk.count for chunk in self.chunks)

    @property
    def topic_specs(self) -> tuple[TopicInput, ...]:
        """The topics as plain data."""
        return tuple(topic.spec for topic in self.topics)

    @property
    def lane_ends(self) -> tuple[tuple[int, int, int, int], ...]:
        """Each lane of the input with something to read: source, partition, and the source and position it ends at."""
        found = [(*FILES, chunk.source, chunk.first + chunk.count) for chunk in self.chunks[-1:]]
        for topic in self.topics:
            ends = topic.end or dict.fromkeys(topic.start, NO_END)
            starts = {**dict.fromkeys(ends, 0), **topic.start}
            lanes = [(one, ends.get(one, start), start) for one, start in starts.items()]
            found += [(topic.index, one, topic.index, end) for one, end, start in lanes if end == NO_END or end > start]
        return tuple(found)

    def save(self, out: Path) -> None:
        """Record the plan of the files (the topics are recorded with the job), before the job is recorded."""
        write_plan(self.chunks, out / CHUNKS)
        write_json(out / START, {"files": {str(file.index): file.first for file in self.files}, "plan_has_end": True})

    def __str__(self) -> str:
        """Return the amount of input, for people."""
        files = [f"{self.records:,} records of input"] if self.chunks or not self.topics else []
        return ", ".join([*files, *map(str, self.topics)])


class TopicReading(NamedTuple):
    """Reading of a new job's topics: its start (as `--from` names it), whether it has an end, and the client."""

    start_from: str
    is_bounded: bool
    properties: ClientProperties


def plan_sources(
    found: FoundSources,
    starts: Mapping[int, Offsets],
    reading: TopicReading,
    known: Mapping[str, TopicIdentity] | None = None,
) -> Sources:
    """Cut the files into chunks, and ask the brokers where the topics begin and end.

    `starts`: by source, where a snapshot says that it goes on; `known`: by name, the topics that it means.
    Raises: EventFileError for a file that can't be read or is too short; UsageError and JobFailed as `plan_topic`.
    """
    files = tuple(FileSource.plan(file, starts.get(file.source, {}).get(0, 0)) for file in found.files)
    if not found.topics:
        return Sources(files)
    from freshet.job.kafka.read_topics import plan_topic

    known = known or {}
    specs = [
        plan_topic(source, address, *reading, starts.get(source), known.get(address.topic))
        for source, address in found.topics.items()
    ]
    return Sources(files, tuple(TopicSource(spec, str(spec.address), reading.properties) for spec in specs))


def load_sources(settings: Settings, topics: Sequence[TopicInput], properties: ClientProperties) -> Sources:
    """The sources of a job as it began: the inverse of `save`, with the topics that it recorded.

    The chunks still have the paths of that time.
    """
    names = settings.sources
    by_file: dict[int, list[Chunk]] = {k: [] for k in range(len(names))}
    for chunk in _load_plan(Path(settings.out), Path(settings.chunks)):
        if chunk.source not in by_file:
            msg = f"{settings.chunks}: damaged: it has files of source {chunk.source}, the job {len(names)}; {_ADVICE}"
            raise DamagedFileError(msg)
        by_file[chunk.source].append(chunk)
    starts, streams = load_starts(Path(settings.out)), {topic.source for topic in topics}
    return Sources(
        tuple(FileSource(k, names[k], starts.get(k, 0), tuple(by_file[k])) for k in by_file if k not in streams),
        tuple(TopicSource(topic, names[topic.source], properties) for topic in topics),
    )


def load_starts(out: Path) -> dict[int, int]:
    """Return, by source, the first record that a job has read of each file; earlier versions have saved none.

    Where the file is damaged or gone, the reading plan says the same.
    """
    try:
        found = read_json(out / START, _Starts, _ADVICE)
    except DamagedFileError as error:
        say(f"{error.args[0].partition(';')[0]}; {CHUNKS} says the same")
        found = None
    if found is not None:
        return found["files"]
    starts: dict[int, int] = {}
    for chunk in read_plan(out / CHUNKS) if (out / CHUNKS).is_file() else ():
        starts.setdefault(chunk.source, chunk.first)
    return starts


def _load_plan(out: Path, path: Path) -> list[Chunk]:
    """The reading plan, which is the one that was written, as far as that was noted.

    Raises: DamagedFileError where it is not.
    """
    try:
        noted = read_json(out / START, _Starts, _ADVICE)
    except DamagedFileError:  # which `load_starts` says
        noted = None
    return read_plan(path, has_end=noted is not None and noted.get("plan_has_end", False))


@dataclass(frozen=True)
class Processes:
    """The processes of a job on Flink: groups of neighbouring operators have as many each as a layer has subtasks."""

    count: int
    subtasks: int
    of_cluster: bool = False  # that was started by others

    def readers_by_default(self) -> int:
        """Return one reader for each process that is known to have room for one.

        A cluster may have no slots but those of the layers, and of these only the first group's have room.
        """
        return self.subtasks if self.of_cluster else self.count

    def whole_groups(self, readers: int, *, more: bool) -> int:
        """Return the next number of readers, not above or (`more`) not below this one, that fills whole groups."""
        if self.of_cluster or not self.subtasks < readers < self.count or readers % self.subtasks == 0:
            return readers
        return readers + (self.subtasks if more else 0) - readers % self.subtasks


def file_readers_of(sources: Sources, given: int | None, processes: int) -> int:
    """Return the number of threads that parse files, `given` or one for each process."""
    if given and given > 1 and not sources.topics and not any(map(is_parsed_ahead, sources.chunks)):
        say(f"--readers {given}: one reads these files; several read topics, and JSON Lines that are not compressed")
    return given or processes


def readers_of(
    topics: Sequence[TopicSource], given: int | None, processes: Processes, *, resumes: bool
) -> tuple[int, ...]:
    """Return the number of readers of each topic, `given` or by default, and at most its partitions.

    Raises: JobFailed when the brokers can't be reached.
    """
    return tuple(_readers(topic, given, processes, resumes) for topic in topics)


def _readers(topic: TopicSource, given: int | None, processes: Processes, resumes: bool) -> int:
    wanted = given or processes.readers_by_default()
    partitions = len(topic.start if topic.end is None else topic.end)
    if wanted > partitions and topic.end is None and resumes:
        partitions = len(topic.ends_now())  # some may have been added
    if given and given > partitions:
        found = "1 partition, so one reader" if partitions == 1 else f"{partitions} partitions, so {partitions} readers"
        say(f"--readers {given}: {topic.name} has {found}")
    return processes.whole_groups(max(1, min(wanted, partitions)), more=given is not None)
