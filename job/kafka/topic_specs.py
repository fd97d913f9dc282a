"""The Kafka topics that a job reads and writes, as plain data: in its description, `run.json` and saved settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from job.kafka.address import KafkaAddress
from operators.limits import RECORD_BYTES

EARLIEST, LATEST, COMMITTED, TIMESTAMP = "earliest", "latest", "committed", "timestamp"

Delivery = Literal["upsert", "exactly-once"]
UPSERT: Delivery = "upsert"
EXACTLY_ONCE: Delivery = "exactly-once"


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


class TopicOutput(BaseModel):
    """A topic that is written; with a prefix in transactions, which end with the checkpoints.

    Units: transaction_timeout_ms milliseconds; record_bytes bytes, the largest record that producer and topic take.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap: str
    topic: str
    transactional_id_prefix: str | None = None
    transaction_timeout_ms: int = 0
    record_bytes: int = RECORD_BYTES

    @property
    def address(self) -> KafkaAddress:
        """The topic as options name it."""
        return KafkaAddress(self.bootstrap, self.topic)


def parse_start(text: str) -> tuple[str, int]:
    """Return the mode that `--from` names, and the milliseconds of a timestamp (0 for the other modes).

    Raises: ValueError for anything else.
    """
    name, _, moment = text.partition(":")
    if name == TIMESTAMP and moment.isascii() and moment.isdigit():
        return name, int(moment)
    if text in (EARLIEST, LATEST, COMMITTED):
        return text, 0
    msg = f"got {text!r}, expected earliest, latest, committed or timestamp:MS (milliseconds since 1970)"
    raise ValueError(msg)


def as_recorded(topics: Sequence[TopicInput]) -> list[dict[str, Any]]:
    """What `run.json` and the saved settings say of the topics that a job reads."""
    return [topic.model_dump(mode="json") for topic in topics]


def from_recorded(found: Sequence[Mapping[str, Any]]) -> list[TopicInput]:
    """The inverse of `as_recorded`."""
    return [TopicInput.model_validate(one) for one in found]
