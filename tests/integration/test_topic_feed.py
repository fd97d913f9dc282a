"""A server that feeds from the output topic: through kills and a pause of the broker it ends with the job's rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from freshet.job.dev.broker import Broker, start_broker
from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.folder import layout
from freshet.job.lifecycle.summary import progress
from freshet.job.serving.clients.client import EmbeddingClient
from freshet.job.serving.protocol.errors import BadRequestError, NotReadyError
from tests.support.kafka.records import parse
from tests.support.kafka.topics import broker_folder, make_topic, read_topic, require_jars, standing
from tests.support.runs.jobs import ROOT, Job, make_input, read_log
from tests.support.runs.light_python import python_path
from tests.support.serving.server import Server

pytestmark = pytest.mark.slow
EVENTS = 8_000
IDS = np.arange(300) * 7 - 5
Rows = dict[int, tuple[int, bytes]]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def rows_of(client: EmbeddingClient) -> Rows:
    table = client.all()
    vectors = table["embedding"].combine_chunks().flatten().to_numpy().reshape(table.num_rows, -1)
    ids, epochs = table["id"].to_pylist(), table["epoch"].to_pylist()
    return {i: (e, row.tobytes()) for i, e, row in zip(ids, epochs, vectors, strict=True)}


def rows_of_log(out: Path) -> Rows:
    log = read_log(out)
    last = {int(log.id[k]): k for k in range(len(log.id))}
    return {i: (int(log.epoch[k]), log.vector[k].tobytes()) for i, k in last.items() if not log.deleted[k]}


def deleted(broker: Broker) -> set[int]:
    """The vertices that the topic has had a tombstone of."""
    found = [record for each in read_topic(broker, "embeddings").values() for record in each]
    return {int(record.key) for record in found if record.value is None}


def until(what: str, condition: Callable[[], bool], timeout_s: float = 300.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("delivery", "form", "kills"),
    [("upsert", "binary", 3), ("exactly-once", "list", 1)],
)
@pytest.mark.long
def test_kills_a_pause_and_a_second_start(
    stack: ExitStack, tmp_path: Path, delivery: str, form: str, kills: int
) -> None:
    require_jars()
    broker = stack.enter_context(start_broker(stack.enter_context(broker_folder(tmp_path)), sasl=False, tls=False))
    one = Job(make_input(tmp_path / "in", EVENTS, snapshot=True), tmp_path / "out", {"PYTHONPATH": python_path(ROOT)})
    slow = {"slow": {"parser": 500}, "chunk": 100, "lull": 50}
    cluster = stack.enter_context(LocalCluster(tmp_path / "cluster", 2, environ=one.environ_of_cluster(slow)))
    stack.callback(one.end)
    make_topic(broker, "embeddings", 3)
    topic = f"kafka://{broker.address}/embeddings"
    server = Server(tmp_path / "T" / "out")
    server.tables.mkdir(parents=True)
    stack.callback(server.end)
    shape = ("--parts", 3, "--parallelism", 2, "--epoch-events", 40, "--checkpoint-interval", "500ms")
    out = ("--embeddings-to", topic, "--embeddings-from-start", "--delivery", delivery, "--embedding-format", form)
    more = ("--coalesce", "100ms", "--cluster", cluster.rest, "--restarts", 1000)
    one.start(*shape, *out, *more, faults=slow)
    one.until(lambda: (one.out / layout.IN_TOPIC).exists())  # the first run compiles the kernels
    told = server.start("--kafka", topic, "--stale-after", "3s")
    with EmbeddingClient(told["flight"], timeout=60) as client:
        lacking = set(IDS.tolist()) - set(rows_of(client))
        assert lacking <= deleted(broker), "the snapshot's rows are there from the start, until one is deleted"
        seen: dict[int, int] = {}
        for number in range(kills):
            before = progress(one.out)["events"]
            one.until(lambda before=before: progress(one.out)["events"] > min(before + 300, EVENTS - 1))
            cluster.kill(cluster.task_managers[number % 2])
            cluster.start_task_manager()
            ids, epochs, _ = client.rows(IDS)
            now = dict(zip(ids.tolist(), epochs.tolist(), strict=True))
            assert all(now[id_] >= epoch for id_, epoch in seen.items() if id_ in now), "a row has gone back"
            seen = now
            if number == 1:
                with standing(broker):
                    until("stale", lambda: not client.health()["ready"])
                    assert client.rows(IDS[:3]).epoch >= 0
                until("fresh", lambda: client.health()["ready"])
            if number == 2:
                server.kill()
                told = server.start("--kafka", topic, "--stale-after", "3s", "--port", told["flight"].split(":")[1])
                until("ready", lambda: "taken over as it stood" in server.log())
        one.hurry()
        ended = one.wait()
        assert ended.code == 0, ended.errors
        expected = rows_of_log(one.out)
        until("the last rows", lambda: rows_of(client) == expected)
        with pytest.raises(BadRequestError, match="Kafka topic"):
            client.get([2], min_epoch=1)
        assert client.health()["records_refused"] == 0
    assert server.stop() == 0
    again = server.start("--kafka", topic)
    with EmbeddingClient(again["flight"], timeout=60) as client:
        assert rows_of(client) == expected, "read anew from the beginning"
    assert server.stop() == 0
    found = [record for each in read_topic(broker, "embeddings").values() for record in each]
    starts = [record for record in found if record.value is not None and parse(record.value)["epoch"] == 0]
    assert len(starts) == len({record.key for record in starts}) == len(IDS), "once, also after all those restarts"
    print(f"{len(found):,} records of {ended.result['rows']:,} rows; {ended.errors.count('restarted after')} restarts")


def test_an_empty_topic_and_none(stack: ExitStack, tmp_path: Path) -> None:
    require_jars()
    broker = stack.enter_context(start_broker(stack.enter_context(broker_folder(tmp_path)), sasl=False, tls=False))
    server = Server(tmp_path / "T" / "out")
    server.tables.mkdir(parents=True)
    stack.callback(server.end)
    for reason in ("no such topic", "no embedding in it yet"):
        with pytest.raises(AssertionError, match=reason):
            server.start("--kafka", f"kafka://{broker.address}/nothing", "--wait", "8s")
        make_topic(broker, "nothing", 2)
    with EmbeddingClient(server.tables, timeout=0.1) as client, pytest.raises(NotReadyError):
        client.rows([1])
