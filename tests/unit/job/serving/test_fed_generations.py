"""Servers that feed from a server of a service: they follow it from job to job, with its epochs and generations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow.flight as flight
import pytest

from freshet import EmbeddingClient, GoneError
from freshet.job.errors import UsageError
from freshet.job.service.generations import GENERATION, Service
from freshet.job.serving.feeds import table_progress
from freshet.job.serving.feeds.fed_job import FedJob, FedServers
from freshet.job.serving.feeds.feed import ServeOptions, feeds_of
from freshet.job.serving.feeds.table_progress import Place, TableProgress
from freshet.job.serving.promotion import promote, rollback
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.sink.tail.layout import TailNote
from freshet.state.served.times import Moment
from tests.support.serving.server import Server
from tests.support.serving.two_jobs import Jobs, Reader, by_client, by_http, by_rows, change

NAMES = ["a1", "b2", "a1", "b2"]


@pytest.fixture
def source(jobs: Jobs, tmp_path: Path) -> Iterator[Server]:
    change(promote, Service(tmp_path / "V"), tmp_path / "a1")
    found = Server(tmp_path / "V", of=("--service", str(tmp_path / "V")))
    yield found
    found.end()


def fed(folder: Path, *sources: str, options: tuple[str, ...] = ()) -> Server:
    return Server(folder, of=("--from", ",".join(sources), "--tables", str(folder / "tables"), *options))


def until_generation(client: EmbeddingClient, number: int) -> None:
    client.rows([2], min_epoch=number * GENERATION, timeout=60)


@pytest.mark.long
def test_a_chain_of_servers_follows_a_promotion_and_a_rollback(jobs: Jobs, source: Server, tmp_path: Path) -> None:
    service, servers = Service(tmp_path / "V"), [source]
    servers += [fed(tmp_path / "C", "", options=("--workers", "2")), fed(tmp_path / "D", "")]
    try:
        places = [source.start()]
        for server in servers[1:]:
            server.of = (*server.of[:1], places[-1]["flight"], *server.of[2:])
            places.append(server.start())
        clients = [EmbeddingClient(at["flight"], timeout=60) for at in places[1:] for _ in range(2)]
        clients += [EmbeddingClient(server.tables, timeout=60) for server in servers[1:]]
        reads = [by_client(clients[0]), by_rows(clients[1]), by_client(clients[2]), by_rows(clients[3])]
        reads += [by_client(clients[4]), by_rows(clients[5]), *(by_http(at["http"]) for at in places[1:])]
        readers = [Reader(read, NAMES) for read in reads]
        for reader in readers:
            reader.start()
        made = [service.generations()[0], change(promote, service, tmp_path / "b2")]
        for client in clients:
            until_generation(client, 1)
        made.append(change(rollback, service, None))
        for client in clients:
            until_generation(client, 2)
        for client in clients[:4]:
            assert client.health()["generation"] == 2
        for client in clients:
            metadata = client.get([2]).schema.metadata
            assert (metadata[b"generation"], metadata[b"model"].decode()) == (b"2", made[2].model)
            assert client.get([2], generation=2).num_rows == 1
            with pytest.raises(GoneError):
                client.get([2], generation=0)
        positions = [httpx.get(f"http://{at['http']}/healthz", trust_env=False).json()["positions"] for at in places]
        assert all(one[0]["epoch"] >= 2 * GENERATION for one in positions)
        own = positions[2][0]
        assert own["next_offset"] == 10 * (own["epoch"] % GENERATION)
        for reader in readers:
            reader.stop.set()
            reader.join()
        assert [reader.wrong[:3] for reader in readers] == [[]] * len(readers)
        assert all(reader.answers > 20 for reader in readers)
        assert {reader.generations[-1] for reader in readers} == {2}
        assert all(reader.generations == sorted(reader.generations) for reader in readers)
        for client in clients:
            client.close()
    finally:
        for server in servers[1:]:
            server.end()


@pytest.mark.long
def test_a_server_that_was_away_comes_to_the_current_generation(jobs: Jobs, source: Server, tmp_path: Path) -> None:
    """Also where the same job serves again; times in answers do not go back."""
    service, second = Service(tmp_path / "V"), fed(tmp_path / "C", source.start()["flight"])
    try:
        with EmbeddingClient(second.start()["flight"], timeout=60) as client:
            before = client.get([2]).schema.metadata
        second.kill()
        change(promote, service, tmp_path / "b2")
        change(rollback, service, None)
        with EmbeddingClient(second.start()["flight"], timeout=60) as client:
            until_generation(client, 2)
            after = client.get([2]).schema.metadata
            assert int(after[b"epoch"]) > 2 * GENERATION > int(before[b"epoch"])
            if b"as_of_ms" in before:
                assert int(after[b"as_of_ms"]) >= int(before[b"as_of_ms"])
        recorded = FedJob.recorded(second.tables)
        assert recorded is not None
        assert recorded.identity == (service.generations()[2].job_id, 2)
        source.stop()
        second.kill()
        with EmbeddingClient(second.start()["flight"], timeout=60) as client:
            assert client.rows([2]).epoch >= int(after[b"epoch"]), "by its own table, without the source"
    finally:
        second.end()


def test_whoever_asks_for_another_generation_gets_nothing(jobs: Jobs, source: Server, tmp_path: Path) -> None:
    """Such as a server of an earlier version, which would take served epochs for those of the job."""
    service, place = Service(tmp_path / "V"), source.start()
    change(promote, service, tmp_path / "b2")
    servers = FedServers([place["flight"]], None)
    job = servers.job(tmp_path / "C" / "tables", lambda: False, 0.0)
    assert (job.generation, job.model_sha256) == (1, service.generations()[1].model)
    [at] = servers.all()[0]
    assert servers.identity_of(at) == job.identity == (service.generations()[1].job_id, 1)
    pieces = servers.tails(job, [0, 0], at)
    head = next(pieces)[0]
    assert 0 < head["table"] < GENERATION, "tails have the epochs of the job"
    assert next(servers.changes(job, at))[0]["epoch"] >= GENERATION
    for number, said in ((None, "asks for a job without a generation"), (0, "generation 0 of .* is of generation 1")):
        other = replace(job, generation=number)
        for stream in (servers.tails(other, [0, 0], at), servers.changes(other, at)):
            with pytest.raises(flight.FlightError, match=f"bad-request: .*{said}"):
                next(stream)
    change(rollback, service, None)
    with pytest.raises(flight.FlightError, match="generation 2, the job"):
        for _ in pieces:
            pass


def test_tails_of_one_job_do_not_go_with_a_service(
    jobs: Jobs, source: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose tails are of one job could not follow the next one."""
    place, tables = source.start(), tmp_path / "C" / "tables"
    job = ServedJob.read(tmp_path / "a1")
    assert job is not None
    note = {"job_id": job.job_id, "model_folder": str(tmp_path / "none")}
    monkeypatch.setattr(TailNote, "read", lambda folder: note if folder.parent == tables else None)
    servers = FedServers([place["flight"]], None)
    with pytest.raises(UsageError, match=r"it is of a service, and .*tables has the tails of one job"):
        servers.job(tables, lambda: False, 0.0)


