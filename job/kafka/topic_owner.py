"""The job that writes a topic of embeddings: its records say so in a header, and a second job is refused.

Each job counts its epochs from 0, so that older rows of one would hide newer rows of another. Nobody can hold a topic,
so a job looks at the first and the last records that it does not know, before it writes, and again while it runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka.errors import AuthorizationError

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties, admin_client, consumer_of
from freshet.job.kafka.read_topics import topic_id_of
from freshet.job.kafka.topic_specs import Seen, TopicOutput
from freshet.operators.record_blocks import TopicMark

# Records of transactions that were not committed count, too: somebody wrote them.
_READS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "isolation_level": "read_uncommitted",
    "max_partition_fetch_bytes": 64 << 10,
}
_POLL_MS = 500
_SILENT_S = 30.0  # how long a broker may have records for us and send none
_LAST = 64  # offsets at the end of a partition; more where they only end transactions
_FIRST_LOOK_S, _LOOK_S = 10.0, 60.0


class TopicLook(NamedTuple):
    """A topic as it is: its id, where its partitions end, and the marks of some records; None: one without."""

    topic_id: str | None
    ends: dict[int, int]
    marks: set[TopicMark | None]

    def others(self, job: str) -> list[str]:
        """Return the ids of other jobs."""
        return sorted({mark.job for mark in self.marks if mark is not None and mark.job != job})


def read_seen(path: Path) -> dict[str, Seen] | None:
    """Return what a job has seen of its topics, by name; None where an earlier version has run it, or nobody has."""
    try:
        return read_json(path, dict[str, Seen], "remove it: the topics are looked at again")
    except DamagedFileError as error:
        say(str(error))
        return None


def write_seen(path: Path, seen: Mapping[str, Seen]) -> None:
    """Record it, before the job writes."""
    by_name = {name: {**one, "ends": {str(p): end for p, end in one["ends"].items()}} for name, one in seen.items()}
    write_json(path, by_name)


def claimed(
    topic: TopicOutput, mark: TopicMark, former: Seen | None, properties: ClientProperties, *, goes_on: bool, take: bool
) -> tuple[TopicOutput, Seen]:
    """Return a topic with the mark of the job, which may write there, and what is to be recorded of it.

    `former` is what the job has recorded; `goes_on`: it wrote there before it recorded such things. `take`: whoever has
    written there.

    Where the job may not read the topic, a line says so.
    Raises: UsageError where another job, or nobody knows who, has written there; JobFailed without brokers.
    """
    seen: Seen
    try:
        found = look(topic.address, properties, former)
    except JobFailed as error:
        if not isinstance(error.__cause__, AuthorizationError):  # a user who may write need not be one who may read
            raise
        say(f"--embeddings-to {error}; whether another job writes there is not known", "warning")
        seen = former or {"topic_id": None, "ends": {}, "has_all": mark.has_all}
        mark = mark._replace(has_all=seen["has_all"])
        return topic.model_copy(update={"mark": mark.encode().decode()}), seen
    is_same = former is not None and former["topic_id"] == found.topic_id
    others = found.others(mark.job)
    if not take and (others or (found.marks and not is_same and not goes_on and mark.job not in _jobs(found.marks))):
        whose = f"has records of the job {others[0]}" if others else "has records that name no job"
        msg = (
            f"--embeddings-to {topic.address}: the topic {whose}, and this is the job {mark.job}: each counts its "
            "epochs from 0, so that older rows would hide newer ones; give another topic, or --take-topic to write "
            "there all the same"
        )
        raise UsageError(msg)
    if take and (others or (found.marks and not is_same and not goes_on)):
        say(
            f"--take-topic: {topic.topic} has records of {others[0] if others else 'an unknown job'}: those with a "
            "later epoch hide the rows of this job from readers that go by epochs"
        )
    if former is not None:  # what another topic of that name had is gone
        mark = mark._replace(has_all=former["has_all"] and is_same)
    seen = {"topic_id": found.topic_id, "ends": found.ends, "has_all": mark.has_all}
    return topic.model_copy(update={"mark": mark.encode().decode()}), seen


def _jobs(marks: set[TopicMark | None]) -> set[str]:
    return {mark.job for mark in marks if mark is not None}


def look(address: KafkaAddress, properties: ClientProperties, former: Seen | None = None) -> TopicLook:
    """Look at the first and the last records of each partition, of those behind the ends in `former`.

    Raises: JobFailed when the brokers can't be reached.
    """
    with admin_client(address, properties) as admin:
        described = admin.describe_topics([address.topic])[0]
    topic_id = topic_id_of(described.get("topic_id"))
    places = [TopicPartition(address.topic, one["partition_index"]) for one in described["partitions"]]
    known = former["ends"] if former is not None and former["topic_id"] == topic_id else {}
    with consumer_of(address, properties, **_READS) as consumer:
        first, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
        begin = {one: max(first[one], known.get(one.partition, 0)) for one in places}
        begin = {one: offset for one, offset in begin.items() if offset < ends[one]}
        marks = {TopicMark.of(record.headers) for record in _records(consumer, begin, ends, all_of_them=False)}
        marks |= {mark for one, offset in begin.items() for mark in _last_marks(consumer, one, offset, ends[one])}
    if len(marks) > 1 and None in marks:  # tombstones have none
        marks = marks - {None}
    return TopicLook(topic_id, {one.partition: end for one, end in ends.items()}, marks)


def _last_marks(consumer: Any, place: TopicPartition, begin: int, end: int) -> set[TopicMark | None]:
    """Return the marks of the last records of a partition."""
    count = _LAST
    while True:
        start = max(begin, end - count)
        records = _records(consumer, {place: start}, {place: end}, all_of_them=True)
        if records or start == begin:
            return {TopicMark.of(record.headers) for record in records}
        count *= 16


def _records(
    consumer: Any, begin: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, all_of_them: bool
) -> list[Any]:
    """Return the records of partitions from an offset on: all of them, or at least one of each that has one."""
    consumer.assign(list(begin))
    consumer.resume(*begin)  # one that was paused before stays so
    for place, offset in begin.items():
        consumer.seek(place, offset)
    found: list[Any] = []
    left, heard_s = set(begin), time.monotonic()
    while left:
        polled = consumer.poll(timeout_ms=_POLL_MS, max_records=500)
        found += [one for place, records in polled.items() for one in records if one.offset < ends[place]]
        seen = set() if all_of_them else set(polled)
        done = {place for place in left if place in seen or consumer.position(place) >= ends[place]}
        if done:
            consumer.pause(*done)
        left -= done
        if polled or done:
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > _SILENT_S:
            msg = f"{next(iter(left)).topic}: no record for {_SILENT_S:.0f} s before its end"
            raise JobFailed(msg)
    return found


class OwnerWatch:
    """Says when another job writes to a topic of a running job: two that start at once see nothing of each other.

    A context manager; it looks on a thread now and then, and at the end.
    """

    def __init__(
        self,
        topics: Sequence[TopicOutput],
        seen: Mapping[str, Seen],
        properties: ClientProperties,
        look: Callable[[KafkaAddress, ClientProperties, Seen], TopicLook] = look,
    ) -> None:
        """`seen` is what the job knew of them when it began."""
        self._topics = [one for one in topics if one.mark and one.topic in seen]
        self._seen, self._properties, self._look_at, self._said = seen, properties, look, set[str]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="freshet-owner", daemon=True)

    def __enter__(self) -> OwnerWatch:
        if self._topics:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.look()

    def look(self) -> None:
        """Look once; what brokers do not answer is asked the next time."""
        for topic in self._topics:
            own = TopicMark.decode(topic.mark.encode())
            try:
                found = self._look_at(topic.address, self._properties, self._seen[topic.topic])
            except (JobFailed, UsageError):  # the job itself tells when brokers are away for too long
                continue
            for other in found.others("" if own is None else own.job):
                if f"{topic.topic} {other}" not in self._said:
                    self._said.add(f"{topic.topic} {other}")
                    say(
                        f"--embeddings-to {topic.address}: the job {other} writes there, too: its rows hide newer ones "
                        "of this job; stop one of the two, and give it another topic",
                        "warning",
                    )

    def _run(self) -> None:
        wait_s = _FIRST_LOOK_S
        while not self._stop.wait(wait_s):
            self.look()
            wait_s = _LOOK_S
