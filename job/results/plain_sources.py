"""The files and topics of a run, read a second time for `freshet check`, without the job's reader and Parser."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicInput
from freshet.job.results.plain_reader import Judged, file_records, message_records
from freshet.job.results.plain_rules import PlainRules
from freshet.operators.parser.event_files import EventFile
from freshet.operators.parser.messages import TopicMessage
from freshet.operators.parser.registry.decoder import decoder_of

_GAPS_SHOWN = 3


class Gap(NamedTuple):
    """Offsets of a partition without a record, both included."""

    partition: int
    first: int
    last: int


class PlainSource(Protocol):
    """A file or a topic."""

    @property
    def is_file(self) -> bool:
        """True if it is a file, whose only partition is 0."""

    @property
    def bounded(self) -> Collection[int]:
        """The partitions that come to an end."""

    def records(self, partition: int, rules: PlainRules) -> Iterator[Judged]:
        """The records of a partition from where the run began."""


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A file from line or row `first` on."""

    file: EventFile
    first: int
    is_file: bool = True
    bounded: Collection[int] = (0,)

    def records(self, partition: int, rules: PlainRules) -> Iterator[Judged]:
        """Raises: UsageError when the file can't be read."""
        return file_records(self.file, rules, self.first)


@dataclass(frozen=True, slots=True)
class PlainTopic:
    """A topic, and how its brokers are reached."""

    topic: TopicInput
    properties: ClientProperties
    message_format: str = ""
    registry: str = ""
    is_file: bool = False
    gaps: list[Gap] = field(default_factory=list)  # that were found so far

    @property
    def bounded(self) -> Collection[int]:
        """None where the run read on for ever."""
        return self.topic.end or ()

    def records(self, partition: int, rules: PlainRules) -> Iterator[Judged]:
        """Raises: JobFailed when the brokers can't be reached, or no longer have the first message."""
        from freshet.job.kafka.read_topics import read_partition

        end = None if self.topic.end is None else self.topic.end.get(partition)
        pieces = read_partition(self.topic, partition, self.properties, end)
        decoder = decoder_of(self.message_format, self.registry, self.properties.registry_login())
        return message_records(self._noting_gaps(pieces, partition), rules, decoder)

    def _noting_gaps(self, pieces: Iterable[Sequence[TopicMessage]], partition: int) -> Iterator[Any]:
        expected = self.topic.start.get(partition, 0)
        for piece in pieces:
            for message in piece:
                if message.offset > expected:
                    self.gaps.append(Gap(partition, expected, message.offset - 1))
                expected = message.offset + 1
                yield message[1:]

    def why_not_whole(self, *, lacks_events: bool) -> str | None:
        """Describe the records that the topic does not have any more; None where nothing shows that it lost any.

        Transactions leave gaps of one offset each, which are none. `lacks_events`: the run has read more events.

        Raises: JobFailed when the brokers can't be reached.
        """
        from freshet.job.kafka.make_topics import compaction_of

        policy = compaction_of(self.topic.address, self.properties) if self.gaps else None
        lost = self.gaps if policy else [gap for gap in self.gaps if gap.last > gap.first and lacks_events]
        if not lost:
            return None
        shown = ", ".join(f"{one.first} to {one.last} of partition {one.partition}" for one in lost[:_GAPS_SHOWN])
        more = f" and {len(lost) - _GAPS_SHOWN} gaps more" if len(lost) > _GAPS_SHOWN else ""
        return f"{self.topic.address} ({policy or 'compacted before?'}) has no records at the offsets {shown}{more}"
