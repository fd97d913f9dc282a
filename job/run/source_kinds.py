"""A file and a Kafka topic as sources of a job: each with where it is read from, and up to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicInput
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.event_files import EventFile
from freshet.operators.parser.files import Chunk, ChunkReader, plan_from, records_of
from freshet.operators.parser.messages import RawMessage
from freshet.partitioner.events import Events

_FIRST = 200  # offsets of a partition that are looked at before the start


@dataclass(frozen=True, slots=True)
class TopicSource:
    """A topic and how its brokers are reached; `name` is what `--events` called it at first.

    `is_followed`: `events` goes on past where a partition ends now, and waits for messages that are known to come.
    """

    spec: TopicInput
    name: str
    properties: ClientProperties
    is_followed: bool = False

    @property
    def index(self) -> int:
        """Its place among the sources."""
        return self.spec.source

    @property
    def start(self) -> Mapping[int, int]:
        """The first offset to read, by partition; one that was added later begins at 0."""
        return self.spec.start

    @property
    def end(self) -> Mapping[int, int] | None:
        """The offset that follows the last, by partition; None: the topic is read for ever."""
        return self.spec.end

    def events(self, partition: int, parser: Parser, begin: int | None = None) -> Iterator[Events]:
        """The events of a partition from its start (or `begin`), up to where it ends now, unless it is followed.

        Raises: JobFailed when the brokers can't be reached, or no longer have the first message.
        """
        from freshet.job.kafka.read_topics import FOR_EVER, read_partition

        origin, spec = Origin(self.index, self.name, partition), self.spec
        if begin is not None:
            spec = spec.model_copy(update={"start": {**spec.start, partition: begin}})
        for messages in read_partition(spec, partition, self.properties, FOR_EVER if self.is_followed else None):
            yield parser.parse_messages([RawMessage(*one[1:]) for one in messages], origin)[0]

    def first_values(self) -> list[bytes | None]:
        """The values of some messages, the first of each partition that has one now.

        Raises: JobFailed when the brokers can't be reached.
        """
        from freshet.job.kafka.read_topics import read_partition

        ends, found = self.ends_now(), list[bytes | None]()
        for partition, start in self.start.items():
            until = min(ends.get(partition, start), start + _FIRST)
            for piece in read_partition(self.spec, partition, self.properties, until) if until > start else ():
                found += [message.value for message in piece]
        return found

    def ends_now(self) -> Mapping[int, int]:
        """The offset that follows the last one there is now, by partition.

        Raises: JobFailed when the brokers can't be reached.
        """
        from freshet.job.kafka.read_topics import end_offsets

        return end_offsets(self.spec, self.properties)

    def ends_at(self, position: int, covered: int) -> bool:
        """Return whether an epoch that covers a partition up to `covered` has its last event at `position`.

        An epoch may end within a message of many events, which is not covered whole then.
        """
        return position in (covered, covered + 1)

    def at(self, address: KafkaAddress) -> TopicSource:
        """The same topic with the brokers of another address."""
        return replace(self, spec=self.spec.at(address))

    def __str__(self) -> str:
        """Return the amount of input, for people."""
        partitions = f"{len(self.start)} partitions" if len(self.start) > 1 else "1 partition"
        left = "" if self.end is None else f", {sum(self.end.values()) - sum(self.start.values()):,} messages"
        return f"topic {self.spec.topic} ({partitions}{left})"


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file from line or row `first` on, as it is cut into chunks; `name` is what `--events` called it at first."""

    index: int
    name: str
    first: int
    chunks: tuple[Chunk, ...]

    @staticmethod
    def plan(file: EventFile, first: int) -> FileSource:
        """Cut a file into chunks.

        Raises: EventFileError when it can't be read, or has fewer records than `first`.
        """
        return FileSource(file.source, file.name, first, tuple(plan_from(file, first)))

    @property
    def records(self) -> int:
        """Number of records that the file had when the job began; without a chunk, that of records before `first`."""
        return records_of(self.chunks) or self.first

    @property
    def start(self) -> Mapping[int, int]:
        """The first record to read."""
        return {0: self.first}

    @property
    def end(self) -> Mapping[int, int]:
        """Position after the last record."""
        return {0: self.records}

    def events(self, partition: int, parser: Parser, begin: int | None = None) -> Iterator[Events]:
        """The events of the file from its first record (or `begin`) on, chunk by chunk."""
        reader = ChunkReader(every_column=parser.is_mapped, fields=parser.fields)
        begin = self.first if begin is None else begin
        for chunk in self.chunks:
            if chunk.first + chunk.count > begin:
                block = parser.parse_chunk(chunk, reader.read(chunk))[0]
                yield block.slice(int(np.searchsorted(block.position, begin, "right")), len(block))

    def ends_at(self, position: int, covered: int) -> bool:
        """Return whether an epoch that covers the file up to `covered` has its last event at `position`."""
        return position == covered

    def may_be(self, file: EventFile) -> bool:
        """Return whether a file may be this one: it may have moved, but has the same name and length.

        Raises: EventFileError, as `plan`.
        """
        last, now = self.chunks[-1:], plan_from(file, self.first)[-1:]
        ends = {(chunk.first + chunk.count, chunk.end) for chunk in (*last, *now)}
        return Path(self.name).name == Path(file.name).name and len(now) == len(last) and len(ends) <= 1

    def at(self, path: str) -> FileSource:
        """The same file with the path that it has now."""
        return replace(self, chunks=tuple(replace(chunk, path=path) for chunk in self.chunks))
