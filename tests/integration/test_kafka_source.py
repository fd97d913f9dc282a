"""`freshet run` on a real broker: several partitions, kills and stops, bad messages, a login."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from freshet.job.dev.broker import Broker, start_broker
from freshet.job.folder.run_file import read_run
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.produce import produce
from freshet.job.lifecycle.summary import progress
from freshet.operators.snapshot.writer import write_snapshot
from freshet.operators.telemetry.load import read_loads
from freshet.operators.telemetry.positions import read_positions
from freshet.operators.telemetry.profile import read_profiles
from scripts.cora.graph import FOLDER, load
from scripts.cora.stream import make_stream
from tests.support.graphs.streams import random_records
from tests.support.kafka.topics import add_partitions, broker_folder, make_topic, read_topic, require_jars
from tests.support.runs.jobs import Job, TopicInput, asked_of_flink, make_input

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    """The jars come over the network once; without it there is nothing to test."""
    require_jars()


def address(broker: Broker, topic: str) -> KafkaAddress:
    return KafkaAddress.parse(f"kafka://{broker.address}/{topic}")


def send(broker: Broker, topic: str, messages: Sequence[tuple[Any, ...]], partitions: int) -> None:
    """Write messages (partition, value[, key]) as they are, to a new topic or one that is there."""
    make_topic(broker, topic, partitions)
    producer = KafkaProducer(bootstrap_servers=broker.address, **broker.client_properties().kafka_python())
    sent = [
        producer.send(topic, value, key=key[0] if key else None if value else b"key", partition=partition)
        for partition, value, *key in messages
    ]
    producer.close()
    assert all(one.succeeded() for one in sent)


def positions(out: Path) -> dict[int, tuple[int, int]]:
    """By partition: the last next_offset, and all events; both only grow, and no epoch has a partition twice."""
    rows = [row for file in sorted((out / "epochs").glob("[!._]*.parquet")) for row in pq.read_table(file).to_pylist()]
    rows = sorted((row for row in rows if row["source"]), key=lambda row: row["epoch"])
    assert max(Counter((row["epoch"], row["partition"]) for row in rows).values()) == 1
    found: dict[int, tuple[int, int]] = {}
    for row in rows:
        before, events = found.get(row["partition"], (0, 0))
        assert row["next_offset"] >= before
        found[row["partition"]] = row["next_offset"], events + row["events"]
    return found


def processes_of(out: Path) -> dict[str, set[str]]:
    """By operator, the TaskManagers that it runs in."""
    found = dict[str, set[str]]()
    with asked_of_flink(out) as http:
        for vertex in http.get("").json()["vertices"]:
            subtasks = http.get(f"/vertices/{vertex['id']}").json()["subtasks"]
            for name in vertex["name"].split(" -> "):
                found[name] = {one["taskmanager-id"] for one in subtasks}
    return found


def test_cora_through_four_partitions(broker: Broker, tmp_path: Path, jobs: list[Job]) -> None:
    """The demo's stream, undirected, one event a message, on two parts (tests/drills/test_torture.py has a cluster)."""
    graph = load()
    papers, edges = np.flatnonzero(graph.known), graph.known_edges()
    write_snapshot(tmp_path / "snapshot", papers, graph.features()[papers], edges[:, 0], edges[:, 1])
    records = make_stream(graph, 6_000, 1)
    (tmp_path / "events.jsonl").write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    topic = address(broker, "cora")
    summary = produce(events=[str(tmp_path / "events.jsonl")], to=topic, partitions=4)
    assert all(one["events"] for one in summary["partitions"].values())
    given = TopicInput(FOLDER / "model", tmp_path, len(records), tmp_path / "snapshot", str(topic))
    job = Job(given, tmp_path / "out")
    jobs.append(job)
    done = job.done("--until", "latest", "--undirected", "--parts", 2, "--epoch-events", 100)
    assert (done["events"], done["rejected"]) == (len(records), 0)
    source = read_loads(job.out, running=False)["source-0"]
    assert source["messages"] == len(records)
    assert source["bytes"] == (tmp_path / "events.jsonl").stat().st_size - len(records)
    assert 0 <= source["busy_mean"] < 1
    assert positions(job.out) == {
        int(partition): (one["next_offset"], one["events"]) for partition, one in summary["partitions"].items()
    }
    job.check()
    assert job.run("--resume", "latest").last_line.endswith("has taken in all of its input")


