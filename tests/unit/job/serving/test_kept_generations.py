"""Earlier generations of a service are readable by their number while `freshet serve --keep` keeps them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pyarrow.flight as flight
import pytest

from freshet import AsyncEmbeddingClient, BadRequestError, EmbeddingClient, GoneError, NotYetError
from freshet.job import cli
from freshet.job.service.generations import GENERATION, Service
from freshet.job.serving.clients.asked import ERROR_KINDS
from freshet.job.serving.clients.client import Rows
from freshet.job.serving.promotion import promote, rollback
from freshet.job.serving.tables import kept as kept_tables
from freshet.job.serving.tables.kept import FILE, read_kept
from freshet.job.serving.tables.served_job import ServedJob
from tests.support.serving.hand_job import WIDTH
from tests.support.serving.server import Server
from tests.support.serving.two_jobs import Jobs, change, value_of

NAMES = ("a1", "b2", "a1", "b2")


def serving(folder: Path, *options: str) -> Server:
    return Server(folder / "V", of=("--service", str(folder / "V"), *options))


def checked(rows: Any, epoch: int, number: int, count: int = 3) -> int:
    """Hold rows against those of the generation's job at that epoch."""
    of, own = divmod(epoch, GENERATION)
    assert of == number
    assert np.asarray(rows).tolist() == [[value_of(NAMES[number], own)] * WIDTH] * count
    return epoch


def by_number(client: EmbeddingClient, number: int) -> list[int]:
    """The epochs of all ways to ask a client for a generation."""
    epochs = []
    for ask in (lambda: client.get([2, 3, 4], generation=number), lambda: client.all(generation=number)):
        table = ask()
        assert int(table.schema.metadata[b"generation"]) == number
        epochs.append(checked(table["embedding"].to_pylist(), int(table.schema.metadata[b"epoch"]), number))
    rows = client.rows([2, 3, 4], generation=number)
    epochs.append(checked(rows[2], rows.epoch, number))
    near = client.nearest(2, k=3, metric="dot", generation=number)
    epochs.append(checked(near["embedding"].to_pylist(), int(near.schema.metadata[b"epoch"]), number))
    near = client.nearest(vector=[1.0] * WIDTH, k=3, generation=number)
    epochs.append(checked(near["embedding"].to_pylist(), int(near.schema.metadata[b"epoch"]), number))
    scores = client.score([(2, 3)], generation=number)
    epoch = int(scores.schema.metadata[b"epoch"])
    assert scores["score"].to_pylist() == [WIDTH * float(epoch % GENERATION) ** 2]
    return [*epochs, epoch]


def over_http(http: httpx.Client, number: int) -> list[int]:
    """The same over HTTP."""
    one = http.get("/embeddings/2", params={"generation": number}).json()
    many = http.post("/embeddings", json={"ids": [2, 3, 4], "generation": number}).json()
    near = http.post("/nearest", json={"id": 2, "k": 3, "metric": "dot", "generation": number}).json()
    scores = http.post("/v1/score", json={"pairs": [[2, 3]], "generation": number}).json()
    assert {each["generation"] for each in (one, many, near, scores)} == {number}
    checked([one["embedding"]], one["as_of"], number, 1)
    for each in (many, near):
        checked([row["embedding"] for row in each["found"]], each["as_of"], number)
    return [each["as_of"] for each in (one, many, near, scores)]


def asked_of_all(place: dict[str, Any], tables: Path) -> Iterator[Callable[[int], list[int]]]:
    """Ways to ask, of each process of a server."""
    for at in (place["flight"], place["flight"], place["flight"], tables):
        with EmbeddingClient(at, timeout=60) as client:
            client.rows([2])
            yield lambda number, client=client: by_number(client, number)  # type: ignore[misc]
    for _ in range(6):  # connections are shared out among the processes
        with httpx.Client(base_url=f"http://{place['http']}", timeout=60, trust_env=False) as http:
            yield lambda number, http=http: over_http(http, number)  # type: ignore[misc]


