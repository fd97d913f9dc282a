"""A server of several processes: all answer from one table, and one that is killed comes back."""

from __future__ import annotations

import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import orjson
import psutil
import pyarrow.flight as flight
import pytest

from freshet.job.serving.clients.client import EmbeddingClient
from freshet.job.serving.protocol.tls import Address
from freshet.job.serving.tables.place import SHM, mark_of, read_server
from tests.support.serving.hand_job import WIDTH, HandJob
from tests.support.serving.server import Server

pytestmark = pytest.mark.slow
WORKERS = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[HandJob, Server]]:
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []))
    one = Server(tmp_path / "O")
    yield hand, one
    one.end()
    print(one.log())  # shown where a test fails
    hand.close()


def until(what: str, condition: Callable[[], bool], timeout_s: float = 300.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.mark.parametrize("tls", [False, True])
def test_all_answer_and_one_is_killed(server: tuple[HandJob, Server], tls: bool) -> None:
    hand, one = server
    files = Path(__file__).parents[1] / "data" / "tls"
    shown = ("--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "key.pem")) if tls else ()
    roots = {"tls_roots": files / "cert.pem"} if tls else {}
    told = one.start("--workers", str(WORKERS), *shown)
    listed = flight.connect(told["flight"] if tls else f"grpc://{told['flight']}", **_trust(roots))
    until("three", lambda: len(read_server(one.tables).get("workers", ())) == WORKERS - 1)
    told = read_server(one.tables)
    ports = [int(place.rpartition(":")[2]) for place in told["flights"]]
    for info in (next(iter(listed.list_flights())), listed.get_flight_info(flight.FlightDescriptor.for_path("x"))):
        assert [place.uri.decode() for place in info.endpoints[0].locations] == told["flights"]
    assert len(set(ports)) == WORKERS
    scheme = "grpc+tls://" if tls else ""
    until("all answer", lambda: all(_ready(f"{scheme}127.0.0.1:{port}", roots) for port in ports))
    clients = [EmbeddingClient(told["flight"], timeout=60, **roots) for _ in range(2 * WORKERS)]
    for client in clients:
        assert client.rows([2])[2].tolist() == [[1.0] * WIDTH]
        client.epoch()
    counts = [_found(flight.connect(place, **_trust(roots))) for place in told["flights"]]
    assert counts == [2] * WORKERS, "each has answered as many"
    stop, failed = threading.Event(), []

    def ask() -> None:
        try:
            with EmbeddingClient(told["flight"], timeout=60, **roots) as mine:
                while not stop.is_set():
                    mine.rows([2, 3])
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    victim = told["workers"][0]
    os.kill(victim, signal.SIGKILL)
    until("it is dead, and takes no connection", lambda: not psutil.pid_exists(victim))
    hand.apply(2, ({2: 2.0}, []))
    for client in clients:
        assert client.rows([2], min_epoch=2)[2].tolist() == [[2.0] * WIDTH]
    trusts = {"verify": ssl.create_default_context(cafile=str(files / "cert.pem"))} if tls else {}
    url = told["http"] if tls else f"http://{told['http']}"
    for _ in range(12):
        answer = httpx.get(f"{url}/embeddings/2", trust_env=False, timeout=60, **trusts)
        assert answer.json()["embedding"] == [2.0] * WIDTH
    until("another one", lambda: victim not in (now := read_server(one.tables)["workers"]) and len(now) == 2)
    until("all answer again", lambda: all(_ready(f"{scheme}127.0.0.1:{port}", roots) for port in ports))
    stop.set()
    for thread in threads:
        thread.join(300)
    assert not failed
    workers = read_server(one.tables)["workers"]
    for client in clients:
        client.close()
    listed.close()
    assert one.stop() == 0
    until("they end with it", lambda: not any(psutil.pid_exists(pid) for pid in workers))
    assert not list(SHM.glob(f"freshet-*-{mark_of(one.tables)}-*"))


@pytest.mark.parametrize("paused", [False, True])
def test_workers_end_with_a_server_that_is_killed(server: tuple[HandJob, Server], paused: bool) -> None:
    """`paused`: any thread of a worker that stood still may get the signal then."""
    _, one = server
    one.start("--workers", "2")
    until("two", lambda: len(read_server(one.tables).get("workers", ())) == 1)
    [worker] = read_server(one.tables)["workers"]
    port = int(read_server(one.tables)["flights"][1].rpartition(":")[2])
    until("it answers", lambda: _ready(f"127.0.0.1:{port}", {}))
    if paused:
        os.kill(worker, signal.SIGSTOP)
        until("it stands still", lambda: psutil.Process(worker).status() == psutil.STATUS_STOPPED)
    one.kill()
    if paused:
        os.kill(worker, signal.SIGCONT)
    until("it ends", lambda: not psutil.pid_exists(worker))


def _trust(roots: dict[str, Path]) -> dict[str, bytes]:
    return {"tls_root_certs": roots["tls_roots"].read_bytes()} if roots else {}


def _ready(address: str, roots: dict[str, Path]) -> bool:
    found = Address.parse(address)
    assert found is not None
    location = flight.connect(found.location(), **_trust(roots))
    try:
        list(location.do_action(flight.Action("health", b""), flight.FlightCallOptions(timeout=10)))
    except flight.FlightError:
        return False
    finally:
        location.close()
    return True


def _found(client: flight.FlightClient) -> int:
    [told] = client.do_action(flight.Action("health", b""))
    client.close()
    return int(orjson.loads(told.body.to_pybytes())["ids_found"])
