"""The topics of a service's jobs, and the topic that says which one of them is the current one.

A job that takes the place of another writes to NAME-gN, N its generation, so that no topic has rows of two models. The
compacted topic NAME-generations has a record with the key `current`: a JSON object of `generation`, `topic`, `model`
and `since_ms`. Where a job returns several kinds of vertices, `topic` is what their topics begin with.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError
from freshet.job.folder.job_file import SavedJob
from freshet.job.kafka.address import KafkaAddress, KafkaAddressError
from freshet.job.kafka.brokers import await_brokers
from freshet.job.kafka.client import ClientProperties, admin_client, consumer_of
from freshet.job.service.generations import GENERATIONS_MAX, Generation

KEY = b"current"
_END = "-generations"
_OF_GENERATION = re.compile(r"(.+?)-g[0-9]{1,4}(-[0-9]{1,4})?", re.ASCII)
_BYTES_MAX = 4096
_SHOWN = 60
_DELIVERY_S = 10.0
_POLL_MS = 500


class CurrentTopic(BaseModel):
    """Value of the record: the current generation and the topic of its job."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    generation: Annotated[int, Field(ge=0, lt=GENERATIONS_MAX)]
    topic: str
    model: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # SHA-256
    since_ms: Annotated[int, Field(ge=0)]

    @property
    def place(self) -> str:
        """Source of its embeddings, in words."""
        return f"the topic {self.topic}"

    @staticmethod
    def decode(key: bytes | None, value: bytes | None, pointer: KafkaAddress) -> CurrentTopic:
        """Return what a record of a topic of generations says.

        Raises: ValueError for a record that no service has written there.
        """
        if key != KEY:
            msg = f"key: expected {KEY!r}, got {key!r:.{_SHOWN}}"
            raise ValueError(msg)
        if value is None or len(value) > _BYTES_MAX:
            got = "none" if value is None else f"{len(value):,} bytes"
            msg = f"value: expected JSON of at most {_BYTES_MAX:,} bytes, got {got}"
            raise ValueError(msg)
        try:
            found = CurrentTopic.model_validate_json(value)
        except ValidationError as error:
            why = error.errors()[0]
            where = f"{why['loc'][0]}: " if why["loc"] else ""
            msg = f"value: {where}{why['msg']}, got {value[:_SHOWN]!r}"
            raise ValueError(msg) from None
        if not belongs(found.topic, base := base_of_pointer(pointer)):
            msg = f"topic: expected {base} or {base}-…, got {found.topic[:_SHOWN]!r}"
            raise ValueError(msg)
        return found


def is_pointer(address: KafkaAddress) -> bool:
    """Return whether a topic is one of generations, by its name."""
    return address.topic.endswith(_END) and address.topic != _END


def base_of_pointer(pointer: KafkaAddress) -> str:
    """Return NAME of a topic NAME-generations."""
    return pointer.topic.removesuffix(_END)


def belongs(topic: str, base: str) -> bool:
    """Return whether a topic may be one of those whose names begin with this one."""
    try:
        KafkaAddress.parse(str(KafkaAddress("b:1", topic)))
    except KafkaAddressError:
        return False
    return topic == base or topic.startswith(f"{base}-")


def base_of(topic: str) -> str:
    """Return NAME of a topic NAME or NAME-gN."""
    found = _OF_GENERATION.fullmatch(topic)
    return topic if found is None else found[1]


def pointer_of(address: KafkaAddress) -> KafkaAddress:
    """Return the topic that says which topic is the current one, for the topic of a job.

    Raises: UsageError where its name is too long for Kafka.
    """
    return _beside(address, f"{base_of(address.topic)}{_END}")


def topic_of_job(out: Path) -> KafkaAddress | None:
    """Return the topic to which the job of a folder writes its embeddings; None without one, or without a job."""
    saved = SavedJob.read(out)
    return None if saved is None else topic_of_options(saved.options)


def topic_of_options(options: Mapping[str, Any]) -> KafkaAddress | None:
    """Return the topic of embeddings by a job's options; None without one.

    Raises: UsageError for what is none.
    """
    given = options.get("embeddings_to")
    try:
        return None if given is None else KafkaAddress.parse(str(given))
    except KafkaAddressError as error:
        msg = f"--embeddings-to: {error}"
        raise UsageError(msg) from None


def free_topic(former: KafkaAddress, generation: int, properties: ClientProperties) -> KafkaAddress:
    """Return a topic for the job of a generation that nobody has written to, also not to that of a kind.

    `former`: the topic of the job before.

    Raises: UsageError for a name that Kafka would refuse; JobFailed without brokers.
    """
    base = f"{base_of(former.topic)}-g{generation}"
    with admin_client(former, properties) as admin:
        known = set(admin.list_topics())
    for number in count(1):
        found = _beside(former, base if number == 1 else f"{base}-{number}")
        there = [one for one in known if one == found.topic or one.startswith(f"{found.topic}.")]
        if not there or not _have_records(there, former, properties):
            break
        say(f"the topic {found.topic} has records of another job: taking another name")
    return found


