"""Which topic offsets are of: what is recorded, what a resume, a snapshot and a second reading refuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndTimestamp

from freshet.job.errors import UsageError
from freshet.job.kafka import read_topics
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.read_topics import out_of_range, plan_topic, read_partition, resumed_topic
from freshet.job.kafka.topic_specs import TopicIdentity, TopicInput, from_recorded, parse_start

OUT, NONE = Path("O"), ClientProperties()
ADDRESS = KafkaAddress("new:1", "t")
UUID, ID = "2fc60b40-8f84-42ec-ac51-1e0c8d29c40e", "L8YLQI-EQuysUR4MjSnEDg"  # the same, as Kafka's tools write it
HAD = TopicIdentity(ID, "one")


class Brokers:
    """A topic of two partitions, as far as clients of kafka-python ask for it."""

    def __init__(self) -> None:
        self.topic_id: str | None = UUID
        self.cluster = "one"
        self.ends = {0: 7, 1: 0}
        self.first: dict[int, int] = {}

    def list_topics(self) -> list[str]:
        return ["t"]

    def describe_topics(self, _: list[str]) -> list[dict[str, Any]]:
        ids = {} if self.topic_id is None else {"topic_id": self.topic_id}
        return [{"partitions": [{"partition_index": one} for one in self.ends], **ids}]

    def describe_cluster(self) -> dict[str, Any]:
        return {"cluster_id": self.cluster}

    def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.first.get(place.partition, 0) for place in places}

    def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.ends[place.partition] for place in places}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers()

    @contextmanager
    def client(*_: Any, **__: Any) -> Iterator[Brokers]:
        yield found

    monkeypatch.setattr(read_topics, "admin_client", client)
    monkeypatch.setattr(read_topics, "_consumer", client)
    return found


def had(end: dict[int, int] | None, **ids: str | None) -> TopicInput:
    ids = {**HAD._asdict(), **ids}
    return TopicInput(source=0, bootstrap="old:1", topic="t", start={0: 0, 1: 0}, end=end, **ids)


def resumed(topic: TopicInput, ended: bool = False, is_read: bool = False) -> TopicInput:
    found = resumed_topic(topic, ADDRESS, NONE, OUT, ended, is_read)
    assert found.bootstrap == "new:1"
    return found


def test_a_job_notes_which_topic_its_offsets_are_of(brokers: Brokers) -> None:
    assert plan_topic(0, ADDRESS, "earliest", True, NONE) == had({0: 7, 1: 0}).at(ADDRESS)
    for none in (None, "00000000-0000-0000-0000-000000000000"):  # of brokers before 2.8
        brokers.topic_id = none
        assert plan_topic(0, ADDRESS, "earliest", False, NONE).identity == TopicIdentity(None, "one")


@pytest.mark.parametrize("other", ["topic", "cluster"])
def test_another_topic_of_that_name_is_refused(brokers: Brokers, other: str) -> None:
    topic = had(None)
    if other == "topic":
        brokers.topic_id, why = UUID.replace("2", "3"), rf"was deleted and recreated .*expected {ID}\)"
    else:
        brokers.cluster, why = "two", r"the brokers are another cluster \(got two, expected one\)"
    with pytest.raises(UsageError, match=rf"^--events kafka://new:1/t: .*{why}.* --out; .*freshet export --out S O"):
        resumed(topic)
    with pytest.raises(UsageError, match=rf"{why}.*`ignore-positions: true` in --config"):
        plan_topic(0, ADDRESS, "earliest", False, NONE, {0: 3}, HAD)
    with pytest.raises(UsageError, match=rf"{why}, so the messages that the run read are gone"):
        next(read_partition(topic, 0, NONE))


def test_what_nobody_noted_is_not_compared(brokers: Brokers) -> None:
    brokers.topic_id = None
    assert resumed(had(None)).identity == TopicIdentity(None, "one")
    assert plan_topic(0, ADDRESS, "earliest", False, NONE, {0: 3}, TopicIdentity()).start == {0: 3, 1: 0}


def test_a_bounded_topic_ends_where_it_ends_at_the_resume(brokers: Brokers) -> None:
    brokers.ends = {0: 9, 1: 0, 2: 4}
    assert resumed(had({0: 7, 1: 0})).end == {0: 9, 1: 0, 2: 4}, "a partition that came later is read, too"
    assert resumed(had({0: 7, 1: 0}), ended=True).end == {0: 7, 1: 0}, "a state may have it as ended"
    assert resumed(had(None)).end is None
    brokers.ends[0] = 6
    with pytest.raises(UsageError, match=r"partition 0 ends at offset 6, .* was to read up to 7: messages are gone"):
        resumed(had({0: 7, 1: 0}))


def test_what_retention_took_since_a_job_ended_is_missed(brokers: Brokers) -> None:
    brokers.ends, brokers.first = {0: 12, 1: 0}, {0: 7}
    assert resumed(had({0: 7, 1: 0}), is_read=True).end == {0: 12, 1: 0}
    brokers.first[0] = 9
    with pytest.raises(UsageError, match=r"partition 0 now begins at offset 9, and the job in O goes on at 7: .* gone"):
        resumed(had({0: 7, 1: 0}), is_read=True)
    brokers.ends[0] = 9
    with pytest.raises(UsageError, match=r"begins at offset 9"):
        resumed(had({0: 7, 1: 0}), is_read=True)
    brokers.ends[0] = 7
    assert resumed(had({0: 7, 1: 0}), is_read=True).end == {0: 7, 1: 0}, "all that is gone was read"


def test_a_job_of_a_version_without_ids_goes_on(brokers: Brokers) -> None:
    told = {"source": 0, "bootstrap": "old:1", "topic": "t", "start": {"0": 0}}
    (unbounded,) = from_recorded([told])
    assert unbounded.identity == TopicIdentity()
    assert resumed(unbounded).identity == HAD, "from now on they are compared"
    (bounded,) = from_recorded([told | {"end": {"0": 3}}])
    again = resumed(bounded)
    assert (again.end, again.identity) == ({0: 3}, TopicIdentity()), "its state does not have what was read to its end"


def test_ids_in_a_snapshot(tmp_path: Path) -> None:
    from freshet.job.results.coverage import Coverage
    from freshet.job.run.positions import known_topics, read_positions
    from freshet.job.run.source_kinds import TopicSource
    from freshet.job.run.sources import Sources

    source = TopicSource(had({0: 7, 1: 0}), "kafka://old:1/t", NONE)
    positions = Coverage(tmp_path, Sources((), (source,))).positions(finished=True)
    written = [one.to_dict() for one in positions]
    assert written[0] == {
        "source": "kafka://old:1/t",
        "partition": 0,
        "next_offset": 7,
        "topic_id": ID,
        "cluster_id": "one",
    }
    assert known_topics(read_positions({"positions": written}, tmp_path)) == {"t": HAD}
    without = [{"source": "kafka://old:1/t", "next_offset": 7}, {"source": "a.jsonl", "next_offset": 1}]
    assert known_topics(read_positions({"positions": without}, tmp_path)) == {"t": TopicIdentity()}


def test_messages_with_a_codec_are_read() -> None:
    """All of Kafka's: kafka-python has none of its own but gzip."""
    from kafka import codec

    for name in ("gzip", "snappy", "lz4", "zstd"):
        encode, decode = getattr(codec, f"{name}_encode"), getattr(codec, f"{name}_decode")
        assert decode(encode(b"message " * 100)) == b"message " * 100, name


