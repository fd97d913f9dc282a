"""Epochs by event time in real jobs: a year by day, kills in both runtimes, partitions of a topic and their readers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka import KafkaProducer

import freshet
from freshet.gnn.model import load_model, save_model
from freshet.job.dev.broker import Broker
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Features
from tests.support.graphs.models import IN_WIDTH, make_model
from tests.support.graphs.plain_graph import apply, embeddings
from tests.support.graphs.streams import Record, random_records
from tests.support.kafka.topics import make_topic
from tests.support.runs.jobs import SUMS, Input, Job, TopicInput

pytestmark = pytest.mark.slow

EVENTS, DAY_MS, BEGIN_MS, PARTITIONS = 6_000, 86_400_000, 1_672_531_200_000, 4
BY_DAY = ("--epoch-event-time", "1d", "--epoch-events", 100_000, "--epoch-ms", 0, "--parts", 2)
SLOW = {"slow": {"parser": 300}, "chunk": 100, "lull": 30}


def timed(records: list[Record]) -> list[Record]:
    """The records over 400 days: some hours have many, some days none; a tenth is late, a tenth has no time."""
    rng, now = random.Random(5), float(BEGIN_MS)
    for record in records:
        now += rng.expovariate(EVENTS / 400) * DAY_MS
        ts = int(now) - (rng.randrange(10 * DAY_MS) if rng.random() < 0.1 else 0)
        if rng.random() < 0.9:
            record["ts"] = ts
    return records


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Input:
    folder = tmp_path_factory.mktemp("year")
    save_model(make_model(1, SUMS), folder / "model")
    records = timed(random_records(random.Random(3), EVENTS, IN_WIDTH, vertices=200))
    (folder / "events.jsonl").write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return Input(folder / "model", folder / "events.jsonl", EVENTS)


def records_of(given: Input) -> list[Record]:
    return [orjson.loads(line) for line in given.events.read_bytes().splitlines()]


def largest_so_far(records: Sequence[Record]) -> list[float]:
    """The time of a sequence of events after each of them."""
    found, largest = list[float](), float("-inf")
    for record in records:
        largest = max(largest, record.get("ts", largest))
        found.append(largest)
    return found


def expected_ends(records: Sequence[Record]) -> list[int]:
    """The numbers of events after each of which an epoch ends."""
    times = largest_so_far(records)
    steps = [
        k for k in range(1, len(times)) if times[k - 1] > float("-inf") and times[k] // DAY_MS > times[k - 1] // DAY_MS
    ]
    return [*steps, len(times)]


def epochs_of(out: Path) -> dict[int, list[tuple[int, int, int]]]:
    """By epoch: partition, next offset and events of each; a file counts as the last partition."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for path in sorted((out / "epochs").glob("[!._]*.parquet")):
        for row in pq.read_table(path).to_pylist():
            if row["source"]:
                partition = row["partition"] if "kafka" in row["source"] else PARTITIONS - 1
                found.setdefault(row["epoch"], []).append((partition, row["next_offset"], row["events"]))
    return {epoch: sorted(rows) for epoch, rows in sorted(found.items())}


def ends_of(out: Path) -> list[int]:
    return np.cumsum([sum(events for _, _, events in rows) for rows in epochs_of(out).values()]).tolist()


def assert_as_of(job: Job, records: Sequence[Record], ends: Sequence[int]) -> None:
    """At 1,000 random times the embeddings are those of a full pass over the graph of the epochs up to then."""
    rng = np.random.default_rng(1)
    begin, end = BEGIN_MS + DAY_MS, int(largest_so_far(records)[-1])
    times = np.sort(rng.integers(begin, end, 1_000))
    ids = rng.integers(0, 200, 1_000) * 7 - 5
    found = freshet.as_of(job.out, pa.table({"id": ids, "ts": times})).to_pylist()
    model, graph, taken, known, seen = load_model(job.given.model), ReferenceGraph(Features(IN_WIDTH)), 0, None, 0
    so_far = largest_so_far(records)
    for row in found:
        upto = max((end for end in ends if so_far[end - 1] <= row["ts"]), default=0)
        if known is None or upto > taken:
            for record in records[taken:upto]:
                apply(graph, record)
            taken, known = upto, embeddings(graph, model)
        at = np.flatnonzero(known[0] == row["id"])
        assert (row["embedding"] is not None) == bool(len(at))
        if len(at):
            seen += 1
            error = np.abs(np.array(row["embedding"]) - known[1].rows[at[0]])
            assert (error <= 1e-5 * np.maximum(known[1].scale[at[0]], 1)).all()
    assert seen > 500


def test_a_year_by_day_is_as_fine_as_a_day(year: Input, tmp_path: Path) -> None:
    job, records = Job(year, tmp_path / "O"), records_of(year)
    job.done("--runtime", "local", *BY_DAY)
    ends = expected_ends(records)
    assert ends_of(job.out) == ends
    assert len(ends) >= 365
    assert_as_of(job, records, ends)
    assert job.check("--every", 40)["epochs_checked"] >= 9
    whole, half = job.exported(tmp_path / "S"), tmp_path / "half.jsonl"
    assert whole.code == 0, whole.errors
    lines = year.events.read_bytes().splitlines(keepends=True)
    half.write_bytes(b"".join(lines[3_000:]))
    second = Job(Input(year.model, half, 3_000, tmp_path / "S"), tmp_path / "O2")
    second.done("--runtime", "local", *BY_DAY, "--ignore-positions")
    assert ends_of(second.out) == expected_ends(records[3_000:]), "event time of a new job begins with its events"
    second.check("--every", 100)


