"""Follows a topic of generations: which topic is the current one."""

from __future__ import annotations

from confluent_kafka import KafkaException

from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties, admin_client
from freshet.job.kafka.make_topics import policy_that_deletes
from freshet.job.service.current_topic import CurrentTopic
from freshet.job.serving.feeds.topic_reader import OffsetsGoneError, TopicReader

_REASONS_MAX = 20  # that are said, of records that no service has written


class TopicPointer:
    """The newest generation in a topic of generations; for one thread.

    Invariant: it is that of the record with the greatest generation, in whatever order records come.
    """

    def __init__(self, address: KafkaAddress, properties: ClientProperties) -> None:
        self.address, self._properties = address, properties
        self.refused = 0  # records that say nothing
        self._reader: TopicReader | None = None
        self._newest: CurrentTopic | None = None
        self._is_read = self._is_checked = False  # all that was there at the start; the topic's settings
        self._reasons = set[str]()

    def current(self, wait_s: float = 0.0) -> CurrentTopic | None:
        """Return the newest generation of all that is there now; None before all was read, and of an empty topic.

        Raises: UsageError where there is no such topic; JobFailed when no broker answers.
        """
        try:
            if self._reader is None:
                self._reader = TopicReader(self.address, self._properties, {})
                self._check()
            for record in self._reader.read(wait_s):
                self._take(record.key, record.value)
            self._is_read = self._is_read or self._reader.caught_up
        except OffsetsGoneError as error:
            say(f"--kafka: {error}; all of it is read again")
            self.close()
        except (KafkaException, JobFailed, UsageError) as error:
            self.close()
            if isinstance(error, KafkaException):
                msg = f"{self.address}: {one_line(error)}"
                raise JobFailed(msg) from error
            raise
        return self._newest if self._is_read else None

    def close(self) -> None:
        """Let the brokers go; the next call reads all again."""
        reader, self._reader = self._reader, None
        self._newest, self._is_read = None, False
        if reader is not None:
            reader.close()

    def _check(self) -> None:
        """Say, once, where the topic does not keep its last record."""
        if not self._is_checked:
            with admin_client(self.address, self._properties) as admin:
                policy = policy_that_deletes(admin, self.address.topic)
            self._is_checked = True
            if policy is not None:
                say(
                    f"--kafka {self.address}: the topic has {policy}: which generation is the current one is deleted "
                    "after a while; set cleanup.policy=compact",
                    "warning",
                )

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        try:
            found = CurrentTopic.decode(key, value, self.address)
        except ValueError as error:
            self.refused += 1
            if len(self._reasons) < _REASONS_MAX and str(error) not in self._reasons:
                self._reasons.add(str(error))
                say(f"--kafka {self.address}: a record was left out: {error}")
            return
        if self._newest is None or found.generation > self._newest.generation:
            self._newest = found
