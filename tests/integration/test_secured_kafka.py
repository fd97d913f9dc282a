"""One broker with the logins of companies: tokens, SCRAM, key stores of Java; the job, and Python's clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
import yaml
from kafka import KafkaProducer

from freshet import EmbeddingClient
from freshet.job.errors import UsageError
from freshet.job.folder.run_file import read_run
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties, admin_client
from freshet.job.kafka.produce import produce
from freshet.job.kafka.read_topics import plan_topic, read_partition
from freshet.job.lifecycle.summary import progress
from freshet.job.serving.feeds import topic_reader
from freshet.job.serving.feeds.topic_reader import topic_id
from tests.support.kafka.debezium import AVRO, MAPS, changes, envelope, row
from tests.support.kafka.registry import USER_INFO, RegistryServer, avro_message, registry_server
from tests.support.kafka.secured import CLIENT_SECRET, STORE_PASSWORD, Secured, secured_broker
from tests.support.kafka.topics import broker_folder, require_jars
from tests.support.runs.jobs import DEADLINE_S, Job, TopicInput, make_input
from tests.support.runs.live import paths_below

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    require_jars()
    with broker_folder(tmp_path_factory.mktemp("secured")) as folder, secured_broker(folder) as started:
        yield started


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader in this process may wait long for a core, as its broker may."""
    monkeypatch.setattr(topic_reader, "ASK_S", 60.0)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as started:
        yield started


def secret_of(job: Job) -> list[str]:
    """Where a secret, or a token, can be read: files, logs, process lists, what Flink's REST interface shows."""
    login = USER_INFO.partition(":")[2]
    secrets = CLIENT_SECRET.encode(), STORE_PASSWORD.encode(), login.encode(), b"eyJhbGci"
    run = read_run(job.out)
    texts = {"stderr": job.log().encode()}
    for path in (*paths_below(job.out), *Path("/proc").glob("[0-9]*/cmdline")):
        with suppress(OSError):  # a folder, or gone by now: the job goes on, and so do others
            texts[str(path)] = path.read_bytes()
    assert str(job.out / "run.json") in texts
    with httpx.Client(base_url=f"http://{run['rest']}", timeout=60, trust_env=False) as http:
        of_job = [
            f"/jobs/{run['job_id']}{page}" for page in ("", "/config", "/plan", "/exceptions", "/jobmanager/config")
        ]
        tasks = http.get("/taskmanagers").json()["taskmanagers"]
        of_tasks = [f"/taskmanagers/{one['id']}/{page}" for one in tasks for page in ("log", "thread-dump", "stdout")]
        pages = ["/config", "/jobmanager/config", "/jobmanager/environment", "/jobmanager/log", *of_job, *of_tasks]
        texts |= {page: http.get(page).content for page in pages}
    assert texts["/jobmanager/config"] and texts[of_job[0]]
    return [name for name, text in texts.items() if any(secret in text for secret in secrets)]


def assert_its_server_answers_what_if(job: Job) -> None:
    """As its rows are, of the graph that it reads from the topic."""
    with EmbeddingClient(read_run(job.out)["serving"]["flight"], timeout=DEADLINE_S) as client:
        job.until(lambda: client.all().num_rows > 0)
        rows = client.all()
        tried = client.what_if(vertices=[{"id": one} for one in rows["id"].to_pylist()[:20]])
    assert tried.schema.metadata[b"epoch"] == rows.schema.metadata[b"epoch"]
    found, expected = (np.stack(one["embedding"].to_pylist()[:20]) for one in (tried, rows))
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


