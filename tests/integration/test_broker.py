"""A real Kafka broker: what is produced is there, in order, once; through kills; behind a login and TLS."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kafka import KafkaAdminClient

from freshet.job.dev.broker import Broker, start_broker
from freshet.job.errors import JobFailed, UsageError
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.produce import produce
from freshet.job.machine.artifacts import ArtifactError, broker_jars
from freshet.job.machine.ports import is_free, server_port
from freshet.job.machine.processes import Process
from tests.support.kafka.topics import broker_folder, count_messages, read_topic
from tests.support.runs.elsewhere import other_flink
from tests.support.runs.scripts import run_script

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    """The broker's jars come over the network once; without it there is nothing to test."""
    try:
        broker_jars()
    except ArtifactError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, _jars: None) -> Iterator[Broker]:
    with broker_folder(tmp_path_factory.mktemp("broker")) as data, start_broker(data) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with broker_folder(tmp_path) as data:
        yield data


def edges(path: Path, count: int) -> Path:
    """Edges and deletions between 50 vertices; `n` numbers them."""
    lines = [
        {"op": "add_edge" if n % 3 else "del_edge", "src": n * 7 % 50, "dst": n * 13 % 50, "n": n} for n in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def address(broker: Broker, topic: str) -> KafkaAddress:
    return KafkaAddress.parse(f"kafka://{broker.address}/{topic}")


def numbers(broker: Broker, topic: str) -> dict[int, list[int]]:
    return {
        partition: [json.loads(line)["n"] for record in records for line in record.value.split(b"\n")]
        for partition, records in read_topic(broker, topic).items()
    }


def assert_whole(got: dict[int, list[int]], count: int) -> None:
    assert sorted(n for part in got.values() for n in part) == list(range(count)), "each event once"
    assert all(part == sorted(part) for part in got.values()), "in order"


@pytest.mark.parametrize("key", ["dst", "src"])
def test_events_spread_over_partitions_by_vertex(broker: Broker, tmp_path: Path, key: str) -> None:
    path, topic = edges(tmp_path / "e.jsonl", 2000), f"by-{key}"
    summary = produce(events=[str(path)], to=address(broker, topic), key=key, batch=1, partitions=4)  # type: ignore[arg-type]
    records = read_topic(broker, topic)
    assert_whole(numbers(broker, topic), 2000)
    place: dict[int, int] = {}
    for partition, got in records.items():
        assert summary["partitions"][str(partition)] == {
            "events": len(got),
            "messages": len(got),
            "next_offset": len(got),
        }
        for record in got:
            vertex = json.loads(record.value)[key]
            assert record.key == b"%d" % vertex
            assert place.setdefault(vertex, partition) == partition
    assert len(set(place.values())) == 4
    assert (summary["events"], summary["messages"]) == (2000, 2000)


def test_many_lines_in_a_message_and_all_to_one_partition(broker: Broker, tmp_path: Path) -> None:
    path = edges(tmp_path / "e.jsonl", 1001)
    path.write_bytes(b"\xffnot an event \x00\n" + path.read_bytes())
    summary = produce(events=[str(path)], to=address(broker, "one"), key="one", batch=100, partitions=2)
    got = read_topic(broker, "one")
    assert b"\n".join(record.value for record in got[0]) == path.read_bytes().rstrip(b"\n"), "byte for byte"
    assert got[1] == []
    assert (summary["events"], summary["messages"]) == (1002, 11)


def test_the_pace_is_kept(broker: Broker, tmp_path: Path) -> None:
    path = edges(tmp_path / "e.jsonl", 600)
    summary = produce(events=[str(path)], to=address(broker, "paced"), rate=400, batch=1000, partitions=1)
    assert 1.4 <= summary["seconds"] < 60
    assert summary["messages"] > 10, "a slow stream does not wait for full messages"


def test_topics_that_are_not_as_asked_for(broker: Broker, tmp_path: Path) -> None:
    path = [str(edges(tmp_path / "e.jsonl", 1))]
    with pytest.raises(UsageError, match="no such topic; give --partitions"):
        produce(events=path, to=address(broker, "missing"))
    produce(events=path, to=address(broker, "small"), partitions=1)
    produce(events=path, to=address(broker, "small"))
    with pytest.raises(UsageError, match="--partitions 2: the topic small has 1"):
        produce(events=path, to=address(broker, "small"), partitions=2)


def test_a_message_that_is_too_large_is_an_error(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "huge.jsonl"
    path.write_bytes(b"x" * (17 << 20))
    with pytest.raises(JobFailed, match="too large"):
        produce(events=[str(path)], to=address(broker, "huge"), partitions=1)


def test_no_broker_is_an_error(tmp_path: Path) -> None:
    to = KafkaAddress.parse(f"kafka://127.0.0.1:{server_port()}/t")
    with pytest.raises(UsageError, match=r"--to .*: no broker is there \(Connection refused\); check host and port"):
        produce(events=[str(edges(tmp_path / "e.jsonl", 1))], to=to)


def has_messages(broker: Broker, topic: str, count: int) -> bool:
    """Return whether a topic is there, with all its partitions, and has that many messages or more."""
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        is_there = topic in admin.list_topics()
    finally:
        admin.close()
    return is_there and count_messages(broker, topic) >= count


def test_a_kill_loses_nothing_and_doubles_nothing(folder: Path, tmp_path: Path) -> None:
    path = edges(tmp_path / "e.jsonl", 40_000)
    broker = start_broker(folder)
    try:
        to, results = address(broker, "t"), []
        options = {"events": [str(path)], "to": to, "batch": 10, "rate": 2500, "partitions": 4}
        producer = threading.Thread(target=lambda: results.append(produce(**options)))  # type: ignore[arg-type]
        producer.start()
        while not has_messages(broker, "t", 100):
            assert producer.is_alive(), results
        broker.kill()
        assert not broker.is_alive()
        assert producer.is_alive(), "killed on the way"
        port, broker = broker.port, start_broker(folder)
        assert broker.port == port
        producer.join(300)
        assert results, "the producer did not come to an end"
        assert_whole(numbers(broker, "t"), 40_000)
    finally:
        broker.stop()
    assert is_free(port)


def test_behind_a_login_and_tls(folder: Path, tmp_path: Path) -> None:
    path = edges(tmp_path / "e.jsonl", 300)
    with start_broker(folder, sasl=True, tls=True, password="s3cret") as broker:
        topic = address(broker, "t")
        command = [sys.executable, "-m", "freshet.job.cli", "produce", "--events", str(path), "--to", str(topic)]
        command += ["--partitions", "2", "--config"]
        config = yaml.safe_load(broker.client_file.read_text())
        config["kafka"]["sasl.jaas.config"] = config["kafka"]["sasl.jaas.config"].replace("s3cret", "${PASSWORD}")
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(config))

        def run(password: str) -> subprocess.CompletedProcess[str]:
            environ = os.environ | {"PASSWORD": password}
            given = [*command, str(tmp_path / "job.yaml")]
            return subprocess.run(
                given, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
            )

        done = run("s3cret")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["events"] == 300
        assert_whole(numbers(broker, "t"), 300)
        refused = run("wr0ng")
        assert refused.returncode == 2
        assert "wr0ng" not in refused.stdout + refused.stderr
        assert "check the port, and login and TLS" in refused.stderr.splitlines()[-1]
        assert (broker.data / "server.properties").stat().st_mode & 0o077 == 0, "passwords are the user's alone"


def test_the_script_starts_and_stops_a_broker(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    try:
        started = run_script("kafka", "start", state=state, **other_flink(tmp_path / "other"))
        assert started.returncode == 0, started.stderr
        host, port = started.stdout.splitlines()[-1].split(":")
        assert host == "127.0.0.1"
        path = edges(tmp_path / "e.jsonl", 10)
        produce(events=[str(path)], to=KafkaAddress.parse(f"kafka://{host}:{port}/t"), partitions=1)
        note = json.loads((state / "freshet" / "kafka" / f"{port}.json").read_text())
        killed = Process(note["pid"], note["began_s"])
        killed.send(signal.SIGKILL)
        assert killed.await_end(60)
        again = run_script("kafka", "start", "--port", port, state=state)
        assert again.stdout.splitlines()[-1] == f"{host}:{port}", again.stderr
        assert summary_of(int(port), path) == 20, "the topic outlived the kill"
    finally:
        stopped = run_script("kafka", "stop", state=state)
    assert f"stopped {host}:{port}" in stopped.stderr
    assert not any(path.is_file() for path in state.rglob("*")), "nothing is left"
    assert is_free(int(port))


def summary_of(port: int, path: Path) -> int:
    """Where the topic stands when the file has been produced once more."""
    again = produce(events=[str(path)], to=KafkaAddress.parse(f"kafka://127.0.0.1:{port}/t"))
    return int(again["partitions"]["0"]["next_offset"])
