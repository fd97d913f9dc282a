"""`freshet produce`: event files to a Kafka topic, each partition in the order of the files, nothing twice."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, TopicAlreadyExistsError

from job.errors import JobFailed, UsageError, one_line
from job.kafka_address import KafkaAddress
from job.kafka_client import ClientProperties
from job.produce_messages import Message, MessageFormat, NoArrowError, Packer, RouteBy, Router, read_lines
from job.progress import Progress
from operators.event_files import ChunkReader, EventFileError, plan_chunks

# Messages that are sent and not acknowledged yet: a slow broker slows the reading, memory stays bounded.
_IN_FLIGHT_BYTES = 32 << 20
_DELIVERY_MS = 180_000  # as long as a broker may be away
_REQUEST_MS = 30_000
_CONNECT_MS = 10_000
_PIECES_PER_S = 20  # with --rate: how often the pace is kept


@dataclass(slots=True)
class Written:
    """What a partition has got."""

    events: int = 0
    messages: int = 0
    next_offset: int = 0


@dataclass(slots=True)
class Outbox:
    """Sends messages, counts what is acknowledged, and holds the caller up while too much is under way."""

    producer: KafkaProducer
    topic: str
    partitions: dict[int, Written]
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _in_flight: int = 0
    _error: BaseException | None = None

    def send(self, message: Message) -> None:
        """Hand a message over, in order.

        Raises: the error of an earlier message; what was sent after it is not waited for.
        """
        with self._changed:
            while self._in_flight > _IN_FLIGHT_BYTES and self._error is None:
                self._changed.wait(1.0)
            self._raise()
            self._in_flight += len(message.value)
        sent = self.producer.send(self.topic, message.value, key=message.key, partition=message.partition)
        sent.add_callback(self._acknowledged, message)
        sent.add_errback(self._failed)

    def flush(self) -> None:
        """Wait until all is acknowledged.

        Raises: the first error.
        """
        self.producer.flush()
        with self._changed:
            self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _acknowledged(self, message: Message, metadata: Any) -> None:
        with self._changed:
            written = self.partitions[message.partition]
            written.events += message.events
            written.messages += 1
            written.next_offset = max(written.next_offset, metadata.offset + 1)
            self._in_flight -= len(message.value)
            self._changed.notify()

    def _failed(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify()


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

    Raises: UsageError for files or a topic that are not there, JobFailed when the broker does not take a message.
    """
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what matters comes as an exception
    options = {**(properties or ClientProperties()).kafka_python(), "bootstrap_servers": to.bootstrap.split(",")}
    options["bootstrap_timeout_ms"] = _CONNECT_MS
    began = time.monotonic()
    try:
        count = topic_partitions(to, partitions, options)
        outbox = Outbox(_producer(options), to.topic, {partition: Written() for partition in range(count)})
        try:
            _send_all(outbox, events, Router(key, count), Packer(_batch(batch, message_format), message_format), rate)
            outbox.flush()
        finally:
            outbox.producer.close(timeout=5)
    except EventFileError as error:
        raise UsageError(str(error)) from None
    except KafkaError as error:
        raise JobFailed(_explain(error, to)) from error
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
            message = f"--to {to}: no such topic; give --partitions N to make it"
            raise UsageError(message)
        found = len(admin.describe_topics([to.topic])[0]["partitions"])
    finally:
        admin.close()
    if wanted not in (None, found):
        message = (
            f"--partitions {wanted}: the topic {to.topic} has {found}; leave the option out, or take another topic"
        )
        raise UsageError(message)
    return found


def load_properties(config: Path | None) -> ClientProperties:
    """Return the `kafka:` mapping of a --config file; its other keys are those of `freshet run` and not looked at.

    Raises: UsageError for a file or a property that can't be taken.
    """
    if config is None:
        return ClientProperties()
    from job.config import read_config_file

    found = read_config_file(config).get("kafka") or {}
    if not isinstance(found, Mapping):
        message = f"--config {config}: kafka: expected a mapping of client properties, got {type(found).__name__}"
        raise UsageError(message)
    return ClientProperties(found)


def _producer(options: Mapping[str, Any]) -> KafkaProducer:
    # One request at a time and idempotent: retries neither change the order nor write anything twice.
    return KafkaProducer(
        **{
            **options,
            "acks": "all",
            "enable_idempotence": True,
            "max_in_flight_requests_per_connection": 1,
            "delivery_timeout_ms": _DELIVERY_MS,
            "request_timeout_ms": _REQUEST_MS,
            "reconnect_backoff_max_ms": 1000,
            "max_request_size": 64 << 20,  # the broker decides what is too large
            "batch_size": 256 << 10,
            "linger_ms": 5,
        }
    )


def _batch(given: int | None, message_format: MessageFormat) -> int:
    return given or (1000 if message_format == "arrow" else 1)


def _send_all(outbox: Outbox, events: list[str], router: Router, packer: Packer, rate: float | None) -> None:
    sent, began = 0, time.monotonic()
    with Progress("produce") as progress:
        for piece in _pieces(events, rate):
            try:
                for line in piece:
                    for message in packer.add(router.route(line)):
                        outbox.send(message)
                if rate:
                    for message in packer.rest():  # a slow stream does not wait for full messages
                        outbox.send(message)
            except NoArrowError as error:
                reason = f"--format arrow: after {sent:,} events: {error}"
                raise UsageError(reason) from None
            sent += len(piece)
            seconds = time.monotonic() - began
            progress.update(f"events {sent:,}  events/s {sent / max(seconds, 1e-9):,.0f}")
            if rate:
                time.sleep(max(0.0, sent / rate - seconds))
        for message in packer.rest():
            outbox.send(message)


def _pieces(events: list[str], rate: float | None) -> Iterator[list[bytes]]:
    """The lines in order, a chunk at a time, or what the rate allows in a moment."""
    reader = ChunkReader(every_column=True)
    step = max(1, int(rate / _PIECES_PER_S)) if rate else None
    for chunk in plan_chunks(events):
        lines = read_lines(chunk, reader)
        yield from (lines[k : k + step] for k in range(0, len(lines), step)) if step else [lines]


def _explain(error: KafkaError, to: KafkaAddress) -> str:
    if isinstance(error, MessageSizeTooLargeError):
        return f"{to}: the broker refuses a message as too large (its message.max.bytes); give a lower --batch"
    if isinstance(error, KafkaTimeoutError) and "bootstrap" in str(error):
        # A refused login looks no different to the client: the broker closes the connection.
        reason = f"no broker answered as expected within {_CONNECT_MS // 1000} s"
        return f"{to}: {reason}; check the address, and login and TLS (`kafka:` in the --config file)"
    return f"{to}: {one_line(error)}; what the broker has acknowledged before is in the topic"


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