def test_foreign_records_are_mapped_or_set_aside_with_their_place(
    broker: Broker, tmp_path: Path, jobs: list[Job]
) -> None:
    """By `events-map`; every third message is bad, and the job never restarts (test_bad_input has all ways)."""
    given = make_input(tmp_path / "input", 10)
    bad = {
        b'{"kind":"rename","user":{"id":1}}': "op: expected one of",
        b'{"kind":"add_edge","user":1,"to":2}': "src: missing",
        b'{"kind":"add_edge","user":{"id":1},"to":2.5}': "dst: expected an integer",
        b'{"kind":"add_edge","user":{"id":1},"to":2,"weight":1e300}': "weight: not finite in float32",
        b'["add_edge",1,2]': "op: missing",
    }
    edges = [one for one in random_records(random.Random(3), 300, 1, vertices=60) if one["op"].endswith("edge")]
    messages, tombstones = list[tuple[Any, ...]](), 0
    for number, edge in enumerate(edges):
        foreign = {"kind": edge["op"], "user": {"id": edge["src"]}, "to": edge["dst"], "x": "no field of the map"}
        messages.append((number % 3, orjson.dumps(foreign)))
        if number % 2 == 0:
            messages.append((number % 4 // 2, list(bad)[number // 2 % len(bad)]))
        if number % 9 == 0:  # a key without a value
            messages.append((number % 3, None, b'{"id":%d}' % edge["src"]))
            tombstones += 1
    send(broker, "bad", messages, 3)
    config = tmp_path / "job.yaml"
    op = "kind || __key && 'del_vertex'"
    config.write_text(f"events-map:\n  op: {op}\n  id: __key.id\n  src: user.id\n  dst: to\n  weight: weight\n")
    topic = str(address(broker, "bad"))
    job = Job(
        TopicInput(given.model, given.events, len(edges) + tombstones, topic=topic, config=config), tmp_path / "out"
    )
    jobs.append(job)
    done = job.done("--until", "latest", "--epoch-events", 50)
    expected = {
        (partition, record.offset): record.value
        for partition, found in read_topic(broker, "bad").items()
        for record in found
        if record.value in bad
    }
    letters = [orjson.loads(line) for line in (job.out / "dead_letters.jsonl").read_bytes().splitlines()]
    assert len(expected) == len(letters) == done["rejected"] == len(messages) - len(edges) - tombstones
    assert done["replaced"] and done["nothing_deleted"], "as check counts them"
    assert done["events"] == len(messages)
    assert {(one["partition"], one["offset"]): one["raw"].encode() for one in letters} == expected
    assert {one["source"] for one in letters} == {topic}
    assert all(bad[one["raw"].encode()] in one["error"] for one in letters)
    assert "restarted" not in job.log()
    job.check()


@pytest.mark.long
def test_partitions_are_divided_among_readers_also_new_ones(broker: Broker, tmp_path: Path, jobs: list[Job]) -> None:
    """Partitions are added while the job runs; it is killed, and goes on with another number of readers.

    These run in both of two processes, beside groups of layers that stay apart.
    """
    given = make_input(tmp_path / "input", 1600)
    lines = given.events.read_bytes().splitlines()
    job = Job(TopicInput(given.model, given.events, 0, topic=str(address(broker, "readers"))), tmp_path / "out")
    jobs.append(job)
    send(broker, "readers", [(number % 3, line) for number, line in enumerate(lines[:400])], 3)
    job.start("--readers", 3, "--epoch-events", 50, "--checkpoint-interval", "500ms", faults={"discovery": "1000"})
    job.until(lambda: progress(job.out)["events"] >= 400)
    add_partitions(broker, "readers", 5)
    send(broker, "readers", [(number % 5, line) for number, line in enumerate(lines[400:1000])], 5)
    job.until(lambda: progress(job.out)["events"] >= 1000)
    assert read_profiles(job.out)["parser-0"]["subtasks"] == 3
    job.kill()
    send(broker, "readers", [(number % 5, line) for number, line in enumerate(lines[1000:])], 5)
    job.start("--resume", "latest", "--parallelism", 2, "--readers", 2)
    job.until(lambda: progress(job.out)["events"] >= len(lines))
    processes = processes_of(job.out)
    assert len(processes["parser-0"]) == 2
    assert processes["partitioner"] != processes["sink"]
    assert job.stop().code == 0
    assert job.wait().result["events"] == len(lines)
    ends = positions(job.out)
    assert sum(events for _, events in ends.values()) == len(lines)
    assert read_positions(job.out) == {job.given.topic: {partition: end for partition, (end, _) in ends.items()}}
    job.check()


def test_a_login_is_never_written_down(tmp_path: Path, jobs: list[Job]) -> None:
    """SASL over TLS, the password from the environment; from an offset that the topic's time tells."""
    secret = "s3cret-5f1c9b"
    given = make_input(tmp_path / "input", 500)
    with broker_folder(tmp_path) as data, start_broker(data, sasl=True, tls=True, password=secret) as broker:
        properties = broker.client_properties()
        topic = address(broker, "login")
        produce(events=[str(given.events)], to=topic, partitions=2, batch=10, properties=properties)
        config = tmp_path / "job.yaml"
        text = broker.client_file.read_text().replace(secret, "${KAFKA_SECRET}")
        assert "${KAFKA_SECRET}" in text
        config.write_text(text)
        job = Job(
            TopicInput(given.model, given.events, given.count, topic=str(topic), config=config),
            tmp_path / "out",
            {"KAFKA_SECRET": secret},
        )
        jobs.append(job)
        done = job.done("--until", "latest", "--from", "timestamp:1000")
        assert done["events"] == given.count
        assert read_run(job.out)["topics"][0]["start"] == {"0": 0, "1": 0}
    written = [path for path in job.out.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert not written
    assert secret not in job.log()


def test_messages_that_are_gone_fail_the_job(broker: Broker, tmp_path: Path, jobs: list[Job]) -> None:
    """Retention took what the checkpoint points to: to go on with what is left would be a silent loss."""
    given = make_input(tmp_path / "input", 400)
    lines = given.events.read_bytes().splitlines()
    send(broker, "gone", [(0, line) for line in lines[:200]], 1)
    job = Job(TopicInput(given.model, given.events, 200, topic=str(address(broker, "gone"))), tmp_path / "out")
    jobs.append(job)
    job.start("--epoch-events", 50)
    job.until_epoch(4)
    stopped = job.stop()
    assert stopped.code == 0, stopped.errors
    send(broker, "gone", [(0, line) for line in lines[200:]], 1)
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.delete_records({TopicPartition("gone", 0): 300})
    admin.close()
    ended = job.run("--resume", "latest")
    assert ended.code == 3, ended.errors
    assert "the topic gone does not have the messages that come next, by partition and offset {gone-0=200}" in (
        ended.last_line
    )
    assert "freshet export" in ended.last_line, "what to do"
    assert "restarted" not in ended.errors, "the topic might grow until the offset is there"
