"""`freshet produce`: event files to a Kafka topic, each partition in the order of the files, nothing twice."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from confluent_kafka import KafkaException, Producer
from kafka import KafkaAdminClient
from kafka.errors import KafkaError, TopicAlreadyExistsError

from freshet.job.console import ProgressDisplay
from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.brokers import await_brokers
from freshet.job.kafka.client import ClientProperties, connection
from freshet.job.kafka.produce_messages import (
    MessageFormat,
    NoArrowError,
    Packer,
    ProducedMessage,
    RouteBy,
    Router,
    read_lines,
)
from freshet.operators.parser.files import ChunkReader, plan_chunks

_MESSAGE_BYTES_MAX = 32 << 20  # the broker decides what is too large
_DELIVERY_MS = 180_000  # as long as a broker may be away
_REQUEST_MS = 30_000
_PIECES_PER_S = 20  # with --rate: how often the pace is kept
_WAIT_S = 1.0  # at most, until an error is looked for again


@dataclass(slots=True)
class Written:
    """Messages of a partition that the broker has acknowledged."""

    events: int = 0
    messages: int = 0
    next_offset: int = 0


class Outbox:
    """Sends messages and counts acknowledged ones.

    Unacknowledged messages wait in the client, whose memory is limited, so a slow broker slows the reading down.
    Reports arrive in the polling thread.
    """

    def __init__(self, producer: Producer, topic: str, partitions: dict[int, Written]) -> None:
        self.producer, self.topic, self.partitions = producer, topic, partitions
        self._error: KafkaException | None = None
        self._reports = lru_cache(1024)(lambda events: partial(self._reported, events))

    def send(self, messages: Iterable[ProducedMessage]) -> None:
        """Hand messages over, in order, waiting while too much is under way.

        Raises: the error of an earlier message, without waiting for those sent after it.
        """
        produce, topic, report_of = self.producer.produce, self.topic, self._reports
        for partition, key, value, events in messages:
            report = report_of(events)
            while True:
                try:
                    produce(topic, value, key, partition, report)
                    break
                except BufferError:  # the client holds all that it may
                    self.producer.poll(_WAIT_S)
                    self._raise()
        self.producer.poll(0)
        self._raise()

    def wait(self, seconds: float) -> None:
        """Let that time pass, and take in reports.

        Raises: the error of an earlier message.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.producer.poll(min(left, _WAIT_S))
            self._raise()

    def flush(self) -> None:
        """Wait until all is acknowledged.

        Raises: the first error.
        """
        while self.producer.flush(_WAIT_S):
            self._raise()
        self._raise()

    def close(self) -> None:
        """Discard unacknowledged messages."""
        self.producer.purge()
        self.producer.flush(_WAIT_S)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _reported(self, events: int, error: Any, message: Any) -> None:
        if error is not None:
            self._error = self._error or KafkaException(error)
            return
        written = self.partitions[message.partition()]
        written.events += events
        written.messages += 1
        # In order. A message that was sent again, and was there already, comes back without its offset.
        offset = message.offset()
        written.next_offset = written.next_offset + 1 if offset is None or offset < 0 else offset + 1


def produce(
    *,
    events: list[str],
    to: KafkaAddress,
    key: RouteBy = "dst",
    batch: int | None = None,
    message_format: MessageFormat = "jsonl",
    rate: float | None = None,
    partitions: int | None = None,
    properties: ClientProperties | None = None,
) -> dict[str, Any]:
    """Write the events to the topic, wait until the broker has them, and return the summary.

    Raises: UsageError for files, a broker or a topic that are not there, JobFailed when the broker does not take a
    message.
    """
    properties = properties or ClientProperties()
    await_brokers([("--to", to)], properties)
    began = time.monotonic()
    try:
        count = topic_partitions(to, partitions, connection(to, properties))
        outbox = Outbox(producer_to(to, properties), to.topic, {partition: Written() for partition in range(count)})
        try:
            _send_all(outbox, events, Router(key, count), Packer(_batch(batch, message_format), message_format), rate)
            outbox.flush()
        finally:
            outbox.close()
    except (KafkaException, KafkaError) as error:
        raise JobFailed(explained(error, to)) from error
    return _summary(outbox.partitions, time.monotonic() - began)


