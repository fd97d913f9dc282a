"""`freshet swap` of jobs that run: on Flink from a topic, embedded and on a cluster; nothing of the old one changes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from freshet import EmbeddingClient
from freshet.gnn.model import save_model
from freshet.job.dev.broker import Broker
from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.folder.run_file import read_run
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.produce import produce
from freshet.job.lifecycle.job_state import state_of
from freshet.job.lifecycle.summary import progress
from freshet.job.service.generations import GENERATION, Service
from freshet.job.serving.feeds.topic_records import Kind, Record
from freshet.job.serving.promotion import JobOfService
from freshet.job.swap.record import STEPS
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.kafka.topics import read_topic
from tests.support.runs.jobs import DEADLINE_S, FRESHET, ROOT, Job, Log, TopicInput, make_input, read_log
from tests.support.serving.server import Server
from tests.support.serving.topic_jobs import put_rows

pytestmark = pytest.mark.slow

EVENTS = 4_000


def freshet(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(FRESHET), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@contextmanager
def nothing_left(service: Service) -> Iterator[None]:
    """Jobs that a swap has begun go on without it; here they end with the test."""
    try:
        yield
    finally:
        for out in (service.folder / "jobs").glob("*"):
            pid = read_run(out).get("pids", {}).get("client")
            if pid is not None and psutil.pid_exists(pid):
                os.killpg(pid, signal.SIGKILL)


def halves(given: Path, folder: Path) -> list[str]:
    lines = given.read_bytes().splitlines(keepends=True)
    found = [folder / "first.jsonl", folder / "second.jsonl"]
    found[0].write_bytes(b"".join(lines[: len(lines) // 2]))
    found[1].write_bytes(b"".join(lines[len(lines) // 2 :]))
    return [*map(str, found)]


@dataclass(frozen=True)
class Live:
    """A service of a job that reads a topic, in which half of the events are, and another model."""

    service: Service
    job: Job
    topic: KafkaAddress
    second: str
    model: Path

    @staticmethod
    def of(folder: Path, broker: Broker, name: str) -> Live:
        given = make_input(folder / "input", EVENTS)
        first, second = halves(given.events, folder)
        topic = KafkaAddress.parse(f"kafka://{broker.address}/{name}")
        produce(events=[first], to=topic, partitions=3)
        save_model(make_model(2, [conv("gat_conv", IN_WIDTH, 6)]), folder / "M2")
        on_topic = TopicInput(given.model, given.events, EVENTS, topic=str(topic))
        return Live(Service(folder / "V"), Job(on_topic, folder / "O"), topic, second, folder / "M2")

    def serve(self) -> None:
        """Make the service once the job has read what is there."""
        deadline = time.monotonic() + DEADLINE_S
        while progress(self.job.out)["events"] < EVENTS // 2:
            assert time.monotonic() < deadline, self.job.log()
            time.sleep(0.1)
        done = freshet("promote", self.service.folder, self.job.out, "--wait", "300s")
        assert done.returncode == 0, done.stderr

    def line(self, *more: object) -> list[object]:
        return ["swap", self.service.folder, "--model", self.model, "--keep", "1s", *more]

    def swapped(self, *more: object) -> dict[str, Any]:
        """Swap while the other half of the events comes; what it says."""
        options = ["--events", self.second, "--to", str(self.topic), "--rate", "100"]
        coming = subprocess.Popen([str(FRESHET), "produce", *options], cwd=ROOT, stdout=subprocess.PIPE)
        done = freshet(*self.line(*more))
        said, _ = coming.communicate(timeout=DEADLINE_S)
        assert done.returncode == 0, done.stderr
        result = dict(orjson.loads(done.stdout.splitlines()[-1]))
        assert set(result["seconds"]) == set(STEPS)
        ends = {int(partition): one["next_offset"] for partition, one in orjson.loads(said)["partitions"].items()}
        return {**result, "ends": ends}

    def check_new(self, result: dict[str, Any]) -> None:
        """See that the new job reads all, and is right; it is stopped for that."""
        out, deadline = Path(result["out"]), time.monotonic() + DEADLINE_S
        while {one: at for (_, one), at in JobOfService.read(out).positions().items()} != result["ends"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        (work,) = (self.service.folder / "swaps").iterdir()
        new = Job(replace(self.job.given, model=self.model, snapshot=work / "embedded"), out)
        assert new.stop().code == 0
        new.check()


@pytest.mark.long
def test_a_job_on_a_cluster_is_exchanged_by_a_detached_one(tmp_path: Path, broker: Broker, jobs: list[Job]) -> None:
    live = Live.of(tmp_path, broker, "swapped-on-a-cluster")
    jobs.append(live.job)
    with LocalCluster(tmp_path / "cluster", 2) as cluster:
        cluster.await_ready()
        live.job.done("--parts", 2, "--epoch-events", 50, "--cluster", cluster.rest, "--detach")
        live.serve()
        result = live.swapped()
        run = read_run(Path(result["out"]))
        assert (run["cluster"], state_of(Path(result["out"])).process) == (cluster.rest, None)
        assert state_of(live.job.out).state == "stopped"
        live.check_new(result)


def test_readers_of_its_topic_change_over_to_that_of_the_new_job(
    tmp_path: Path, broker: Broker, jobs: list[Job], servers: list[Server]
) -> None:
    """The topic that it would take first has records of another job, as of a swap that was refused."""
    live = Live.of(tmp_path, broker, "swapped-with-a-topic")
    jobs.append(live.job)
    put_rows(broker, "out-g1", "another", "0" * 64, [(7, 1, [1.0])])
    live.job.start("--parts", 2, "--epoch-events", 50, "--embeddings-to", f"kafka://{broker.address}/out")
    live.serve()
    servers.append(server := Server(tmp_path / "T" / "out"))
    server.tables.mkdir(parents=True)
    pointer = KafkaAddress(broker.address, "out-generations")
    with nothing_left(live.service):
        place = server.start("--kafka", str(pointer))
        with EmbeddingClient(place["flight"], timeout=60) as client:
            assert client.all().schema.metadata[b"generation"] == b"0"
            result = live.swapped()
            deadline = time.monotonic() + DEADLINE_S
            while (found := client.all()).schema.metadata[b"generation"] != b"1":
                assert time.monotonic() < deadline, server.log()
                time.sleep(0.1)
            assert found.schema.metadata[b"model"].decode() == live.service.generations()[1].model
            assert live.job.wait().code == 0
            assert state_of(live.job.out).state == "stopped"
            live.check_new(result)
            expected = last_rows(read_log(Path(result["out"])))
            while (now := rows_of(client)) != expected:
                assert time.monotonic() < deadline, len(now.keys() ^ expected.keys())
                time.sleep(0.1)
    values = {topic: models_in(broker, topic) for topic in ("out", "out-g1", "out-g1-2")}
    tags = [one.model[:12] for one in live.service.generations()]
    assert values == {"out": {tags[0]}, "out-g1": {"0" * 12}, "out-g1-2": {tags[1]}}
    (first, second) = [orjson.loads(one.value) for each in read_topic(broker, pointer.topic).values() for one in each]
    assert (first["topic"], second["topic"], second["generation"]) == ("out", "out-g1-2", 1)


def rows_of(client: EmbeddingClient) -> dict[int, tuple[int, bytes]]:
    """All rows that a server has, by id: the epoch as the job counts it, and the bits."""
    ids, epochs, rows = client.rows(client.all()["id"].to_pylist())
    return {i: (e % GENERATION, row.tobytes()) for i, e, row in zip(ids.tolist(), epochs.tolist(), rows, strict=True)}


def last_rows(log: Log) -> dict[int, tuple[int, bytes]]:
    last = {int(log.id[k]): k for k in range(len(log.id))}
    return {i: (int(log.epoch[k]), log.vector[k].tobytes()) for i, k in last.items() if not log.deleted[k]}


def models_in(broker: Broker, topic: str) -> set[str]:
    """The first digits of the models that records of a topic are of."""
    found = [one for each in read_topic(broker, topic).values() for one in each]
    assert found
    kinds = [Kind.of(Record(one.key, one.value, one.headers)) for one in found]
    return {one.model for one in kinds if one is not None}