@pytest.mark.parametrize("runtime", ["local", "flink"])
def test_kills_do_not_move_a_cut(year: Input, runtime: str, tmp_path: Path, jobs: list[Job]) -> None:
    job = Job(year, tmp_path / "O")
    jobs.append(job)
    options = ("--runtime", runtime, *(("--checkpoint-interval", "500ms") if runtime == "flink" else ()))
    job.start(*options, *BY_DAY, faults=SLOW)
    job.until_epoch(40)
    job.kill()
    job.done("--resume", "latest")
    assert ends_of(job.out) == expected_ends(records_of(year))
    job.check("--every", 100)


def test_a_job_whose_events_have_no_ts_says_so(year: Input, tmp_path: Path) -> None:
    lines = [{key: value for key, value in one.items() if key != "ts"} for one in records_of(year)[:50]]
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in lines))
    ended = Job(Input(year.model, path, 50), tmp_path / "O").run("--runtime", "local", *BY_DAY)
    assert (ended.code, ended.result["epochs"]) == (0, 1)
    said = "warning: --epoch-event-time: none of the 50 events had a ts, so no epoch ended by it"
    assert said in ended.errors
    assert said not in Job(year, tmp_path / "O2").run("--runtime", "local", *BY_DAY).errors


def partitions_of(records: Sequence[Record]) -> list[list[Record]]:
    """The records of each partition: hours of one hardly overlap those of another."""
    rng = random.Random(9)
    found: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    for record in records:
        found[rng.choice([0, 0, 0, 1, 1, 2, 3])].append(record)
    return found


def send(broker: Broker, topic: str, partitions: Sequence[Sequence[Record]]) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.address, **broker.client_properties().kafka_python())
    sent = [
        producer.send(topic, orjson.dumps(record), partition=partition)
        for partition, records in enumerate(partitions)
        for record in records
    ]
    producer.close()
    assert all(one.succeeded() for one in sent)


def ends_by_partition(partitions: Sequence[Sequence[Record]]) -> list[list[int]]:
    """Number of events of each partition before each end of an epoch: those of its days up to then."""
    times = [largest_so_far(records) for records in partitions]
    days = sorted({time // DAY_MS for one in times for time in one if time > float("-inf")})
    return [[sum(time < (day + 1) * DAY_MS for time in one) for one in times] for day in days]


def reached(out: Path) -> list[list[int]]:
    """The same as a job recorded it, which reads each partition without a gap."""
    found, now = list[list[int]](), [0] * PARTITIONS
    for rows in epochs_of(out).values():
        for partition, next_offset, events in rows:
            now[partition] += events
            assert next_offset == now[partition]
        found.append(list(now))
    return found


@pytest.mark.long
def test_four_readers_and_one_after_a_kill_cut_by_the_days_of_all_partitions(
    broker: Broker, year: Input, tmp_path: Path, jobs: list[Job]
) -> None:
    partitions = partitions_of(records_of(year))
    expected = ends_by_partition(partitions)
    assert len(expected) >= 365
    topic = f"kafka://{broker.address}/days"
    make_topic(broker, "days", PARTITIONS)
    job = Job(TopicInput(year.model, year.events, 0, topic=topic), tmp_path / "O")
    jobs.append(job)
    send(broker, "days", partitions)
    options = ("--until", "latest", "--readers", 4, "--checkpoint-interval", "500ms")
    job.start(*BY_DAY, *options, faults={"slow": {"parser-0": 500}, "chunk": 50})
    job.until_epoch(100)
    job.kill()
    done = job.done("--resume", "latest", "--until", "latest", "--readers", 1)
    assert done["events"] == EVENTS
    assert reached(job.out) == expected
    job.check("--every", 100)


class FileAndTopic(TopicInput):
    """A topic, and a file beside it."""

    @property
    def options(self) -> list[str]:
        return [*super().options, "--events", str(self.events)]


@pytest.mark.long
def test_a_file_beside_a_topic_waits_for_its_days_and_is_waited_for(
    broker: Broker, year: Input, tmp_path: Path, jobs: list[Job]
) -> None:
    """The file, which has no partition of the topic, counts as one more."""
    partitions = partitions_of(records_of(year)[:2_000])
    make_topic(broker, "beside", PARTITIONS - 1)
    send(broker, "beside", partitions[:-1])
    path = tmp_path / "last.jsonl"
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in partitions[-1]))
    given = FileAndTopic(year.model, path, 0, topic=f"kafka://{broker.address}/beside")
    job = Job(given, tmp_path / "O")
    jobs.append(job)
    assert job.done(*BY_DAY, "--until", "latest", "--readers", 2)["events"] == 2_000
    assert reached(job.out) == ends_by_partition(partitions)
    job.check("--every", 100)


def test_an_idle_partition_is_passed_over(broker: Broker, year: Input, tmp_path: Path, jobs: list[Job]) -> None:
    """Partition 3 has nothing at all; the job does not end, so its days are not known to be over."""
    partitions = [*partitions_of(records_of(year)[:1_000])[:3], []]
    topic = f"kafka://{broker.address}/idle"
    make_topic(broker, "idle", PARTITIONS)
    send(broker, "idle", partitions)
    job = Job(TopicInput(year.model, year.events, 0, topic=topic), tmp_path / "O")
    jobs.append(job)
    job.start(*BY_DAY, "--idle", "5s")
    expected = ends_by_partition(partitions)
    job.until_epoch(len(expected) - 1)
    job.stop()
    assert reached(job.out) == expected[:-1], "nothing ends the last day"
