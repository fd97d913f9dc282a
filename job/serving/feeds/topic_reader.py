"""Reads a job's output topic from given offsets on, and says when its brokers were heard last."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

import orjson
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.serving.feeds.topic_records import Record

POLL_S = 0.05  # how long to wait for a record
ASK_S = 5.0  # a server that is to end waits so long while brokers are away
_LOOK_S = 10.0  # between two looks for further partitions, and whether it is still the same topic
_RECORDS_AT_ONCE = 10_000
_STATISTICS_MS = 500
_PASSING = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT}
_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class OffsetsGoneError(RuntimeError):
    """The next offset is no longer available: the topic was recreated, or its retention is too short."""


class NoTopicError(UsageError):
    """There is no such topic."""


class TopicReader:
    """A consumer without a group, on all partitions of a topic; for one thread."""

    def __init__(
        self, address: KafkaAddress, properties: ClientProperties, offsets: Mapping[int, int], id_: str = ""
    ) -> None:
        """Reads on from `offsets`, which are those of the topic with this id; others begin at their beginning.

        Raises: JobFailed when no broker answers; UsageError for properties that it does not take, or no such topic;
        OffsetsGoneError when the topic is another one by now.
        """
        self.address, self._properties, self._looked = address, properties, time.monotonic()
        self.id = id_ if offsets else topic_id(address, properties)
        if offsets:
            self._refuse_another()
        self.heard_us = 0  # when all brokers that matter answered last
        self.newest_ms = 0  # the time of the record that was read last, in milliseconds since 1970
        self._ended: set[int] = set()
        options = _options(address, properties) | {
            "group.id": "freshet-serve",  # asked for, and never used
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 200,
            "statistics.interval.ms": _STATISTICS_MS,
            "stats_cb": self._heard,
        }
        try:
            self._consumer = Consumer(options)
        except KafkaException as error:
            msg = f"kafka: {error.args[0].str()}"
            raise UsageError(msg) from None
        try:
            self.offsets = {partition: offsets.get(partition, OFFSET_BEGINNING) for partition in self._partitions()}
        except BaseException:
            self._consumer.close()
            raise
        self._assign()

    def read(self, timeout_s: float) -> list[Record]:
        """The next records, in the order of each partition; `offsets` are behind them on return.

        Raises: OffsetsGoneError.
        """
        if time.monotonic() - self._looked > _LOOK_S:
            self._look()
        # `consume` would wait for so many messages until the time is up.
        first = self._consumer.poll(timeout_s)
        messages = [] if first is None else [first, *self._consumer.consume(_RECORDS_AT_ONCE, 0)]
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(Record(message.key(), message.value(), message.headers() or ()))
                self.offsets[message.partition()] = message.offset() + 1
                self.newest_ms = message.timestamp()[1]
            elif error.code() == KafkaError._PARTITION_EOF:  # behind what transactions have written there, too
                self.offsets[message.partition()] = message.offset()
                self._ended.add(message.partition())
            elif error.code() in _GONE:
                place = f"{self.address}: partition {message.partition()}"
                msg = f"{place}: the next offset is no longer available ({one_line(error.str())})"
                raise OffsetsGoneError(msg)
            elif error.code() not in _PASSING:
                raise KafkaException(error)
        return records

    @property
    def caught_up(self) -> bool:
        """True if every partition was read up to its end at the start."""
        return self._ended >= self.offsets.keys()

    def close(self) -> None:
        """Let the brokers go."""
        self._consumer.close()

    def _partitions(self) -> list[int]:
        return partitions_of(self._consumer, self.address)

    def _refuse_another(self) -> None:
        if topic_id(self.address, self._properties) != self.id:
            msg = f"{self.address}: the topic was deleted and recreated"
            raise OffsetsGoneError(msg)

    def _look(self) -> None:
        self._looked = time.monotonic()
        try:
            self._refuse_another()
            new = set(self._partitions()) - self.offsets.keys()
        except (JobFailed, UsageError):
            return
        if new:
            self.offsets |= dict.fromkeys(new, OFFSET_BEGINNING)
            self._consumer.incremental_assign(
                [TopicPartition(self.address.topic, one, OFFSET_BEGINNING) for one in new]
            )

    def _assign(self) -> None:
        places = [TopicPartition(self.address.topic, one, offset) for one, offset in self.offsets.items()]
        self._consumer.assign(places)

    def _heard(self, statistics: str) -> None:
        """All brokers that lead one of our partitions answer, also while they have nothing."""
        found = orjson.loads(statistics)
        leaders = [one for one in found["brokers"].values() if one["toppars"]]
        if leaders and all(one["state"] == "UP" and one["rxidle"] >= 0 for one in leaders):
            idle_us = max(int(one["rxidle"]) for one in leaders)
            self.heard_us = max(self.heard_us, time.time_ns() // 1000 - idle_us)


def partitions_of(client: Any, address: KafkaAddress) -> list[int]:
    """The partitions of a topic.

    Raises: JobFailed when no broker answers; NoTopicError.
    """
    try:
        found = client.list_topics(address.topic, timeout=ASK_S).topics[address.topic]
    except KafkaException as error:
        msg = f"{address}: no broker answers ({one_line(error.args[0].str())})"
        raise JobFailed(msg) from error
    if found.error is not None or not found.partitions:
        msg = f"--kafka {address}: no such topic; it is what `freshet run --embeddings-to` names"
        raise NoTopicError(msg)
    return sorted(found.partitions)


def topic_id(address: KafkaAddress, properties: ClientProperties) -> str:
    """An id that a topic of the same name made later does not have, in hexadecimal.

    Raises: as `partitions_of`.
    """
    admin = AdminClient(_options(address, properties))
    partitions_of(admin, address)
    try:
        found = admin.describe_topics(TopicCollection([address.topic]), request_timeout=ASK_S)[address.topic].result()
    except KafkaException as error:
        msg = f"{address}: no broker answers ({one_line(error.args[0].str())})"
        raise JobFailed(msg) from error
    return hashlib.sha256(f"{address.topic} {found.topic_id}".encode()).hexdigest()[:16]


def _options(address: KafkaAddress, properties: ClientProperties) -> dict[str, Any]:
    own = {"bootstrap.servers": address.bootstrap, "reconnect.backoff.max.ms": 1000, "log_level": 0}
    return {**properties.librdkafka(), **own, "allow.auto.create.topics": False}
