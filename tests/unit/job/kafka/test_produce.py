"""What becomes of messages on their way to the broker, with a client that does as it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from freshet.job.errors import UsageError
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.produce import Outbox, Written, explained, producer_to
from freshet.job.kafka.produce_messages import ProducedMessage

Report = Callable[[Any, Any], None]


class Sent:
    def __init__(self, partition: int, offset: int | None) -> None:
        self.partition, self.offset = lambda: partition, lambda: offset


class Client:
    """Holds `room` messages, and acknowledges the oldest one at each poll."""

    def __init__(self, room: int = 3) -> None:
        self.room = room
        self.held: list[tuple[bytes, int, Report]] = []
        self.taken: list[bytes] = []
        self.errors: dict[bytes, KafkaError] = {}
        self.forgotten: set[bytes] = set()  # whose offset the broker does not say
        self.ends: dict[int, int] = {}

    def produce(self, topic: str, value: bytes, key: bytes | None, partition: int, report: Report) -> None:
        if len(self.held) == self.room:
            raise BufferError
        self.held.append((value, partition, report))

    def poll(self, timeout: float) -> int:
        if not self.held:
            return 0
        value, partition, report = self.held.pop(0)
        if value in self.errors:
            report(self.errors[value], None)
            return 1
        self.taken.append(value)
        offset = self.ends.get(partition, 10)
        self.ends[partition] = offset + 1
        report(None, Sent(partition, None if value in self.forgotten else offset))
        return 1

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return len(self.held)


def messages(count: int) -> list[ProducedMessage]:
    return [ProducedMessage(k % 2, None, b"%d" % k, 1 + k % 3) for k in range(count)]


def outbox(client: Client) -> Outbox:
    return Outbox(client, "t", {0: Written(), 1: Written()})  # type: ignore[arg-type]


def test_everything_is_acknowledged_in_order_however_little_the_client_holds() -> None:
    client = Client()
    client.forgotten = {b"9"}
    box = outbox(client)
    box.send(messages(10))
    box.flush()
    assert client.taken == [b"%d" % k for k in range(10)]
    assert sum(one.messages for one in box.partitions.values()) == 10
    assert sum(one.events for one in box.partitions.values()) == sum(one.events for one in messages(10))
    assert [one.next_offset for one in box.partitions.values()] == [15, 15], "the last of them by counting"


@pytest.mark.parametrize("bad", [b"0", b"9"])
def test_a_message_that_fails_ends_it(bad: bytes) -> None:
    client = Client()
    client.errors = {bad: KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)}
    box = outbox(client)
    with pytest.raises(KafkaException) as caught:
        box.send(messages(10))
        box.flush()
    assert bad not in client.taken
    assert "give a lower --batch" in explained(caught.value, KafkaAddress.parse("kafka://h:1/t"))


def test_a_failure_shows_while_the_pace_is_kept() -> None:
    client = Client()
    client.errors = {b"2": KafkaError(KafkaError._MSG_TIMED_OUT)}
    box = outbox(client)
    box.send(messages(3))
    with pytest.raises(KafkaException) as caught:
        box.wait(60.0)
    assert "_MSG_TIMED_OUT" in explained(caught.value, KafkaAddress.parse("kafka://h:1/t"))


def test_a_login_that_the_client_can_not_do_is_wrong_use() -> None:
    properties = ClientProperties({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"})
    with pytest.raises(UsageError, match=r"^kafka: .*GSSAPI"):
        producer_to(KafkaAddress.parse("kafka://h:1/t"), properties)
