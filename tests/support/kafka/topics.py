"""What a test does with a broker beside starting it: reading a topic back."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import TopicAlreadyExistsError

from freshet.job.dev.broker import Broker
from freshet.job.machine.artifacts import ArtifactError, broker_jars, connector_jars

logging.getLogger("kafka").setLevel(logging.CRITICAL)

_MEMORY = Path("/dev/shm")
_MEMORY_BYTES = 2 << 30
_NEWS_S = 300.0


@contextmanager
def broker_folder(fallback: Path) -> Iterator[Path]:
    """A folder for a broker's data, in memory where there is enough of it.

    A broker waits for the disk (fsync) as it starts; a disk that is busy with the rest of the tests has been seen to
    take minutes for it.
    """
    in_memory = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES
    with tempfile.TemporaryDirectory(prefix="freshet-broker-", dir=_MEMORY if in_memory else fallback) as folder:
        yield Path(folder)


@contextmanager
def standing(broker: Broker) -> Iterator[None]:
    """A broker that does nothing meanwhile."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def require_jars() -> None:
    """Skip without the jars of broker and connector: they come over the network once."""
    try:
        broker_jars()
        connector_jars()
    except ArtifactError as error:
        pytest.skip(str(error))


def make_topic(broker: Broker, topic: str, partitions: int) -> None:
    """A topic, where it is not there yet."""
    admin = KafkaAdminClient(bootstrap_servers=broker.address, **broker.client_properties().kafka_python())
    try:
        if topic not in admin.list_topics():
            with suppress(TopicAlreadyExistsError):  # a busy broker answers late, and is asked again
                admin.create_topics({topic: {"num_partitions": partitions}}, wait_for_metadata=True)
        deadline = time.monotonic() + _NEWS_S
        while topic not in admin.list_topics():
            assert time.monotonic() < deadline, f"{topic}: made, and still not listed"
            time.sleep(0.02)
    finally:
        admin.close()


def add_partitions(broker: Broker, topic: str, partitions: int) -> None:
    """Let a topic have that many, more than before."""
    admin = KafkaAdminClient(bootstrap_servers=broker.address, **broker.client_properties().kafka_python())
    try:
        admin.create_partitions({topic: partitions})
        deadline = time.monotonic() + _NEWS_S  # the broker hears of it after the controller
        while len(admin.describe_topics([topic])[0]["partitions"]) < partitions:
            assert time.monotonic() < deadline, f"{topic}: still without its new partitions"
            time.sleep(0.02)
    finally:
        admin.close()


def count_messages(broker: Broker, topic: str) -> int:
    """Return how many messages a topic has had."""
    consumer = KafkaConsumer(bootstrap_servers=broker.address, **broker.client_properties().kafka_python())
    try:
        places = [TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic) or ()]
        return sum(consumer.end_offsets(places).values())
    finally:
        consumer.close()


def _ends_of_committed(broker: Broker, consumer: KafkaConsumer, places: list[TopicPartition]) -> dict[Any, int]:
    """Where partitions end for a consumer of what is committed, once it is shown all that had been written.

    A producer hears of a commit before the broker notes it in the partitions.
    """
    with closing(KafkaConsumer(bootstrap_servers=broker.address, **broker.client_properties().kafka_python())) as other:
        written = other.end_offsets(places)
    deadline = time.monotonic() + _NEWS_S
    while True:
        ends: dict[Any, int] = consumer.end_offsets(places)
        if time.monotonic() > deadline or all(ends[place] >= written[place] for place in places):
            return ends  # at the deadline without the transactions that nobody has ended
        time.sleep(0.05)


def read_topic(broker: Broker, topic: str, **options: Any) -> dict[int, list[Any]]:
    """All records of a topic as they stand now, by partition, in order; those of aborted transactions, too."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.address,
        enable_auto_commit=False,
        **broker.client_properties().kafka_python(),
        **options,
    )
    try:
        places = [TopicPartition(topic, partition) for partition in sorted(consumer.partitions_for_topic(topic) or ())]
        assert places, f"no topic {topic}"
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        if options.get("isolation_level") == "read_committed":
            ends = _ends_of_committed(broker, consumer, places)
        records: dict[int, list[Any]] = {place.partition: [] for place in places}
        while any(consumer.position(place) < ends[place] for place in places):
            for place, got in consumer.poll(timeout_ms=1000).items():
                records[place.partition] += got
        return records
    finally:
        consumer.close()
