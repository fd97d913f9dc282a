"""The files and topics of a run, read a second time for `freshet check`, without the job's reader and Parser."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicInput
from freshet.job.results.plain_reader import Judged, file_records, message_records
from freshet.job.results.plain_rules import PlainRules
from freshet.operators.parser.event_files import EventFile
from freshet.operators.parser.registry.decoder import decoder_of


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
        return message_records((one[1:] for piece in pieces for one in piece), rules, decoder)
