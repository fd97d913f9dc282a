"""A server's processes beside clients that read nothing, are killed, or wait: memory, health, and what comes back."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import orjson
import pyarrow.flight as flight
import pytest

from freshet.job.serving.bounds.budget import ALL_BYTES_MAX
from freshet.job.serving.tables.place import read_server
from freshet.state.block_columns import DTYPES, POSITIONS, ROWS
from freshet.state.codec import Block, Header
from tests.support.runs.jobs import ROOT
from tests.support.serving.hand_job import WIDTH, HandJob
from tests.support.serving.server import Server
from tests.support.stages.sunk import control
from tests.unit.job.serving.test_bounds import EXHAUSTED, MIB, connected, until

MANY = 1_500_000  # rows of 32 bytes: what each of 40 streams held before


def many_rows(out: Path, rows: int) -> None:
    """A job's folder with so many rows at epoch 1."""
    hand = HandJob(out, parts=1)
    columns = {"key": np.arange(rows), "row": np.ones((rows, WIDTH), np.float32), "ctl": control(arrival=1)}
    columns |= {name: np.array([10], DTYPES[name]) for name in POSITIONS[2:]}
    columns |= {name: np.array([0], DTYPES[name]) for name in POSITIONS[:2]}
    hand.sinks[0].apply(1, [Block(Header(ROWS, 1, 1, 0), columns)])
    hand.settle()
    hand.close()


def anonymous_mib(pid: int) -> int:
    told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(told["RssAnon"].split()[0]) >> 10


READS_ONE = """
import sys, time, pyarrow.flight as flight
client = flight.connect("grpc://" + sys.argv[1])
streams = [client.do_get(flight.Ticket(b'{"all":true}')) for _ in range(4)]
for stream in streams:
    stream.read_chunk()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def process(tmp_path_factory) -> Iterator[Server]:
    out = tmp_path_factory.mktemp("many") / "O"
    many_rows(out, MANY)
    server = Server(out)
    try:
        http = server.start("--workers", "2")["http"]
        until(lambda: httpx.get(f"http://{http}/healthz", timeout=60).json().get("epoch") == 1)
        yield server
        assert server.stop() == 0
    finally:
        server.end()


def in_flight(http: str) -> float:
    try:
        text = httpx.get(f"http://{http}/metrics", timeout=60).text
    except httpx.TransportError:  # the process that was asked is being killed
        return -1.0
    told = [line for line in text.splitlines() if line.startswith("freshet_bytes_in_flight ")]
    return float(told[0].split()[1]) if told else -1.0  # one that has just begun has no figures yet


def assert_health_at_once(http: str, address: str) -> None:
    """A second is what is wanted; this machine may be busy."""
    with connected(address) as client:
        for _ in range(5):
            began = time.monotonic()
            assert httpx.get(f"http://{http}/healthz", timeout=60).status_code == 200
            assert list(client.do_action(flight.Action("health", b"")))
            assert time.monotonic() - began < 30


@pytest.mark.parametrize("ticket", [b'{"all":true}', b'{"changes":true}', b'{"all":true,"logits":true}'])
def test_streams_that_nobody_reads_hold_no_copy(process, ticket):
    told = read_server(process.tables)
    address, http, pid = told["flight"], told["http"], told["pid"]
    began = anonymous_mib(pid)
    clients = [flight.connect(f"grpc://{address}") for _ in range(40)]
    standing = [client.do_get(flight.Ticket(ticket)) for client in clients]
    until(lambda: in_flight(http) > 40 * MIB)  # in whichever process is asked
    time.sleep(1)  # for more, if anything made it
    assert 40 * MIB < in_flight(http) < ALL_BYTES_MAX
    assert anonymous_mib(pid) - began < 600, "40 copies would be 1,800 MiB"
    assert_health_at_once(http, address)
    rows = sum(chunk.data.num_rows for chunk in standing.pop(0)) if b"all" in ticket else MANY
    assert rows == MANY
    for stream in standing:
        stream.cancel()
    for client in clients:
        client.close()
    until(lambda: in_flight(http) == 0)


def test_clients_that_are_killed_give_back_what_they_held(process):
    told = read_server(process.tables)
    command = [sys.executable, "-c", READS_ONE, told["flight"]]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as reader:
        try:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"ready\n"
            until(lambda: in_flight(told["http"]) > 4 * MIB)
        finally:
            reader.kill()
    until(lambda: in_flight(told["http"]) == 0)
    body = {"features": ["embedding"] * 20, "entities": {"id": list(range(50_000))}}  # more than a socket takes
    with httpx.stream("POST", f"http://{told['http']}/get-online-features", json=body, timeout=60) as answer:
        assert answer.status_code == 200
        parts = answer.iter_raw(1000)
        next(parts)
        until(lambda: in_flight(told["http"]) > MIB)
    until(lambda: in_flight(told["http"]) == 0)


def test_a_worker_that_is_killed_gives_back_what_it_held(process):
    told = read_server(process.tables)
    _, other = told["flights"]
    with connected(other.partition("://")[2]) as client:
        standing = client.do_get(flight.Ticket(b'{"all":true}'))
        standing.read_chunk()
        until(lambda: in_flight(told["http"]) > MIB)
        [worker] = told["workers"]
        subprocess.run(["kill", "-9", str(worker)], check=True)
        until(lambda: in_flight(told["http"]) == 0)
    until(lambda: read_server(process.tables)["workers"] != [worker])


def test_health_beside_two_hundred_that_wait(process):
    told = read_server(process.tables)
    ticket = flight.Ticket(orjson.dumps({"ids": [1], "min_epoch": 10**6, "timeout": 6}))
    said: list[str] = []

    def wait() -> None:
        with connected(told["flight"]) as client:
            try:
                client.do_get(ticket).read_all()
            except flight.FlightError as error:
                said.append(str(error))

    threads = [threading.Thread(target=wait) for _ in range(200)]
    for thread in threads:
        thread.start()
    assert_health_at_once(told["http"], told["flight"])
    for thread in threads:
        thread.join(300)
    assert len(said) == 200
    assert all("expected epoch 1000000" in one or one.startswith(EXHAUSTED) for one in said)
    assert_health_at_once(told["http"], told["flight"])
