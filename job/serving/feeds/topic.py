"""A job's output topic, and the description of the job in its records."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.brokers import await_brokers
from freshet.job.kafka.client import ClientProperties
from freshet.job.serving.feeds.fed_job import RETRY_S, FedJob
from freshet.job.serving.feeds.topic_reader import POLL_S, OffsetsGoneError, TopicReader
from freshet.job.serving.feeds.topic_records import Kind
from freshet.job.serving.protocol.wanted import ROW


@dataclass(frozen=True)
class Topic:
    """A job's output topic."""

    address: KafkaAddress
    properties: ClientProperties

    def job(self, tables: Path, until: Callable[[], bool], timeout_s: float) -> FedJob:
        """Return the job described by the topic's first row; while no broker answers, the recorded one.

        Raises: UsageError if neither is found in time, and at once if there is no broker.
        """
        if FedJob.recorded(tables) is None:
            await_brokers([("--kafka", self.address)], self.properties)
        deadline, reason = time.monotonic() + timeout_s, ""
        while True:
            try:
                told = self._told(lambda: until() or time.monotonic() > deadline)
                if told is not None:
                    return FedJob.write(told, tables)
                reason = "there is no embedding in it yet"
            except (JobFailed, KafkaException, OffsetsGoneError) as error:
                reason = one_line(error)
                found = FedJob.recorded(tables)
                if found is not None:
                    return found
            if until() or time.monotonic() > deadline:
                msg = f"--kafka {self.address}: {reason} (after {timeout_s:g} s, see --wait)"
                raise UsageError(msg)
            time.sleep(RETRY_S)

    def read(self, offsets: dict[int, int], id_: str = "") -> TopicReader:
        """Reads from these offsets on, of the topic with this id; where there are none, from the beginning."""
        return TopicReader(self.address, self.properties, offsets, id_)

    def _told(self, until: Callable[[], bool]) -> dict[str, object] | None:
        reader = self.read({})
        try:
            while not until():
                for record in reader.read(POLL_S):
                    kind = Kind.of(record)
                    if kind is not None:
                        told = {"strings": kind.strings, "width": kind.width, "model": kind.model}
                        return told | {"job_id": reader.id, "sources": [str(self.address)], "consistency": ROW}
        finally:
            reader.close()
        return None
