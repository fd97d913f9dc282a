"""Whose records a topic of embeddings has: a second job is refused, and one that started at the same moment is seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import TopicAuthorizationFailedError

from freshet.job.errors import JobFailed, UsageError
from freshet.job.kafka import topic_owner
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_owner import OwnerWatch, TopicLook, claimed, look, read_seen, write_seen
from freshet.job.kafka.topic_specs import Seen, TopicOutput
from freshet.operators.record_blocks import TopicMark

NONE = ClientProperties()
TOPIC = TopicOutput(bootstrap="h:1", topic="t")
OURS, THEIRS = TopicMark("a" * 16, has_all=True), TopicMark("b" * 16, has_all=True)
UUID = "2fc60b40-8f84-42ec-ac51-1e0c8d29c40e"


class Log:
    """A topic, as far as clients of kafka-python ask for it: records by partition; None ends a transaction."""

    def __init__(self, *partitions: list[Any]) -> None:
        self.partitions, self.first, self.id = [list(one) for one in partitions], 0, UUID
        self._at: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    def describe_topics(self, _: list[str]) -> list[dict[str, Any]]:
        return [{"partitions": [{"partition_index": k} for k in range(len(self.partitions))], "topic_id": self.id}]

    def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, self.first)

    def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: len(self.partitions[place.partition]) for place in places}

    def assign(self, places: list[TopicPartition]) -> None:
        self._at = dict.fromkeys(places, 0)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._at[place] = offset

    def pause(self, *places: TopicPartition) -> None:
        self._paused |= set(places)

    def resume(self, *places: TopicPartition) -> None:
        self._paused -= set(places)

    def position(self, place: TopicPartition) -> int:
        return self._at[place]

    def poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        assert timeout_ms and max_records > 3
        found = {}
        for place, at in self._at.items():
            if place in self._paused:
                continue
            taken = self.partitions[place.partition][at : at + 3]
            self._at[place] = at + len(taken)
            records = [SimpleNamespace(offset=at + k, headers=one) for k, one in enumerate(taken) if one is not None]
            if records:
                found[place] = records
        return found


def of(mark: TopicMark) -> list[tuple[str, bytes]]:
    return [("epoch", b"7"), ("job", mark.encode())]


PLAIN: list[tuple[str, bytes]] = []  # of an earlier version, or a tombstone


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    found = Log([], [])

    @contextmanager
    def client(*_: Any, **_options: Any) -> Iterator[Log]:
        yield found

    monkeypatch.setattr(topic_owner, "admin_client", client)
    monkeypatch.setattr(topic_owner, "consumer_of", client)
    return found


def claim(former: Seen | None = None, mark: TopicMark = OURS, *, goes_on: bool = False, take: bool = False) -> Seen:
    topic, seen = claimed(TOPIC, mark, former, NONE, goes_on=goes_on, take=take)
    assert topic.mark == mark._replace(has_all=seen["has_all"]).encode().decode()
    return seen


def test_a_second_job_is_refused_unless_it_takes_the_topic(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    empty = claim()
    assert empty["ends"] == {0: 0, 1: 0}
    log.partitions[1] = [of(OURS), None, PLAIN, None]
    assert claim(empty) == empty | {"ends": {0: 0, 1: 4}}, "a resume finds its own records"
    with pytest.raises(UsageError, match=f"kafka://h:1/t: .*the job {OURS.job}, .* job {THEIRS.job}: .* --take-topic"):
        claim(mark=THEIRS)
    taken = claim(mark=THEIRS, take=True)
    assert "--take-topic: t has records of" in capsys.readouterr().err
    assert claim(taken, THEIRS) == taken, "what was there when it took the topic does not matter any more"
    log.partitions[0] = [of(THEIRS)]
    claim(taken, THEIRS)
    with pytest.raises(UsageError, match=f"the job {THEIRS.job}, and this is the job {OURS.job}"):
        claim(empty)


def test_records_that_name_no_job(log: Log) -> None:
    log.partitions[0] = [PLAIN, PLAIN]
    assert claim(goes_on=True)["ends"] == {0: 2, 1: 0}, "its own, of an earlier version"
    with pytest.raises(UsageError, match="has records that name no job"):
        claim()
    log.partitions[0] = [PLAIN, of(OURS)]
    claim()  # it began, and was killed before it recorded what it had seen
    log.partitions[0] = [None, None]
    claim()


@pytest.mark.parametrize("former", [None, {"topic_id": UUID, "ends": {0: 4}, "has_all": False}])
def test_a_user_who_may_write_and_not_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], former: Seen | None
) -> None:
    def refused(*_: Any) -> TopicLook:
        raise JobFailed("kafka://h:1/t: not allowed") from cause

    monkeypatch.setattr(topic_owner, "look", refused)
    cause: Exception = TopicAuthorizationFailedError("t")
    assert claim(former) == (former or {"topic_id": None, "ends": {}, "has_all": True})
    assert "t: not allowed; whether another job writes there is not known" in capsys.readouterr().err
    cause = TimeoutError()
    with pytest.raises(JobFailed):
        claim(former)


def test_many_ends_of_transactions_behind_the_last_record(log: Log) -> None:
    log.partitions[0] = [of(OURS), of(THEIRS), *[None] * 300]
    with pytest.raises(UsageError, match=f"the job {THEIRS.job}"):
        claim()


def test_a_topic_that_was_recreated_has_not_all_rows(log: Log) -> None:
    former = claim()
    log.id = UUID.replace("2", "3")
    assert claim(former)["has_all"] is False
    log.partitions[0] = [of(THEIRS)]
    with pytest.raises(UsageError, match=f"the job {THEIRS.job}"):
        claim(former | {"ends": {0: 5}})


def test_what_was_seen_is_read_back(tmp_path: Path) -> None:
    seen: dict[str, Seen] = {"t": {"topic_id": None, "ends": {0: 3, 11: 0}, "has_all": False}}
    path = tmp_path / "seen.json"
    assert read_seen(path) is None
    write_seen(path, seen)
    assert read_seen(path) == seen


def test_two_that_start_at_once_are_told(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    seen = {"t": claim()}
    log.partitions[0] = [of(OURS), *[of(THEIRS)] * 200]
    answers: list[TopicLook | JobFailed] = [
        JobFailed("no broker"),
        look(TOPIC.address, NONE),
        look(TOPIC.address, NONE),
    ]

    def asked(*_: Any) -> TopicLook:
        found = answers.pop(0)
        if isinstance(found, JobFailed):
            raise found
        return found

    for mark, other in ((OURS, THEIRS), (THEIRS, OURS)):
        topic = TOPIC.model_copy(update={"mark": mark.encode().decode()})
        with OwnerWatch([topic], seen, NONE, asked if mark == OURS else look) as watch:
            watch.look()
            watch.look()
        said = capsys.readouterr().err
        assert said.count(f"the job {other.job} writes there, too") == 1


@pytest.mark.parametrize("mark", [OURS, TopicMark("x_-9", has_all=False, kind="Käufer (zwei)\n")])
def test_a_mark_is_read_back(mark: TopicMark) -> None:
    assert TopicMark.of([("epoch", b"1"), ("job", mark.encode())]) == mark


@pytest.mark.parametrize("headers", [None, (), [("job", b"x")], [("job", None)], [("job", b"a all ")]])
def test_what_is_no_mark(headers: Any) -> None:
    assert TopicMark.of(headers) is None
