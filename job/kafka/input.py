"""What a job reads of a Kafka topic, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from job.kafka.address import KafkaAddress

EARLIEST, LATEST, COMMITTED, TIMESTAMP = "earliest", "latest", "committed", "timestamp"


class TopicInput(BaseModel):
    """A topic as one of a job's sources.

    `start` and `end` are offsets by partition; a partition that is not in `start` was added later and begins at 0;
    without `end` the topic is read for ever.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: int
    bootstrap: str
    topic: str
    start: dict[int, int]
    end: dict[int, int] | None = None

    @property
    def address(self) -> KafkaAddress:
        """The topic as options name it."""
        return KafkaAddress(self.bootstrap, self.topic)

    def at(self, address: KafkaAddress) -> TopicInput:
        """The same topic with the brokers of another address."""
        return self.model_copy(update={"bootstrap": address.bootstrap})


def parse_start(text: str) -> tuple[str, int]:
    """Return how `--from` says where to begin, and the milliseconds of a timestamp (0 otherwise).

    Raises: ValueError for anything else.
    """
    name, _, moment = text.partition(":")
    if name == TIMESTAMP and moment.isascii() and moment.isdigit():
        return name, int(moment)
    if text in (EARLIEST, LATEST, COMMITTED):
        return text, 0
    message = f"got {text!r}, expected earliest, latest, committed or timestamp:MS (milliseconds since 1970)"
    raise ValueError(message)


def as_recorded(topics: Sequence[TopicInput]) -> list[dict[str, Any]]:
    """What `run.json` says of the topics."""
    return [topic.model_dump(mode="json") for topic in topics]


def from_recorded(found: Sequence[Mapping[str, Any]]) -> list[TopicInput]:
    """The inverse of `as_recorded`."""
    return [TopicInput.model_validate(one) for one in found]
