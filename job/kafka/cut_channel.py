"""The topic of a job's cut log, for the operator that writes it: a transaction for each record.

The transactional id is the job's, so the brokers let only the newest attempt commit, on whatever machine it runs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from freshet.job.errors import one_line
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties, connection
from freshet.job.references import references
from freshet.operators.epochs.cut_segments import FencedError

PARTITION = 0  # the only one
WAIT_S = 120.0  # for brokers that are silent: as long as Kafka's clients try to deliver a record
_POLL_MS = 200
_RETRY_MS = 5  # a transaction that follows another at once is put off; the client's default is 100 ms
_FENCED = "ProducerFenced", "InvalidProducerEpoch"


def transactional_id(job: str) -> str:
    """The id by which the brokers know who may write a job's cut log."""
    return f"freshet-cuts-{job}"


class CarriedProperties(ClientProperties):
    """Properties that come with their secrets, as the job graph takes them to another machine."""

    def __init__(self, properties: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        super().__init__(properties)
        self._secrets = dict(secrets)

    def given_by(self, environ: Mapping[str, str] | None) -> dict[str, str]:
        """Return them resolved; the environment is that of the process that started the job."""
        return super().given_by(self._secrets if environ is None else environ)


def secrets_of(properties: ClientProperties) -> dict[str, str]:
    """Return the variables of the environment that properties name.

    Raises: UsageError naming one that is not set.
    """
    properties.resolve()
    return {name: os.environ[name] for value in properties.values() for name in references(value)}


def open_channel(topic: str, properties: Mapping[str, str], secrets: Mapping[str, str], job: str) -> KafkaChannel:
    """The channel of a job's cut log, given the topic as an option names it, and how to reach its brokers."""
    return KafkaChannel(KafkaAddress.parse(topic), CarriedProperties(properties, secrets), transactional_id(job))


class KafkaChannel:
    """A topic with one partition; see CutChannel. `transactional_id`: whose right to write it is; None: only read."""

    def __init__(
        self, address: KafkaAddress, properties: ClientProperties, transactional_id: str | None = None
    ) -> None:
        from kafka import KafkaConsumer, TopicPartition

        self.name = str(address)
        self._topic, self._id = address.topic, transactional_id
        self._options = connection(address, properties)
        if transactional_id is not None:  # an operator waits for brokers that are away, as Flink's own source does
            self._options["bootstrap_timeout_ms"] = int(1e3 * WAIT_S / 2)
        self._partition = TopicPartition(address.topic, PARTITION)
        self.producer: Any = None
        with self._told_by_name():
            self._consumer = KafkaConsumer(
                **self._options,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
                fetch_max_wait_ms=_POLL_MS,
            )
            self._consumer.assign([self._partition])

    def fence(self) -> None:
        """Take the right to write; what others have written and not committed is undone."""
        from kafka import KafkaProducer

        with self._told_by_name():
            self.producer = KafkaProducer(
                **self._options,
                transactional_id=self._id,
                transaction_timeout_ms=int(1e3 * WAIT_S),
                delivery_timeout_ms=int(1e3 * WAIT_S),
                allow_auto_create_topics=False,
                retry_backoff_ms=_RETRY_MS,
                linger_ms=0,
            )
            self.producer.init_transactions()

    def write(self, record: bytes) -> int:
        """Commit a record; returns its offset."""
        producer = self.producer
        with self._told_by_name():
            producer.begin_transaction()
            written = producer.send(self._topic, record, partition=PARTITION).get(timeout=WAIT_S)
            self._in_time(producer.commit_transaction)
            return int(written.offset)

    def bounds(self) -> tuple[int, int]:
        """Return the first offset, and the one after the last committed record."""
        one, consumer = self._partition, self._consumer
        with self._told_by_name():
            return consumer.beginning_offsets([one])[one], consumer.end_offsets([one])[one]

    def read(self, offset: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The committed records from one offset to another."""
        heard_s = time.monotonic()
        while offset < end:
            with self._told_by_name():
                if self._consumer.position(self._partition) != offset:
                    self._consumer.seek(self._partition, offset)
                found = [one for records in self._consumer.poll(_POLL_MS).values() for one in records]
                following = self._consumer.position(self._partition)
            if following != offset:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > WAIT_S:
                msg = f"{self.name}: the brokers have records up to offset {end:,}, and sent none after {offset:,}"
                raise OSError(msg)
            offset = following
            for one in found:
                if one.offset < end:
                    yield one.offset, one.value

    def close(self) -> None:
        """Let go of all connections."""
        if self.producer is not None:
            with suppress(Exception):  # a transaction that is open is undone by the next attempt
                self.producer.close(timeout=1)
        with suppress(Exception):
            self._consumer.close(autocommit=False)

    def _in_time(self, call: Callable[[], None]) -> None:
        """Call what may wait for ever; a task that does so would have Flink end its process."""
        failed: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run, name="freshet-cut", daemon=True)
        thread.start()
        thread.join(WAIT_S)
        if thread.is_alive():
            msg = f"{self.name}: the brokers did not commit a cut within {WAIT_S:.0f} s"
            raise OSError(msg)
        if failed:
            raise failed[0]

    def _told_by_name(self) -> _ToldByName:
        return _ToldByName(self.name)


class _ToldByName:
    """Has errors of the client name the topic, and say where another attempt has the right to write."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        """Raise FencedError or OSError in place of an error of Kafka's client."""
        from kafka.errors import KafkaError

        if not isinstance(error, KafkaError):
            return
        text = f"{type(error).__name__} {one_line(error)}"
        if any(name in text for name in _FENCED):
            msg = f"another attempt of the job has taken over {self._name}; this one ends"
            raise FencedError(msg) from error
        msg = f"the cut log {self._name}: {text}"
        raise OSError(msg) from error