def test_earlier_generations_answer_by_their_number(jobs: Jobs, tmp_path: Path) -> None:
    """As they were when another one took over, from each process; and the current one goes on."""
    service = Service(tmp_path / "V")
    change(promote, service, tmp_path / "a1")
    server = serving(tmp_path, "--keep", "1h", "--workers", "2")
    try:
        place = server.start()
        change(promote, service, tmp_path / "b2")
        change(rollback, service, None)
        last = {one.generation: set[int]() for one in service.generations()}
        for ask in asked_of_all(place, service.tables):
            for number, epochs in last.items():
                found = ask(number)
                epochs.update(found)
                assert found == sorted(found), "no answer goes back"
            for number in (3, 17, 2**62):
                with pytest.raises((GoneError, KeyError)):
                    ask(number)
        assert [len(last[0]), len(last[1])] == [1, 1], "they stay as they were"
        assert len(last[2]) > 1, "it goes on"
        with EmbeddingClient(place["flight"], timeout=60) as client:
            assert client.health()["kept"] == [0, 1]
    finally:
        server.end()


def test_what_is_not_kept_is_gone(jobs: Jobs, tmp_path: Path) -> None:
    """After its time, and without --keep; the memory is free then."""
    service = Service(tmp_path / "V")
    change(promote, service, tmp_path / "a1")
    server = serving(tmp_path, "--keep", "2s")
    try:
        place = server.start()
        change(promote, service, tmp_path / "b2")
        [kept] = read_kept(service.tables)
        with EmbeddingClient(place["flight"], timeout=60) as client, EmbeddingClient(service.tables) as mapped:
            by_number(client, 0)
            by_number(mapped, 0)
            deadline = time.monotonic() + 60
            while kept.path.exists():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert time.time() * 1000 >= kept.until_ms
            for reader in (client, mapped):
                with pytest.raises(
                    GoneError, match=r"generation 0 is not kept .*the current one is 1, and kept are none"
                ):
                    reader.get([2], generation=0)
                assert reader.rows([2]).epoch >= GENERATION
            assert client.health()["kept"] == []
            assert server.process is not None
            while str(kept.path) in (Path("/proc") / str(server.process.pid) / "maps").read_text():
                assert time.monotonic() < deadline, "its memory is free"
                time.sleep(0.05)
        reply = httpx.get(f"http://{place['http']}/embeddings/2?generation=0", trust_env=False)
        assert (reply.status_code, reply.json()["kind"]) == (410, "gone")
        reply = httpx.post(f"http://{place['http']}/nearest", json={"id": 2, "generation": 0}, trust_env=False)
        assert (reply.status_code, reply.json()["kind"]) == (410, "gone")
    finally:
        server.end()
    assert "gone" in ERROR_KINDS


def test_nothing_is_kept_unless_asked_for(jobs: Jobs, tmp_path: Path) -> None:
    service = Service(tmp_path / "V")
    change(promote, service, tmp_path / "a1")
    server = serving(tmp_path)
    try:
        place = server.start()
        change(promote, service, tmp_path / "b2")
        with EmbeddingClient(place["flight"], timeout=60) as client:
            by_number(client, 1)
            with pytest.raises(GoneError, match="kept are none"):
                client.rows([2], generation=0)
        assert not (service.tables / FILE).exists()
    finally:
        server.end()


def test_what_a_server_has_kept_goes_with_it(jobs: Jobs, tmp_path: Path) -> None:
    """Also where it is killed: the next one keeps what comes."""
    service = Service(tmp_path / "V")
    change(promote, service, tmp_path / "a1")
    server = serving(tmp_path, "--keep", "1h")
    try:
        server.start()
        change(promote, service, tmp_path / "b2")
        [kept] = read_kept(service.tables)
        assert (kept.generation, kept.path.exists()) == (0, True)
        server.kill()
        place = server.start()
        with EmbeddingClient(place["flight"], timeout=60) as client:
            assert client.rows([2], generation=1).epoch >= GENERATION
            deadline = time.monotonic() + 60
            with pytest.raises(GoneError):
                while time.monotonic() < deadline:  # it answers a moment before it clears up
                    client.rows([2], generation=0)
            while kept.path.exists():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            change(rollback, service, None)
            assert client.rows([2], generation=1).epoch // GENERATION == 1
        [kept] = read_kept(service.tables)
        assert server.stop() == 0
        assert (kept.path.exists(), (service.tables / FILE).exists()) == (False, False)
    finally:
        server.end()


