"""A server of a topic of generations: through promotions and rollbacks answers are of one job, and none goes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from kafka.admin import NewTopic

from freshet import EmbeddingClient
from freshet.job.dev.broker import Broker
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties, admin_client
from freshet.job.kafka.produce import producer_to
from freshet.job.service.current_topic import CurrentTopic, publish
from freshet.job.service.generations import GENERATION, Generation, Service
from freshet.job.serving.promotion import promote, rollback
from freshet.job.serving.tables.seen import read_seen
from tests.support.kafka.topics import make_topic
from tests.support.serving.hand_job import JOB_ID, HandJob
from tests.support.serving.server import Server
from tests.support.serving.topic_jobs import put_rows, write_topic
from tests.support.serving.two_jobs import value_of

pytestmark = pytest.mark.slow
IDS = [2, 3, 4, 5, 6, 7]
WIDTHS = {"a1": 4, "b2": 6}


class TopicJobs:
    """Two jobs with models of two widths that write to their topics side by side; a row says of which job it is."""

    def __init__(self, broker: Broker, folder: Path, name: str) -> None:
        self.broker, self.folder, self.topics = broker, folder, {"a1": name, "b2": f"{name}-g1"}
        self.jobs = {one: HandJob(folder / one, job_id=f"{JOB_ID[:-2]}{one}", width=WIDTHS[one]) for one in WIDTHS}
        self.service, self.epoch, self._stop = Service(folder / "V"), 0, threading.Event()
        for one, job in self.jobs.items():
            job.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []))
            write_topic(folder / one, f"kafka://{broker.address}/{self.topics[one]}")
            make_topic(broker, self.topics[one], 2)
        self.step()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def step(self) -> None:
        self.epoch += 1
        for one, job in self.jobs.items():
            rows = [(id_, self.epoch, [value_of(one, self.epoch)] * WIDTHS[one]) for id_ in IDS]
            put_rows(self.broker, self.topics[one], job.settings.job_id, job.plan.sha256, rows)

    def promote(self, name: str) -> Generation:
        made = promote(self.service, self.folder / name, wait_s=60.0, force=True)
        assert made.published
        return made.generation

    def rollback(self) -> Generation:
        made = rollback(self.service, None, wait_s=60.0, force=True)
        assert made.published
        return made.generation

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            self.step()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for job in self.jobs.values():
            job.close()


@pytest.fixture
def jobs(broker: Broker, tmp_path: Path) -> Iterator[TopicJobs]:
    found = TopicJobs(broker, tmp_path, f"emb-{tmp_path.name[-8:].strip('_')}")
    yield found
    found.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path / "T" / "out")
    found.tables.mkdir(parents=True)
    yield found
    found.end()


def pointer(jobs: TopicJobs) -> tuple[str, str]:
    return "--kafka", f"kafka://{jobs.broker.address}/{jobs.topics['a1']}-generations"


class Reader(threading.Thread):
    """Reads over and over, and checks that each answer is of one job, and no row goes back."""

    def __init__(self, read: Any, names: list[str]) -> None:
        super().__init__(daemon=True)
        self._read, self._names, self.stop = read, names, threading.Event()
        self.wrong, self.generations, self.answers = list[Any](), list[int](), 0
        self._seen = dict.fromkeys(IDS, -1)
        self.models: dict[int, str] = {}

    def run(self) -> None:
        while not self.stop.is_set():
            epoch, generation, model, rows = self._read()
            self.answers += 1
            numbers = {own // GENERATION for own, _ in rows.values()} | {epoch // GENERATION}
            number = max(numbers)
            wanted = {id_: value_of(self._names[number], own % GENERATION) for id_, (own, _) in rows.items()}
            width = WIDTHS[self._names[number]]
            ok = len(numbers) == 1 and generation in (None, number) and rows.keys() == set(IDS)
            ok = ok and all(row == [wanted[id_]] * width for id_, (_, row) in rows.items())
            ok = ok and all(own >= self._seen[id_] for id_, (own, _) in rows.items())
            if not ok:
                self.wrong.append((epoch, generation, rows, dict(self._seen)))
            self._seen = {id_: own for id_, (own, _) in rows.items()}
            if number not in self.generations:
                self.generations.append(number)
            if model is not None and self.models.setdefault(number, model) != model:
                self.wrong.append((number, model))


def by_client(client: EmbeddingClient) -> Any:
    def read() -> tuple[int, int, str, dict[int, Any]]:
        table = client.get(IDS)
        metadata = table.schema.metadata
        rows = zip(table["id"].to_pylist(), table["epoch"].to_pylist(), table["embedding"].to_pylist(), strict=True)
        found = {id_: (own, row) for id_, own, row in rows}
        return int(metadata[b"epoch"]), int(metadata[b"generation"]), metadata[b"model"].decode(), found

    return read


def by_http(address: str) -> Any:
    client = httpx.Client(base_url=f"http://{address}", timeout=60, trust_env=False)

    def read() -> tuple[int, int, str, dict[int, Any]]:
        found = client.post("/embeddings", json={"ids": IDS}).json()
        rows = {one["id"]: (one["epoch"], one["embedding"]) for one in found["found"]}
        return found["as_of"], found["generation"], found["model"], rows

    return read


def until(what: str, condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_readers_through_a_promotion_and_a_rollback(jobs: TopicJobs, server: Server) -> None:
    made = [jobs.promote("a1")]
    place = server.start(*pointer(jobs), "--workers", "2")
    clients = [EmbeddingClient(at, timeout=60) for at in (place["flight"], server.tables)]
    names = ["a1", "b2", "a1", "b2"]
    readers = [Reader(read, names) for read in (*map(by_client, clients), by_http(place["http"]))]
    for reader in readers:
        reader.start()
    until("generation 0", lambda: all(0 in reader.generations for reader in readers))
    for number, change in enumerate((lambda: jobs.promote("b2"), jobs.rollback, jobs.rollback), 1):
        made.append(change())
        until(f"generation {number}", lambda n=number: all(n in reader.generations for reader in readers))
        time.sleep(0.3)
    health = clients[0].health()
    for reader in readers:
        reader.stop.set()
        reader.join()
    assert [reader.wrong[:2] for reader in readers] == [[]] * len(readers)
    assert [reader.generations for reader in readers] == [[0, 1, 2, 3]] * len(readers)
    models = {one.generation: one.model for one in made}
    assert [reader.models for reader in readers] == [models] * len(readers)
    assert models[0] == models[2] != models[1] == models[3]
    assert (health["generation"], health["next"], health["records_refused"]) == (3, None, 0)
    metrics = httpx.get(f"http://{place['http']}/metrics", trust_env=False).text
    assert "freshet_generation 3.0" in metrics
    print(f"{sum(reader.answers for reader in readers):,} answers")
    for client in clients:
        client.close()


def test_a_killed_server_goes_on_with_what_readers_have_seen(jobs: TopicJobs, server: Server) -> None:
    jobs.promote("a1")
    jobs.promote("b2")
    server.start(*pointer(jobs))
    with EmbeddingClient(server.tables, timeout=60) as client:
        reader = Reader(by_client(client), ["a1", "b2", "a1"])
        reader.start()
        until("an answer", lambda: reader.answers > 3)
        server.kill()
        jobs.rollback()
        assert read_seen(server.tables).generation == 1
        server.start(*pointer(jobs))
        until("its table", lambda: "taken over as it stood" in server.log())
        until("the generation that came meanwhile", lambda: 2 in reader.generations)
        reader.stop.set()
        reader.join()
    assert (reader.wrong[:2], reader.generations) == ([], [1, 2])
    assert server.stop() == 0
    with EmbeddingClient(server.start(*pointer(jobs))["flight"], timeout=60) as client:
        assert client.get(IDS).schema.metadata[b"generation"] == b"2"


def test_what_a_pointer_says_is_believed_once_it_fits(jobs: TopicJobs, server: Server) -> None:
    """The one before is served meanwhile; what is wrong is named, and records that say nothing are counted."""
    name = f"{jobs.topics['a1']}-generations"
    with admin_client(address := KafkaAddress(jobs.broker.address, name), ClientProperties()) as admin:
        admin.create_topics([NewTopic(name, 1, 1, topic_configs={"retention.ms": "3600000"})])
    with pytest.raises(AssertionError, match="there is no generation in it yet"):
        server.start(*pointer(jobs), "--wait", "3s")
    first = jobs.promote("a1")
    place = server.start(*pointer(jobs))
    assert "which generation is the current one is deleted after a while" in server.log()
    good = {"generation": 1, "topic": jobs.topics["b2"], "model": jobs.jobs["b2"].plan.sha256, "since_ms": 1}
    wrong = [
        (b"other", good),
        (b"current", None),
        (b"current", good | {"topic": "secrets"}),
        (b"current", good | {"topic": f"{jobs.topics['a1']}-../x"}),
        (b"current", good | {"generation": 9000}),
        (b"current", good | {"generation": "1"}),
        (b"current", good | {"model": "../M"}),
        (b"current", good | {"more": "x" * 5000}),
    ]
    producer = producer_to(address, ClientProperties())
    for key, value in wrong:
        producer.produce(name, None if value is None else orjson.dumps(value), key)
    assert producer.flush(60) == 0
    with EmbeddingClient(place["flight"], timeout=60) as client:
        until("all are counted", lambda: client.health()["records_refused"] == len(wrong))
        assert client.get(IDS).schema.metadata[b"generation"] == b"0"
        for fields, why in (
            ({"topic": f"{jobs.topics['a1']}-g7"}, "no such topic"),
            ({"model": first.model}, f"no embedding of the model {first.model[:12]}"),
        ):
            number = good["generation"] = good["generation"] + 1
            publish(address, CurrentTopic(**(good | fields)), ClientProperties())
            until(why, lambda w=why: w in ((client.health()["next"] or {}).get("reason") or ""))
            assert client.health()["next"]["generation"] == number
            assert client.get(IDS).schema.metadata[b"generation"] == b"0"
        publish(address, CurrentTopic(**(good | {"generation": number + 1})), ClientProperties())
        until("a good one", lambda: client.health()["generation"] == number + 1)
        assert client.health()["next"] is None
        assert client.get(IDS).schema.metadata[b"model"].decode() == good["model"]
    for said in (
        "expected b'current', got b'other'",
        "got none",
        "got 'secrets'",
        "less than 9000",
        "at most 4,096 bytes",
    ):
        assert said in server.log()


def test_a_server_of_one_of_several_kinds(broker: Broker, server: Server) -> None:
    pointer, models = KafkaAddress(broker.address, "kinds-generations"), ["1" * 64, "2" * 64]
    for number, topic in enumerate(("kinds", "kinds-g1")):
        for kind, value in (("user", 1.0), ("item", 2.0)):
            make_topic(broker, f"{topic}.{kind}", 1)
            rows = [(id_, 1, [value + 10 * number] * 3) for id_ in IDS]
            put_rows(broker, f"{topic}.{kind}", JOB_ID, models[number], rows, kind=kind)
    current = [CurrentTopic(generation=k, topic=("kinds", "kinds-g1")[k], model=models[k], since_ms=1) for k in (0, 1)]
    assert publish(pointer, current[0], ClientProperties())
    with pytest.raises(AssertionError, match="name one by --kind"):
        server.start("--kafka", str(pointer), "--wait", "3s")
    server.of = ("--tables", str(server.tables), "--kind", "item", "--kafka", str(pointer))
    server.launch()
    tables = server.tables / "item"
    with EmbeddingClient(tables, timeout=60) as client:
        until("a table", lambda: (tables / "table.json").exists())
        assert client.get(IDS)["embedding"].to_pylist() == [[2.0] * 3] * len(IDS)
        assert publish(pointer, current[1], ClientProperties())
        until("the next one", lambda: client.get(IDS).schema.metadata[b"generation"] == b"1")
        assert client.get(IDS)["embedding"].to_pylist() == [[12.0] * 3] * len(IDS)
        assert client.get(IDS)["epoch"].to_pylist() == [GENERATION + 1] * len(IDS)