def publish(pointer: KafkaAddress, current: CurrentTopic, properties: ClientProperties) -> bool:
    """Write which topic is the current one; False where the topic of generations says so already.

    Raises: UsageError where another service writes there, or no broker answers; JobFailed where they do not take it.
    """
    await_brokers([("the topic", pointer)], properties)
    from freshet.job.kafka.make_topics import make_topic

    with admin_client(pointer, properties) as admin:
        lost = "which topic is the current one"
        make_topic("generations", admin, pointer, say, compacted=True, lost=lost)
    known = _newest(_read_all(pointer, properties), pointer)
    if known == current:
        return False
    if known is not None and known.generation >= current.generation:
        msg = (
            f"{pointer}: it has generation {known.generation} with the topic {known.topic} already, of another service "
            f"or of a job that has another topic now; run the job with another name in --embeddings-to"
        )
        raise UsageError(msg)
    _send(pointer, current, properties)
    return True


def current_of(generation: Generation, topic: KafkaAddress) -> CurrentTopic:
    """Return what is to be written of a generation, whose job writes to `topic`."""
    model, since_ms = generation.model, generation.since_ms
    return CurrentTopic(generation=generation.generation, topic=topic.topic, model=model, since_ms=since_ms)


def _newest(records: Iterable[Any], pointer: KafkaAddress) -> CurrentTopic | None:
    """Return what the record with the greatest generation says; one that no service has written is named, and left."""
    found: CurrentTopic | None = None
    for record in records:
        try:
            one = CurrentTopic.decode(record.key, record.value, pointer)
        except ValueError as error:
            say(
                f"{pointer}: partition {record.partition}, offset {record.offset}: no service has written this: {error}"
            )
            continue
        found = one if found is None or one.generation >= found.generation else found
    return found


def _send(pointer: KafkaAddress, current: CurrentTopic, properties: ClientProperties) -> None:
    from confluent_kafka import KafkaException

    from freshet.job.kafka.produce import explained, producer_to

    failed: list[Any] = []
    producer = producer_to(pointer, properties)
    try:
        producer.produce(
            pointer.topic,
            current.model_dump_json().encode(),
            KEY,
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )
        left = producer.flush(_DELIVERY_S)
        if failed:
            raise KafkaException(failed[0])
    except KafkaException as error:
        raise JobFailed(explained(error, pointer)) from error
    finally:
        producer.purge()
    if left:
        msg = f"{pointer}: the brokers have not taken a record within {_DELIVERY_S:g} s"
        raise JobFailed(msg)


def _read_all(address: KafkaAddress, properties: ClientProperties) -> list[Any]:
    """Return all records of a topic of generations, of which compaction leaves few."""
    from kafka import TopicPartition

    found: list[Any] = []
    with consumer_of(address, properties, isolation_level="read_committed") as consumer:
        places = [TopicPartition(address.topic, one) for one in consumer.partitions_for_topic(address.topic) or ()]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning()
        deadline = time.monotonic() + _DELIVERY_S
        while any(consumer.position(one) < ends[one] for one in places):
            for records in consumer.poll(timeout_ms=_POLL_MS).values():
                found += records
                deadline = time.monotonic() + _DELIVERY_S
            if time.monotonic() > deadline:
                msg = f"{address}: no record for {_DELIVERY_S:g} s before its end"
                raise JobFailed(msg)
    return found


def _have_records(topics: list[str], address: KafkaAddress, properties: ClientProperties) -> bool:
    """Return whether a topic has had records, also where they have gone; who may not ask takes it for one that has."""
    from kafka import TopicPartition
    from kafka.errors import AuthorizationError

    try:
        with consumer_of(address, properties) as consumer:
            for topic in topics:
                places = [TopicPartition(topic, one) for one in consumer.partitions_for_topic(topic) or ()]
                if any(consumer.end_offsets(places).values()):
                    return True
    except JobFailed as error:
        if not isinstance(error.__cause__, AuthorizationError):
            raise
        return True
    return False


def _beside(address: KafkaAddress, topic: str) -> KafkaAddress:
    try:
        return KafkaAddress.parse(str(KafkaAddress(address.bootstrap, topic)))
    except KafkaAddressError as error:
        msg = f"--embeddings-to: a topic beside {address.topic}: {error}; give a job a shorter name of a topic"
        raise UsageError(msg) from None