def test_conditions_that_a_kept_generation_can_not_meet(jobs: Jobs, tmp_path: Path) -> None:
    """It says so at once; what a client has seen of the current one is no condition on it."""
    service = Service(tmp_path / "V")
    change(promote, service, tmp_path / "a1")
    server = serving(tmp_path, "--keep", "1h")
    try:
        place = server.start()
        change(promote, service, tmp_path / "b2")
        for at in (place["flight"], service.tables):
            with EmbeddingClient(at, timeout=60) as client:
                assert client.rows([2]).epoch >= GENERATION
                last = client.rows([2], generation=0).epoch
                assert client.rows([2], generation=0, min_epoch=last).epoch == last
                began = time.monotonic()
                for asked in ({"min_epoch": last + 1}, {"min_position": {"0": 10 * last}}):
                    with pytest.raises(NotYetError, match="generation 0 is kept as it was, and goes no further"):
                        client.get([2], generation=0, **asked)
                assert time.monotonic() - began < 30
                assert client.rows([2], generation=1, min_epoch=GENERATION).epoch >= GENERATION
        with EmbeddingClient(place["flight"], timeout=60) as client:
            client.rows([2])
            stream = flight.connect(f"grpc://{place['flight']}").do_exchange(flight.FlightDescriptor.for_command(b"{}"))
            batch = client.get([2]).select(["id"]).to_batches()[0]
            stream[0].begin(batch.schema)
            stream[0].write_with_metadata(batch, b'{"generation":0}')
            said = orjson.loads(stream[1].read_chunk().app_metadata.to_pybytes())
            assert (said["kind"], "give it in a ticket" in said["error"]) == ("bad-request", True)
            stream[0].write_with_metadata(batch, b"")
            assert orjson.loads(stream[1].read_chunk().app_metadata.to_pybytes())["generation"] == 1
            stream[0].close()
        asyncio.run(rows_of_async_client(place["flight"]))
    finally:
        server.end()


async def rows_of_async_client(at: str) -> None:
    """An asynchronous client asks by number, too."""
    async with AsyncEmbeddingClient(at, timeout=60) as client:
        rows: Rows = await client.rows([2, 3, 4], generation=0)
    checked(rows[2], rows.epoch, 0)


def test_a_server_without_a_service_has_no_generations(jobs: Jobs, tmp_path: Path) -> None:
    server = Server(tmp_path / "a1")
    try:
        place = server.start()
        for at in (place["flight"], tmp_path / "a1" / "tables"):
            with (
                EmbeddingClient(at, timeout=60) as client,
                pytest.raises(
                    BadRequestError, match="generation: this server is of one job, without generations, got 0"
                ),
            ):
                client.get([2], generation=0)
        reply = httpx.get(f"http://{place['http']}/embeddings/2?generation=0", trust_env=False)
        assert (reply.status_code, reply.json()["kind"]) == (400, "bad-request")
        assert httpx.get(f"http://{place['http']}/embeddings/2?generation=-1", trust_env=False).status_code == 422
        described = httpx.get(f"http://{place['http']}/openapi.json", trust_env=False).json()["paths"]
        assert "generation" in [one["name"] for one in described["/embeddings"]["get"]["parameters"]]
    finally:
        server.end()
    with pytest.raises(SystemExit) as end:
        cli.main(["serve", "--tables", str(tmp_path / "a1" / "tables"), "--keep", "1h"])
    assert end.value.code == 2


def test_a_full_disk_keeps_nothing_and_the_service_goes_on(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ServedJob.read(tmp_path / "a1")
    assert job is not None

    class Table:
        path = tmp_path / "some.table"

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    kept = kept_tables.KeptTables(tmp_path, 1.0)
    monkeypatch.setattr(kept_tables, "write_json", full)
    kept.keep(job.in_generation(3), Table())  # type: ignore[arg-type]
    assert Table() not in kept  # type: ignore[operator]
    assert read_kept(tmp_path) == []
    assert "generation 3: it is not kept" in capsys.readouterr().err
    (tmp_path / FILE).write_text("{")
    assert read_kept(tmp_path) == [], "a damaged file names none"
