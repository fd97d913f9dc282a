"""A service changes over from job to job: every answer is of one job, and none goes back."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import orjson
import pytest

from freshet import BadRequestError, EmbeddingClient, OtherModelError
from freshet.job.service.generations import GENERATION, Generation, Service
from freshet.job.serving.promotion import promote, rollback
from freshet.job.serving.tables.place import new_table, show, shown_generation
from freshet.job.serving.tables.seen import SeenGeneration, read_seen, write_seen
from freshet.job.serving.tables.served_job import ServedJob
from freshet.state.served.layout import TableShape
from freshet.state.served.times import Moment
from tests.support.serving.hand_job import WIDTH
from tests.support.serving.server import Server
from tests.support.serving.two_jobs import Jobs, Reader, by_client, by_http, by_rows, change, value_of

OTHER = "0" * 64  # SHA-256 of a model that nobody has


def test_readers_of_a_service_see_one_job_after_the_other(jobs: Jobs, tmp_path: Path) -> None:
    service = Service(tmp_path / "V")
    first = change(promote, service, tmp_path / "a1")
    server = Server(tmp_path / "V", of=("--service", str(tmp_path / "V"), "--workers", "2"))
    try:
        place = server.start()
        clients = [EmbeddingClient(place["flight"], timeout=60) for _ in range(2)]
        mapped = [EmbeddingClient(tmp_path / "V" / "tables", timeout=60) for _ in range(2)]
        names = ["a1", "b2", "a1", "b2"]
        reads = [
            by_client(clients[0]),
            by_rows(clients[1]),
            by_client(mapped[0]),
            by_rows(mapped[1]),
            by_http(place["http"]),
        ]
        readers = [Reader(read, names) for read in reads]
        for reader in readers:
            reader.start()
        time.sleep(0.5)
        made = [first, change(promote, service, tmp_path / "b2")]
        time.sleep(0.5)
        made.append(change(rollback, service, None))
        time.sleep(0.5)
        made.append(change(rollback, service, 1))
        time.sleep(0.5)
        health = clients[0].health()
        assert (health["generation"], health["next"]) == (3, None)
        table = clients[0].get([2])
        assert table.schema.metadata[b"model"].decode() == made[3].model
        for reader in readers:
            reader.stop.set()
            reader.join()
        assert [reader.wrong[:3] for reader in readers] == [[]] * len(readers)
        # Not each is answered at once: worker processes take a moment to start.
        assert all(reader.generations == sorted(reader.generations) for reader in readers)
        assert {reader.generations[-1] for reader in readers} == {3}
        assert readers[2].generations == [0, 1, 2, 3]
        for client in (*clients, *mapped):
            client.close()
    finally:
        server.end()


def test_a_job_that_is_behind_waits_and_is_named_in_health(jobs: Jobs, tmp_path: Path) -> None:
    service = Service(tmp_path / "V")
    change(promote, service, tmp_path / "a1")
    server = Server(tmp_path / "V", of=("--service", str(tmp_path / "V")))
    try:
        place = server.start()
        with jobs.lock:
            jobs.silent.add("b2")
            last = jobs.epoch
        with EmbeddingClient(place["flight"], timeout=60) as client:
            client.get([2], min_epoch=last + 1)
        found = promote(service, tmp_path / "b2", wait_s=2.0, force=True)
        assert not found.readable, "it is behind"
        with EmbeddingClient(place["flight"], timeout=60) as client:
            deadline = time.monotonic() + 60
            while (health := client.health())["next"] is None or not health["next"]["lacks"]:
                assert time.monotonic() < deadline, health
            lack = health["next"]["lacks"][0]
            assert (health["generation"], health["next"]["generation"]) == (0, 1)
            assert (lack["source"], lack["partition"], lack["has"]) == ("events.jsonl", 0, 10 * last)
            assert client.rows([2]).epoch < GENERATION
            server.kill()
            place = server.start()
        with EmbeddingClient(place["flight"], timeout=60) as client:
            assert client.rows([2]).epoch < GENERATION, "a killed server goes on with what its table shows"
            with jobs.lock:
                for epoch in range(last + 1, jobs.epoch + 1):
                    value = value_of("b2", epoch)
                    jobs.jobs["b2"].apply(epoch, ({2: value, 3: value}, []), ({4: value}, []))
                jobs.silent.clear()
            assert client.rows([2], min_epoch=GENERATION, timeout=60).epoch >= GENERATION
    finally:
        server.end()


def test_a_job_that_is_gone_leaves_the_current_one_serving(jobs: Jobs, tmp_path: Path) -> None:
    service = Service(tmp_path / "V")
    first = change(promote, service, tmp_path / "a1")
    server = Server(tmp_path / "V", of=("--service", str(tmp_path / "V")))
    try:
        place = server.start()
        service.add(
            Generation(
                generation=1, job=str(tmp_path / "none"), job_id="x", model="", since_ms=1, why="promote", from_=0
            )
        )
        time.sleep(1)
        with EmbeddingClient(place["flight"], timeout=60) as client:
            before = client.rows([2]).epoch
            assert client.rows([2], min_epoch=before + 5, timeout=60).epoch < GENERATION
            health = client.health()
            assert (health["ready"], health["next"]["generation"]) == (True, 1)
            assert "none: it holds no job" in health["next"]["reason"]
        assert change(promote, service, tmp_path / "b2").generation == 2
        with EmbeddingClient(place["flight"], timeout=60) as client:
            assert client.rows([2], min_epoch=2 * GENERATION).epoch // GENERATION == 2
        assert orjson.loads(first.model_dump_json())["generation"] == 0
    finally:
        server.end()


def test_a_job_may_serve_in_two_generations_of_which_one_is_prepared(jobs: Jobs, tmp_path: Path) -> None:
    """Showing the table of one generation does not remove that of the other."""
    found, tables = ServedJob.read(tmp_path / "a1"), tmp_path / "V" / "tables"
    assert found is not None
    tables.mkdir(parents=True)
    shown, next_ = found.in_generation(0), found.in_generation(2)
    made = [new_table(one, tables, TableShape.of(WIDTH, False, 8, 0, 1 << 16)) for one in (shown, next_)]
    try:
        show(shown, tables, made[0])
        assert [one.path.exists() for one in made] == [True, True]
        assert shown_generation(tables) == 0
    finally:
        for one in made:
            one.path.unlink()


def test_a_vector_of_another_model_is_compared_with_nothing(jobs: Jobs, tmp_path: Path) -> None:
    service = Service(tmp_path / "V")
    served = change(promote, service, tmp_path / "a1")
    server = Server(tmp_path / "V", of=("--service", str(tmp_path / "V")))
    try:
        place = server.start()
        http = httpx.Client(base_url=f"http://{place['http']}", timeout=60, trust_env=False)
        for at in (place["flight"], tmp_path / "V" / "tables"):
            with EmbeddingClient(at, timeout=60) as client:
                assert client.nearest(vector=[1.0] * WIDTH, model=served.model).num_rows == 3
                with pytest.raises(OtherModelError, match=f"of the model {served.model}, and the vector is of {OTHER}"):
                    client.nearest(vector=[1.0], model=OTHER)  # whose width may be another one, too
                with pytest.raises(BadRequestError, match="model goes with a vector"):
                    client.nearest(2, model=served.model)
        reply = http.post("/nearest", json={"vector": [1.0], "model": OTHER})
        assert (reply.status_code, reply.json()["kind"]) == (409, "other-model")
        assert http.post("/nearest", json={"vector": [1.0] * WIDTH, "model": served.model}).status_code == 200
        assert http.post("/nearest", json={"vector": [1.0], "model": "latest"}).status_code == 422
        assert figures_of(http) == {"freshet_generation 0.0", "freshet_switches_total 0.0"}
        change(promote, service, tmp_path / "b2")
        change(rollback, service, None)
        assert figures_of(http) == {"freshet_generation 2.0", "freshet_switches_total 2.0"}
    finally:
        server.end()


def figures_of(http: httpx.Client) -> set[str]:
    lines = http.get("/metrics").text.splitlines()
    return {one for one in lines if one.startswith(("freshet_generation ", "freshet_switches_total "))}


def test_a_server_that_ended_goes_on_with_what_readers_have_seen(jobs: Jobs, tmp_path: Path) -> None:
    """Also where a job has been promoted meanwhile that is behind; times in answers do not go back."""
    service = Service(tmp_path / "V")
    change(promote, service, tmp_path / "a1")
    server = Server(tmp_path / "V", of=("--service", str(tmp_path / "V")))
    try:
        server.start()
        server.stop()
        assert read_seen(service.tables).generation == shown_generation(service.tables) + 1 == 0
        with jobs.lock:
            jobs.silent.add("b2")
            last = jobs.epoch
            jobs.epoch += 1  # an epoch that the change log shows: the table that is loaded is not behind b2's
            value = value_of("a1", jobs.epoch)
            jobs.jobs["a1"].apply(jobs.epoch, ({2: value, 3: value}, []), ({4: value}, []), marker=1)
            jobs.jobs["a1"].settle()
        found_job = ServedJob.read(tmp_path / "a1")
        assert found_job is not None
        assert found_job.complete_epoch() > last
        change(promote, service, tmp_path / "b2")
        times = Moment(2**42, 5)
        write_seen(service.tables, SeenGeneration(0, times))
        with EmbeddingClient(server.start()["flight"], timeout=60) as client:
            found = client.get([2])
            assert int(found.schema.metadata[b"epoch"]) < GENERATION
            assert int(found.schema.metadata[b"as_of_ms"]) == 2**42
            with jobs.lock:
                for epoch in range(last + 1, jobs.epoch + 1):
                    value = value_of("b2", epoch)
                    jobs.jobs["b2"].apply(epoch, ({2: value, 3: value}, []), ({4: value}, []))
                jobs.silent.clear()
            found = client.get([2], min_epoch=GENERATION, timeout=60)
            assert int(found.schema.metadata[b"as_of_ms"]) == 2**42
            assert read_seen(service.tables) == SeenGeneration(1, times)
    finally:
        server.end()
