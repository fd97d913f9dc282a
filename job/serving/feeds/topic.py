"""A job's output topic, and the description of the job in its records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.brokers import await_brokers
from freshet.job.kafka.client import ClientProperties, admin_client
from freshet.job.kafka.make_topics import policy_that_deletes
from freshet.job.serving.feeds.checked import is_kind
from freshet.job.serving.feeds.fed_job import RETRY_S, FedJob
from freshet.job.serving.feeds.topic_reader import POLL_S, OffsetsGoneError, TopicReader
from freshet.job.serving.feeds.topic_records import Kind
from freshet.job.serving.protocol.wanted import ROW
from freshet.operators.record_blocks import TopicMark


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
                fields = self._fields(lambda: until() or time.monotonic() > deadline)
                if fields is not None:
                    if fields["lacks"]:
                        say(f"--kafka {self.address}: {fields['lacks']}", "warning")
                    return FedJob.write(fields, tables)
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

    def described(self, model: str, timeout_s: float) -> dict[str, Any]:
        """Return what the first row of a model, by its SHA-256, says of the topic.

        Raises: UsageError where there is none, or no such topic (NoTopicError); JobFailed without brokers.
        """
        deadline = time.monotonic() + timeout_s
        try:
            found = self._fields(lambda: time.monotonic() > deadline, model[:12])
        except (KafkaException, OffsetsGoneError) as error:
            msg = f"{self.address}: {one_line(error)}"
            raise JobFailed(msg) from error
        if found is None:
            msg = f"{self.address}: there is no embedding of the model {model[:12]} in it yet"
            raise UsageError(msg)
        return found

    def _fields(self, until: Callable[[], bool], model: str = "") -> dict[str, Any] | None:
        """Return what the first row says, of a model if one is given; None where `until` ends the search.

        With a model that ends at the topic's end, too.
        """
        reader = self.read({})
        try:
            while not until() and not (model and reader.caught_up):
                for record in reader.read(POLL_S):
                    kind = Kind.of(record)
                    if kind is not None and model in ("", kind.model):
                        mark = TopicMark.of(record.headers)
                        fields: dict[str, Any] = {"strings": kind.strings, "width": kind.width, "model": kind.model}
                        fields |= {"kind_name": mark.kind if mark is not None and is_kind(mark.kind) else ""}
                        fields |= {"lacks": "; ".join(self._lacks(mark))}
                        return fields | {"job_id": reader.id, "sources": [str(self.address)], "consistency": ROW}
        finally:
            reader.close()
        return None

    def _lacks(self, mark: TopicMark | None) -> Iterator[str]:
        """Yield why the topic can't have the rows of all vertices, as far as records and brokers say."""
        if mark is not None and not mark.has_all:
            yield (
                "the topic has only changes: vertices that have not changed since the job began to write there are not "
                "served (start a job with `embeddings-from-start: true` in --config on a new topic)"
            )
        with admin_client(self.address, self.properties) as admin:
            if (policy := policy_that_deletes(admin, self.address.topic)) is not None:
                yield f"the topic has {policy}: rows that do not change vanish in time; set cleanup.policy=compact"
