"""Promotions of jobs that write to topics: a compacted topic says which one is the current one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

from freshet import EmbeddingClient
from freshet.job.dev.broker import Broker, start_broker
from freshet.job.errors import JobFailed, UsageError
from freshet.job.folder.job_file import SavedJob
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.machine.ports import server_port
from freshet.job.service.current_topic import CurrentTopic, base_of, free_topic, publish
from freshet.job.service.generations import Service
from freshet.job.serving.promotion import promote
from freshet.job.swap.commands import Commands
from freshet.job.swap.record import Swap, SwapLine
from freshet.job.swap.steps import SwapSteps
from freshet.job.swap.topics import topic_options
from tests.support.kafka.topics import broker_folder, make_topic, read_topic, require_jars
from tests.support.runs.jobs import DEADLINE_S, FRESHET, ROOT
from tests.support.serving.hand_job import JOB_ID, HandJob
from tests.support.serving.server import Server
from tests.support.serving.topic_jobs import put_rows, write_topic

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Two jobs of one input, with rows of epoch 1."""
    made = {name: HandJob(tmp_path / name, job_id=f"{JOB_ID[:-2]}{name}", seed=len(name)) for name in ("a1", "b2")}
    for job in made.values():
        job.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []))
    yield tmp_path
    for job in made.values():
        job.close()