def test_a_job_logs_in_by_tokens(
    secured: Secured, registry: RegistryServer, tmp_path: Path, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that the job has of Kafka: source, sink, dead letters, admin, lag; and `check` by command.

    Its records are changes of a table in Avro, several events each, with their schema in a registry behind a login.
    """
    given, records = make_input(tmp_path / "input", 1), changes(1, 300)
    wrong, last = envelope("u", row(1, 2), row(1, "b")), envelope("c", None, row(1, 2))
    registry.add(7, AVRO)
    written = secured.oauth() | secured.trust("JKS")
    written["sasl.oauthbearer.client.credentials.client.secret"] = "${OAUTH_SECRET}"
    written["ssl.truststore.password"] = "${STORE_PASSWORD}"
    written["schema.registry.basic.auth.user.info"] = "${REGISTRY_LOGIN}"
    config = tmp_path / "job.yaml"
    config.write_text(
        yaml.safe_dump({"kafka": written, "events-map": MAPS, "format": "avro", "registry": registry.url})
    )
    monkeypatch.setenv("OAUTH_SECRET", CLIENT_SECRET)
    monkeypatch.setenv("STORE_PASSWORD", STORE_PASSWORD)
    monkeypatch.setenv("REGISTRY_LOGIN", USER_INFO)
    topics = {name: f"kafka://{secured.broker.address}/tokens-{name}" for name in ("events", "rows", "letters")}
    properties = ClientProperties(secured.oauth() | secured.trust("JKS"))
    events = KafkaAddress.parse(topics["events"])
    with admin_client(events, properties) as admin:
        admin.create_topics({events.topic: {"num_partitions": 2}})
    with closing(KafkaProducer(bootstrap_servers=secured.broker.address, **properties.kafka_python())) as producer:
        for number, record in enumerate([*records, wrong, last]):
            value = None if record is None else avro_message(7, AVRO, record)
            producer.send(events.topic, value, partition=number % 2, key=b"1")
    count = sum(2 if one["op"] == "u" else one["op"] in "crd" for one in records if one) + 2
    given = TopicInput(given.model, given.events, count, topic=topics["events"], config=config)
    job = Job(given, tmp_path / "out")
    jobs.append(job)
    by_count = (
        "--coalesce-epochs",
        5,
        "--epoch-events",
        7,
        "--epoch-ms",
        0,
        "--id-type",
        "int",
    )  # epochs end within records
    # Flink loads the connector once more for a restart, in the same Java.
    failing = {"operator": "sink", "part": 0, "epoch": 10, "folder": str(tmp_path)}
    written_to = ("--embeddings-to", topics["rows"], "--dead-letters", topics["letters"])
    job.start(*written_to, *by_count, "--flight-port", 0, "--what-if", faults={"fail": [failing]})
    job.until(lambda: "RuntimeError: on purpose" in job.log())
    job.until(lambda: progress(job.out)["events"] > count - 7)  # all but an epoch that is not full
    assert_its_server_answers_what_if(job)
    assert not secret_of(job)
    job.until(lambda: job.status()["lag"] is not None)  # a broker that is busy is asked again
    stopped = job.stop()
    assert stopped.code == 0, stopped.errors
    done = job.wait().result
    assert done["rejected"] == 1
    assert count - 7 < done["events"] <= count
    job.check()
    for name, least in (("rows", 20), ("letters", 1)):
        topic = plan_topic(0, KafkaAddress.parse(topics[name]), "earliest", True, properties)
        found = sum(len(piece) for one in topic.start for piece in read_partition(topic, one, properties))
        assert found >= least, name


@pytest.mark.parametrize("login", ["scram", "oauth", "PKCS12", "JKS"])
def test_pythons_clients_log_in(secured: Secured, tmp_path: Path, login: str) -> None:
    """kafka-python and librdkafka, the latter as producer and as `serve --kafka` asks."""
    path = tmp_path / "e.jsonl"
    path.write_text('{"op":"add_edge","src":1,"dst":2}\n' * 10)
    if login in ("PKCS12", "JKS"):
        at, given = secured.mutual, secured.mutual_tls(login)
    else:
        at, given = secured.broker.address, secured.scram() if login == "scram" else secured.oauth()
    properties, address = ClientProperties(given), KafkaAddress.parse(f"kafka://{at}/{login}")
    assert produce(events=[str(path)], to=address, partitions=1, properties=properties)["events"] == 10
    topic = plan_topic(0, address, "earliest", True, properties)
    assert sum(len(piece) for piece in read_partition(topic, 0, properties)) == 10
    assert topic_id(address, properties)


def test_a_secret_that_is_wrong_says_so(secured: Secured, tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text('{"op":"add_edge","src":1,"dst":2}\n')
    to = KafkaAddress.parse(f"kafka://{secured.broker.address}/none")
    wrong = secured.oauth() | {"sasl.oauthbearer.client.credentials.client.secret": "wr0ng"}
    with pytest.raises(UsageError, match=r"gives no token \(HTTP status 401\); check client id") as caught:
        produce(events=[str(path)], to=to, partitions=1, properties=ClientProperties(wrong))
    assert "wr0ng" not in str(caught.value)