def topic_partitions(to: KafkaAddress, wanted: int | None, options: Mapping[str, Any]) -> int:
    """Return the number of partitions of the topic, made now with the wanted number if it is not there.

    Raises: UsageError when it is not there and no number is given, or it has another number.
    """
    admin = KafkaAdminClient(request_timeout_ms=_REQUEST_MS, **options)
    try:
        if wanted is not None and to.topic not in admin.list_topics():
            try:
                admin.create_topics({to.topic: {"num_partitions": wanted}}, wait_for_metadata=True)
            except TopicAlreadyExistsError:  # another producer was quicker
                pass
        if to.topic not in admin.list_topics():
            msg = f"--to {to}: no such topic; give --partitions N to make it"
            raise UsageError(msg)
        found = len(admin.describe_topics([to.topic])[0]["partitions"])
    finally:
        admin.close()
    if wanted not in (None, found):
        msg = f"--partitions {wanted}: the topic {to.topic} has {found}; leave the option out, or take another topic"
        raise UsageError(msg)
    return found


def producer_to(to: KafkaAddress, properties: ClientProperties) -> Producer:
    """A producer that waits for brokers that are away, and counts a message as sent when all replicas have it.

    Raises: UsageError for properties that librdkafka does not take.
    """
    # Idempotent: retries neither change the order nor write anything twice.
    options = {
        **properties.librdkafka(),
        "bootstrap.servers": to.bootstrap,
        "acks": "all",
        "enable.idempotence": True,
        "delivery.timeout.ms": _DELIVERY_MS,
        "reconnect.backoff.max.ms": 1000,
        "message.max.bytes": _MESSAGE_BYTES_MAX,
        "queue.buffering.max.kbytes": 2 * _MESSAGE_BYTES_MAX >> 10,  # the largest message must find room
        "batch.size": 256 << 10,
        "linger.ms": 5,
        "partitioner": "murmur2_random",  # where a message names no partition: as Kafka's own producers
        "log_level": 0,  # what matters comes as an exception
    }
    try:
        return Producer(options)
    except KafkaException as error:
        msg = f"kafka: {error.args[0].str()}"
        raise UsageError(msg) from None


def _batch(given: int | None, message_format: MessageFormat) -> int:
    return given or (1000 if message_format == "arrow" else 1)


def _send_all(outbox: Outbox, events: list[str], router: Router, packer: Packer, rate: float | None) -> None:
    sent, began = 0, time.monotonic()
    with ProgressDisplay("produce") as progress:
        for piece in _pieces(events, rate):
            try:
                outbox.send(packer.add(router.route(piece)))
                if rate:
                    outbox.send(packer.rest())  # a slow stream does not wait for full messages
            except NoArrowError as error:
                reason = f"--format arrow: after {sent:,} events: {error}"
                raise UsageError(reason) from None
            sent += len(piece)
            seconds = time.monotonic() - began
            progress.update(f"events {sent:,}  events/s {sent / max(seconds, 1e-9):,.0f}")
            if rate:
                outbox.wait(sent / rate - seconds)
        outbox.send(packer.rest())


def _pieces(events: list[str], rate: float | None) -> Iterator[list[bytes]]:
    """The lines in order: a chunk at a time, or with a rate as many as belong to a twentieth of a second."""
    reader = ChunkReader(every_column=True)
    step = max(1, int(rate / _PIECES_PER_S)) if rate else None
    for chunk in plan_chunks(events):
        lines = read_lines(chunk, reader)
        yield from (lines[k : k + step] for k in range(0, len(lines), step)) if step else [lines]


def explained(error: KafkaException | KafkaError, to: KafkaAddress) -> str:
    """Describe the error in a line that says what to do."""
    if isinstance(error, KafkaException):
        cause = error.args[0]
        if cause.code() == cause.MSG_SIZE_TOO_LARGE:
            return f"{to}: the broker refuses a message as too large (its message.max.bytes); give a lower --batch"
        text = f"{cause.name()}: {one_line(cause.str())}"
    else:
        text = one_line(error)
    return f"{to}: {text}; what the broker acknowledged before that is in the topic"


def _summary(partitions: Mapping[int, Written], seconds: float) -> dict[str, Any]:
    events = sum(written.events for written in partitions.values())
    return {
        "events": events,
        "messages": sum(written.messages for written in partitions.values()),
        "seconds": round(seconds, 3),
        "events_per_s": round(events / seconds, 1),
        "partitions": {
            str(partition): {"events": w.events, "messages": w.messages, "next_offset": w.next_offset}
            for partition, w in partitions.items()
        },
    }