@pytest.mark.parametrize(
    ("found", "is_taken"),
    [(("a1", 0), False), (("a1", 2), True), (("b2", 1), True), (("b2", 0), False), (("b2", None), False)],
)
def test_what_takes_the_place_of_a_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: tuple[str, int | None], is_taken: bool
) -> None:
    """Another one, but none before it: a server that lags may answer first; and no job without generations."""
    sent: dict[str, Any] = {"job_id": "a1", "strings": False, "width": 4, "sources": ["s"], "parts": 2}

    def asked(_servers: FedServers, _tables: Path) -> Any:
        return {**sent, "model_digest": "", "kind_name": "", "begins_empty": False}, ""

    monkeypatch.setattr(FedServers, "first_asked", asked)
    sent["generation"] = 1 if found == ("a1", 0) or found[0] == "b2" else 0
    if found == ("b2", 1):
        sent["generation"] = 0
    [feed] = feeds_of(ServeOptions(tables=tmp_path / "tables", sources=("one:1",), wait_s=0.0), lambda: False)
    assert feed.job.generation == sent["generation"]
    assert feed.renewed(feed.job) is None, "it is the one that is followed"
    sent["job_id"], sent["generation"] = found
    renewed = feed.renewed(feed.job)
    assert (renewed is not None) == is_taken
    assert renewed is None or renewed.identity == found


class Progress(TableProgress):
    """A table of an epoch, and how far it has read."""

    def __init__(self, folder: Path, epoch: int, upto: dict[Place, int]) -> None:
        super().__init__(FedJob(folder, "b2", 2, False, ("s",), "", generation=1), folder)
        self.table = SimpleNamespace(epoch=epoch, mem=None)  # type: ignore[assignment]
        self.upto = upto

    def read_upto(self) -> dict[Place, int]:
        return self.upto


def test_a_table_waits_for_what_readers_have_seen_of_the_job_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every partition, whatever its epoch is; and its times begin there."""
    noted = list[Any]()
    monkeypatch.setattr(table_progress, "times_so_far", lambda mem, epoch: Moment(3, 4))
    monkeypatch.setattr(table_progress, "note_generation", lambda *given, is_new: noted.append((*given, is_new)))
    former = Progress(tmp_path, 7, {("s", 0): 10, ("s", 1): 5})
    former.not_before(7)
    following = Progress(tmp_path, GENERATION + 1, {("s", 0): 10})
    following.take_place_of(former)
    assert (following.seen, following.is_behind) == (7, True), "it has read less of a partition"
    following.upto[("s", 1)] = 5
    assert not following.is_behind
    following.note(1)
    assert noted == [(tmp_path, 1, following.table, Moment(3, 4), True)]
