"""The Kafka topics that a job reads and writes, as plain data: in its description, `run.json` and saved settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from freshet.job.kafka.address import KafkaAddress
from freshet.operators.limits import RECORD_BYTES
from freshet.partitioner.times.units import UNIT_NAMES, USUAL_MS, day_of, to_ms, unit_that_fits

EARLIEST, LATEST, COMMITTED, TIMESTAMP = "earliest", "latest", "committed", "timestamp"

Delivery = Literal["upsert", "exactly-once"]
UPSERT: Delivery = "upsert"
EXACTLY_ONCE: Delivery = "exactly-once"


class TopicIdentity(NamedTuple):
    """Ids of a topic and of its cluster, as Kafka's tools show them: offsets mean nothing without them.

    None where it is not known: brokers before 2.8 give topics no id, and Freshet did not note any at first.
    """

    topic_id: str | None = None
    cluster_id: str | None = None

    def why_other(self, now: TopicIdentity) -> str | None:
        """Describe why the topic is another one than before; None if it is the same, as far as the ids show."""
        if None not in (self.cluster_id, now.cluster_id) and self.cluster_id != now.cluster_id:
            return f"the brokers are another cluster (got {now.cluster_id}, expected {self.cluster_id})"
        if None not in (self.topic_id, now.topic_id) and self.topic_id != now.topic_id:
            return f"the topic was deleted and recreated (its id is {now.topic_id}, expected {self.topic_id})"
        return None


class TopicInput(BaseModel):
    """A topic as one of a job's sources.

    `start` and `end` are offsets by partition; a partition that is not in `start` was added later and begins at 0;
    without `end` the topic is read for ever. Offsets are those of the topic with these ids.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: int
    bootstrap: str
    topic: str
    start: dict[int, int]
    end: dict[int, int] | None = None
    topic_id: str | None = None
    cluster_id: str | None = None

    @property
    def address(self) -> KafkaAddress:
        """The topic as options name it."""
        return KafkaAddress(self.bootstrap, self.topic)

    @property
    def identity(self) -> TopicIdentity:
        """Ids that distinguish it from others of its name."""
        return TopicIdentity(self.topic_id, self.cluster_id)

    def at(self, address: KafkaAddress) -> TopicInput:
        """The same topic with the brokers of another address."""
        return self.model_copy(update={"bootstrap": address.bootstrap})


class TopicOutput(BaseModel):
    """A topic that is written; with a prefix in transactions, which end with the checkpoints.

    `mark`: what records with a value say in the header `job` (record_blocks.TopicMark); empty: nothing.

    Units: transaction_timeout_ms milliseconds; record_bytes bytes, the largest record that producer and topic take.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap: str
    topic: str
    transactional_id_prefix: str | None = None
    transaction_timeout_ms: int = 0
    record_bytes: int = RECORD_BYTES
    mark: str = ""

    @property
    def address(self) -> KafkaAddress:
        """The topic as options name it."""
        return KafkaAddress(self.bootstrap, self.topic)


class Seen(TypedDict):
    """Id of a topic, and where its partitions ended, when a job began to write there, or went on.

    `has_all`: the topic has the rows of all vertices of the job, also those of its snapshot.
    """

    topic_id: str | None
    ends: dict[int, int]
    has_all: bool


def parse_start(text: str) -> tuple[str, int]:
    """Return the mode that `--from` names, and the milliseconds of a timestamp (0 for the other modes).

    Raises: ValueError for anything else.
    """
    name, _, moment = text.partition(":")
    if name == TIMESTAMP and moment.isascii() and moment.isdigit():
        number = int(moment)
        if number not in USUAL_MS and (fits := unit_that_fits(number)) is not None:
            msg = (
                f"got {text!r}, which is {day_of(number)}, since it is in milliseconds; in {UNIT_NAMES[fits]} it is "
                f"{day_of(to_ms(number, fits))}: give timestamp:{to_ms(number, fits)}"
            )
            raise ValueError(msg)
        return name, number
    if text in (EARLIEST, LATEST, COMMITTED):
        return text, 0
    msg = f"got {text!r}, expected earliest, latest, committed or timestamp:MS (milliseconds since 1970)"
    raise ValueError(msg)


def as_recorded(topics: Sequence[TopicInput]) -> list[dict[str, Any]]:
    """Return the topics of a job as recorded in `run.json` and the saved settings."""
    return [topic.model_dump(mode="json") for topic in topics]


def from_recorded(found: Sequence[Mapping[str, Any]]) -> list[TopicInput]:
    """The inverse of `as_recorded`."""
    return [TopicInput.model_validate(one) for one in found]


def advice(out: Path | str) -> str:
    """Describe what to do if a job cannot continue in its topic."""
    return (
        "start a new job with a new --out; to keep the graph, make a snapshot by `freshet export --out S "
        f"{out}` and give --snapshot S and `ignore-positions: true` in --config"
    )
