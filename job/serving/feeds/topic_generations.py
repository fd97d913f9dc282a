"""Topics of a service's jobs, one after the other, as a topic of generations names them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from freshet.errors import FreshetError
from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.service.current_topic import CurrentTopic, base_of_pointer, belongs
from freshet.job.serving.feeds.fed_job import RETRY_S, FedJob
from freshet.job.serving.feeds.topic import Topic
from freshet.job.serving.feeds.topic_follower import is_fresh
from freshet.job.serving.feeds.topic_pointer import TopicPointer
from freshet.job.serving.feeds.topic_reader import NoTopicError
from freshet.job.serving.tables.seen import read_seen
from freshet.kind_names import topic_end

_POLL_S = 0.05
_FIND_S = 5.0  # for a record that says what a topic has


class TopicGeneration:
    """A generation whose topic is there: its job, and what is noted of that beside its table."""

    def __init__(self, current: CurrentTopic, topic: Topic, fields: dict[str, Any], tables: Path) -> None:
        self.current, self.topic, self._fields, self.tables = current, topic, fields, tables
        self.job = FedJob.of(fields, tables)

    def note(self) -> None:
        """Note it, for the next server."""
        FedJob.write(self._fields, self.tables)


class TopicGenerations:
    """The generations in a topic of generations, of one kind of vertices; for one thread."""

    def __init__(self, address: KafkaAddress, properties: ClientProperties, tables: Path, kind: str | None) -> None:
        self.pointer = TopicPointer(address, properties)
        self._properties, self._tables, self._kind = properties, tables, kind

    def begun(self, until: Callable[[], bool], wait_s: float) -> TopicGeneration:
        """Return the generation whose table a killed server left, else the current one.

        Raises: UsageError where none can be followed in time.
        """
        recorded, deadline = self._recorded(), time.monotonic() + wait_s
        if recorded is not None and is_fresh(recorded.job, self._tables):
            return recorded
        seen = read_seen(self._tables).generation
        while True:
            reason = "there is no generation in it yet; `freshet promote` writes them"
            try:
                if (current := self.newest(seen, _POLL_S)) is not None:
                    return self.found(current)
            except FreshetError as error:
                reason = one_line(error)
                if isinstance(error, JobFailed) and recorded is not None:
                    return recorded
                time.sleep(RETRY_S)
            if until() or time.monotonic() > deadline:
                msg = f"--kafka {self.pointer.address}: {reason} (after {wait_s:g} s, see --wait)"
                raise UsageError(msg)

    def newest(self, seen: int, wait_s: float = 0.0) -> CurrentTopic | None:
        """Return the newest generation; None while it is not known. `seen`: the one that readers have.

        Raises: UsageError where that is an earlier one, or there is no such topic; JobFailed without brokers.
        """
        found = self.pointer.current(wait_s)
        if found is not None and found.generation < seen:
            msg = (
                f"{self.pointer.address}: it ends with generation {found.generation}, and readers have seen "
                f"generation {seen}; for another service start a server with other --tables"
            )
            raise UsageError(msg)
        return found

    def found(self, current: CurrentTopic, former: FedJob | None = None) -> TopicGeneration:
        """Return a generation with what its topic says; `former`: the job whose place it takes.

        Raises: UsageError where the topic is not there, or has no rows of its model; JobFailed without brokers.
        """
        kind = self._kind or (former.kind_name if former is not None else "")
        base = KafkaAddress(self.pointer.address.bootstrap, current.topic)
        of_kind = [KafkaAddress(base.bootstrap, f"{base.topic}.{topic_end(kind)}")] if kind else []
        for address in (*of_kind, base):
            topic = Topic(address, self._properties)
            try:
                fields = topic.described(current.model, _FIND_S)
            except NoTopicError:
                continue
            _check(fields, kind, former, address)
            more = {"generation": current.generation, "model_sha256": current.model, "topic": address.topic}
            return TopicGeneration(current, topic, fields | more, self._tables)
        msg = f"{base}: no such topic; where the model returns several kinds of vertices, name one by --kind"
        raise UsageError(msg)

    def _recorded(self) -> TopicGeneration | None:
        """Return the generation that a server before has shown last; None where that is not known."""
        fields, pointer = FedJob.note(self._tables), self.pointer.address
        try:
            names = {"generation": "generation", "topic": "topic", "model": "model_sha256"}
            current = CurrentTopic(since_ms=0, **{name: fields[noted] for name, noted in names.items()})
            if belongs(current.topic, base_of_pointer(pointer)):
                topic = Topic(KafkaAddress(pointer.bootstrap, current.topic), self._properties)
                return TopicGeneration(current, topic, fields, self._tables)
        except (KeyError, ValueError):  # of another feed, or damaged: it is found again
            pass
        return None


def _check(fields: dict[str, Any], kind: str, former: FedJob | None, address: KafkaAddress) -> None:
    """Raises: UsageError for rows that readers could not go on with."""
    if kind and fields["kind_name"] not in ("", kind):
        msg = f"{address}: its rows are of the kind {fields['kind_name']}, expected {kind}"
        raise UsageError(msg)
    if former is not None and fields["strings"] != former.strings:
        got, expected = (("strings" if one else "integers") for one in (fields["strings"], former.strings))
        msg = f"{address}: its ids are {got}, expected {expected}"
        raise UsageError(msg)
