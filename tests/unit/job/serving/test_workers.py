"""What the processes of a server are told, and how they listen."""

from __future__ import annotations

import socket
from dataclasses import asdict, replace

import httpx
import pytest

from freshet.job.machine.ports import server_port
from freshet.job.serving.doors import answering
from freshet.job.serving.doors.answering import Answering, Doors
from freshet.job.serving.doors.tokens import GivenToken
from freshet.job.serving.doors.worker import WorkerSettings
from freshet.job.serving.tables.served import JobHere
from freshet.job.serving.tables.served_job import TailsHere
from tests.support.serving.hand_job import JOB_ID, WIDTH
from tests.support.serving.served import Served


def doors(host: str = "127.0.0.1", **options: object) -> Doors:
    told = {"flight_ports": (server_port(), server_port()), "http_port": server_port(), "tokens": ()}
    return Doors(**{"host": host, "cert": None, "key": None, **told, **options})


def test_what_a_worker_is_told():
    tails = TailsHere("O/tables/tail", JOB_ID, 2, False, WIDTH, True)
    job = JobHere(("a", "b"), "epoch", "user", "user", "", JOB_ID, "M", "abc", tails)
    tables = {"O/tables/user": job._asdict() | {"tails": asdict(tails)}}
    tokens = (GivenToken("--token", "admin", "secret", False, ("secret",)),)
    work = WorkerSettings(doors(tokens=tokens, cors=("*",)), 2, 17, tables, 10.0)
    told = WorkerSettings.load(work.dump())
    assert told == replace(work, tables=told.tables)
    assert {folder: JobHere.described(one) for folder, one in told.tables.items()} == {"O/tables/user": job}


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_where_clients_reach_what_listens_everywhere(host):
    ports = (1, 2)
    assert doors(host, flight_ports=ports).flights == [f"grpc://{socket.gethostname()}:{port}" for port in ports]


def test_processes_share_a_port(tmp_path, monkeypatch):
    monkeypatch.setattr(answering, "END_S", 60.0)  # of calls, of which there are none
    one = Served(tmp_path / "O", "int")
    shared = doors()
    both = [Answering(shared, number, one.lookup, one.health) for number in range(2)]
    try:
        for one_of_both in both:
            one_of_both.start()
            [listening] = one_of_both._http.servers[0].sockets
            # else asyncio leaves Nagle's algorithm on, and each answer waits 40 ms for an acknowledgement
            assert listening.proto == socket.IPPROTO_TCP
        answer = httpx.get(f"http://127.0.0.1:{shared.http_port}/embeddings/2", trust_env=False, timeout=60)
        assert answer.json()["embedding"] == [1.0] * WIDTH
        assert both[0].stop()
        answer = httpx.get(f"http://127.0.0.1:{shared.http_port}/embeddings/2", trust_env=False, timeout=60)
        assert answer.json()["embedding"] == [1.0] * WIDTH
        assert both[1].stop()
    finally:
        one.close()