T = 1_700_000_000_000


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({0: (3, T), 1: (0, T)}, None),
        ({0: (3, T), 1: None}, None),
        ({0: (0, T - 1), 1: (0, T + 5)}, None),
        ({0: (0, T + 9), 1: (0, T + 5)}, f"it is before the first record, {T + 5} (2023-11-14), so all are read"),
        ({0: (0, T + 9), 1: None}, None),
        ({0: None, 1: None}, "it is later than every record, so none that is there is read"),
    ],
)
def test_a_start_time_out_of_the_topics_range_is_said(found: dict[int, Any], why: str | None) -> None:
    places = {number: TopicPartition("t", number) for number in (0, 1, 2)}  # of which the last is empty
    records = {places[one]: None if at is None else OffsetAndTimestamp(*at, -1) for one, at in found.items()}
    first, end = dict.fromkeys(places.values(), 0), {places[0]: 7, places[1]: 4, places[2]: 0}
    assert out_of_range(T, records, first, end) == why
    assert out_of_range(T, {}, first, first) is None


@pytest.mark.parametrize(("number", "unit"), [(T // 1000, "seconds"), (T * 1000, "micros"), (T * 10**6, "nanos")])
def test_a_start_time_of_another_unit_is_refused(number: int, unit: str) -> None:
    with pytest.raises(ValueError, match=rf"in {unit}.* it is 2023-11-14: give timestamp:{T}"):
        parse_start(f"timestamp:{number}")
    assert [parse_start(f"timestamp:{one}")[1] for one in (0, 1000, T)] == [0, 1000, T]