def freshet(*arguments: object) -> tuple[int, dict[str, Any], str]:
    command = [str(FRESHET), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return done.returncode, orjson.loads(done.stdout) if done.stdout else {}, done.stderr


def pointers(broker: Broker, topic: str) -> list[dict[str, Any]]:
    found = [one for records in read_topic(broker, topic).values() for one in records]
    assert {one.key for one in found} == {b"current"}
    return [orjson.loads(one.value) for one in found]


def policy(broker: Broker, topic: str) -> str:
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        found = admin.describe_configs([ConfigResource("TOPIC", topic, ["cleanup.policy"])], config_filter="all")
        return str(found["topic"][topic]["cleanup.policy"]["value"])
    finally:
        admin.close()


def test_each_promotion_is_in_the_topic_of_generations(broker: Broker, folder: Path) -> None:
    service = Service(folder / "V")
    for name, topic in (("a1", "emb"), ("b2", "emb-g1")):
        write_topic(folder / name, f"kafka://{broker.address}/{topic}")
    for arguments in (("promote", folder / "V", folder / "a1"), ("promote", folder / "V", folder / "b2")):
        code, found, errors = freshet(*arguments)
        assert (code, found["published"], found["readable"]) == (0, True, True), errors
    code, found, errors = freshet("rollback", folder / "V")
    assert (code, found["published"]) == (0, True), errors
    wanted = [
        {"generation": one.generation, "topic": topic, "model": one.model, "since_ms": one.since_ms}
        for one, topic in zip(service.generations(), ("emb", "emb-g1", "emb"), strict=True)
    ]
    assert pointers(broker, "emb-generations") == wanted
    assert policy(broker, "emb-generations") == "compact"
    code, _, errors = freshet("promote", folder / "V", folder / "a1")
    assert code == 2
    assert "it serves already, as generation 2" in errors
    assert len(pointers(broker, "emb-generations")) == 3


def test_a_broker_that_is_down_does_not_stop_a_promotion_and_a_repeated_one_writes_it(
    broker: Broker, folder: Path
) -> None:
    write_topic(folder / "a1", f"kafka://127.0.0.1:{server_port()}/down")
    code, found, errors = freshet("promote", folder / "V", folder / "a1")
    assert (code, found["published"], found["readable"]) == (1, False, True)
    assert "generation 0 serves all the same" in errors
    assert f"until `freshet promote V {folder / 'a1'}` is repeated" in errors
    write_topic(folder / "a1", f"kafka://{broker.address}/down")  # as a resume with today's brokers
    code, found, errors = freshet("promote", folder / "V", folder / "a1")
    assert (code, found["published"], found["generation"]) == (0, True, 0), errors
    assert [one["topic"] for one in pointers(broker, "down-generations")] == ["down"]
    assert len(Service(folder / "V").generations()) == 1


def test_readers_of_a_topic_are_left_behind_by_force_alone(broker: Broker, folder: Path) -> None:
    write_topic(folder / "a1", f"kafka://{broker.address}/left")
    assert freshet("promote", folder / "V", folder / "a1")[0] == 0
    for topic, said in ((None, "no topic"), ("leftover", "the topic leftover")):
        write_topic(folder / "b2", topic and f"kafka://{broker.address}/{topic}")
        code, _, errors = freshet("promote", folder / "V", folder / "b2")
        assert code == 2
        assert f"it writes to {said}, and readers of kafka://{broker.address}/left-generations take left," in errors
    write_topic(folder / "b2", None)
    code, found, errors = freshet("promote", "--force", folder / "V", folder / "b2")
    assert (code, found["generation"], "published" in found) == (0, 1, False), errors
    assert "writes to no topic: readers of" in errors


def test_two_services_do_not_share_a_topic_of_generations(broker: Broker, folder: Path) -> None:
    pointer = KafkaAddress(broker.address, "shared-generations")
    for generation in (3, 4):
        current = CurrentTopic(generation=generation, topic=f"shared-g{generation}", model="0" * 64, since_ms=1)
        assert publish(pointer, current, ClientProperties())
        assert not publish(pointer, current, ClientProperties())
    write_topic(folder / "a1", f"kafka://{broker.address}/shared")
    code, found, errors = freshet("promote", folder / "V", folder / "a1")
    assert (code, found["published"]) == (1, False)
    assert "it has generation 4 with the topic shared-g4 already" in errors
    with pytest.raises(UsageError, match="has generation 4"):
        publish(pointer, CurrentTopic(generation=4, topic="shared", model="0" * 64, since_ms=1), ClientProperties())


def test_a_topic_that_has_had_records_is_not_taken(broker: Broker) -> None:
    former, properties = KafkaAddress(broker.address, "free-g3"), ClientProperties()
    assert base_of("free-g3") == base_of("free-g3-2") == base_of("free") == "free"
    assert free_topic(former, 4, properties).topic == "free-g4"
    make_topic(broker, "free-g4", 2)
    assert free_topic(former, 4, properties).topic == "free-g4", "made for it, and empty"
    put_rows(broker, "free-g4", JOB_ID, "0" * 64, [(7, 1, [1.0])])
    assert free_topic(former, 4, properties).topic == "free-g4-2"
    make_topic(broker, "free-g4-2.user", 1)
    put_rows(broker, "free-g4-2.user", JOB_ID, "0" * 64, [(7, 1, [1.0])], kind="user")
    assert free_topic(former, 4, properties).topic == "free-g4-3"
    assert free_topic(former, 5, properties).topic == "free-g5"


def test_a_swap_takes_a_topic_for_its_job(broker: Broker, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    former = f"kafka://{broker.address}/swapped-g2"
    saved = SavedJob.read(folder / "a1")
    assert saved is not None
    assert topic_options(saved, 3, {}) == {}, "it writes to none"
    saved = replace(saved, options={"embeddings_to": former})
    wanted = {"embeddings_to": f"kafka://{broker.address}/swapped-g3", "embeddings_from_start": True}
    assert topic_options(saved, 3, {"parts": 2}) == wanted
    put_rows(broker, "swapped-g3", JOB_ID, "0" * 64, [(7, 1, [1.0])])  # of a swap that was refused
    assert topic_options(saved, 3, {})["embeddings_to"] == f"kafka://{broker.address}/swapped-g3-2"
    assert topic_options(saved, 3, {"embeddings_to": f"kafka://{broker.address}/swapped-g7"}) == {
        "embeddings_from_start": True
    }
    assert "stay with the job before" not in capsys.readouterr().err
    topic_options(saved, 3, {"embeddings_to": f"kafka://{broker.address}/other"})
    assert "readers of " in (said := capsys.readouterr().err)
    assert "swapped-generations stay with the job before" in said
    with pytest.raises(UsageError, match="a topic must not have rows of two models"):
        topic_options(saved, 3, {"embeddings_to": former})
    away = replace(saved, options={"embeddings_to": f"kafka://127.0.0.1:{server_port()}/swapped"})
    with pytest.raises(UsageError, match=r"--embeddings-to kafka://.*: no broker is there"):
        topic_options(away, 3, {})


def test_a_swap_whose_promotion_the_brokers_do_not_take_goes_on_with_that(broker: Broker, folder: Path) -> None:
    service = Service(folder / "V")
    for name, topic in (("a1", "gone"), ("b2", "gone-g1")):
        write_topic(folder / name, f"kafka://127.0.0.1:{server_port()}/{topic}")
    first = promote(service, folder / "a1", wait_s=60.0, force=False).generation
    swap = Swap(service)
    record = swap.begin(first, {}, {}, out=str(folder / "b2"))
    step = SwapSteps(swap, SwapLine(folder / "b2" / "model"), Commands()).promote
    for _ in range(2):  # the line is repeated
        with pytest.raises(JobFailed, match="it serves, and its topic is not the current one for readers"):
            step(record)
        assert [one.why for one in service.generations()] == ["promote", "swap"]
    assert swap.record() == record, "it is under way still"
    write_topic(folder / "b2", f"kafka://{broker.address}/gone-g1")
    assert step(record) == {"generation": 1}
    assert step(record) == {"generation": 1}
    assert [one["topic"] for one in pointers(broker, "gone-generations")] == ["gone-g1"]


def test_a_login_comes_with_the_config_file(folder: Path, tmp_path: Path) -> None:
    require_jars()
    with broker_folder(tmp_path) as data, start_broker(data, sasl=True, tls=True) as secured:
        write_topic(folder / "a1", f"kafka://{secured.address}/kept")
        code, found, errors = freshet("promote", folder / "V", folder / "a1")
        assert (code, found["published"]) == (1, False), errors
        code, found, errors = freshet("promote", folder / "V", folder / "a1", "--config", secured.client_file)
        assert (code, found["published"], found["generation"]) == (0, True, 0), errors
        assert [one["topic"] for one in pointers(secured, "kept-generations")] == ["kept"]
        put_rows(secured, "kept", JOB_ID, found["model"], [(7, 1, [1.0, 2.0])])
        server = Server(tmp_path / "T" / "out")
        server.tables.mkdir(parents=True)
        try:
            pointer = f"kafka://{secured.address}/kept-generations"
            place = server.start("--kafka", pointer, "--config", str(secured.client_file))
            with EmbeddingClient(place["flight"], timeout=60) as client:
                assert client.get([7]).schema.metadata[b"generation"] == b"0"
        finally:
            server.end()
