"""What callers without a token get, and which servers may do without one."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from freshet import EmbeddingClient
from freshet.job.errors import UsageError
from freshet.job.serving.doors.http_front import Front
from freshet.job.serving.feeds.feed import Feed, ServeOptions
from freshet.job.serving.server import _Servers, check_token, serve
from freshet.job.serving.tables import place
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import CurrentTable, JobHere
from freshet.job.serving.tables.served_job import ServedJob
from tests.support.runs.listening import has_ipv6
from tests.support.serving.served import Served

OPEN = [
    "0.0.0.0",
    "::",
    "192.168.1.7",
    "10.0.0.1",
    "fe80::1",
    "example.org",
    "one",
    "0",
    "",
    "::ffff:0.0.0.0",
    "2130706433",
]
ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("host", OPEN)
@pytest.mark.parametrize("token", [None, ""])
def test_a_host_that_others_reach_wants_a_token(host: str, token: str | None) -> None:
    with pytest.raises(UsageError, match=r"--host .*: whoever reaches .* --without-token to let them$"):
        check_token(ServeOptions(Path("O/tables"), host, token=token))
    check_token(ServeOptions(Path("O/tables"), host, token="secret"))
    check_token(ServeOptions(Path("O/tables"), host, token=token, without_token=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_the_machine_itself_wants_none(host: str) -> None:
    check_token(ServeOptions(Path("O/tables"), host))


def test_both_are_a_mistake() -> None:
    with pytest.raises(UsageError, match="leave one of the two out"):
        check_token(ServeOptions(Path("O/tables"), "0.0.0.0", token="secret", without_token=True))


def test_the_command_ends_with_2_before_it_waits_for_anything(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "FRESHET_TOKEN"}
    command = [
        sys.executable,
        "-m",
        "freshet.job.cli",
        "serve",
        "--tables",
        str(tmp_path / "O" / "tables"),
        "--host",
        "0.0.0.0",
    ]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("freshet: --host 0.0.0.0: ")
    assert not (tmp_path / "O").exists()


def test_health_tells_those_without_the_token_nothing_else(tmp_path: Path) -> None:
    one = Served(tmp_path / "O", "int", token="secret")
    try:
        early = TestClient(Front(one.health, "secret"))  # the application is still loading
        for client in (one.http, early):
            for path in ("/healthz", "/readyz"):
                for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": ""}):
                    answer = client.get(path, headers=headers)
                    assert (answer.status_code, answer.json()) == (200, {"ready": True})
                answer = client.get(path, headers={"Authorization": "Bearer secret"})
                assert answer.json()["tables"] == str(tmp_path / "O" / "tables")
        stale = TestClient(Front(one.health, "secret"))
        one.health._stale_after_s = -1.0
        assert [stale.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 503]
        assert stale.get("/readyz").json() == {"ready": False}
        for client in (stale, one.http):  # as Kubernetes asks: a stale server answers as before
            for headers in ({}, {"Authorization": "Bearer secret"}):
                answer = client.get("/readyz?stale=ok", headers=headers)
                assert (answer.status_code, answer.json()["ready"]) == (200, False)
                assert client.get("/readyz?stale=no", headers=headers).status_code == 503
    finally:
        one.close()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7", "a..b", "x" * 70])
def test_a_host_that_is_not_here(host: str) -> None:
    with pytest.raises(UsageError, match=r"^--host .*: this machine can't listen there: .*; give an address of it"):
        serve(ServeOptions(Path("O/tables"), host, token="secret"))


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_the_loopback_address_of_ipv6(tmp_path: Path) -> None:
    one = Served(tmp_path / "O", "int")
    job = ServedJob.read(tmp_path / "O")
    assert job is not None
    tables = tmp_path / "O" / "tables"
    lookup, feeds = Lookup(CurrentTable(tables, JobHere.of(job))), [Feed(tables, job, lambda _: one.follower)]
    servers = _Servers(ServeOptions(tables, "::1", port=0, http_port=0), lookup, one.health, feeds)
    try:
        servers.start()
        servers.announce()
        told = place.read_server(tmp_path / "O" / "tables")
        with urllib.request.urlopen(f"http://{told['http']}/embeddings/2", timeout=60) as answer:
            assert answer.status == 200
        with EmbeddingClient(told["flight"], timeout=60) as client:
            assert client.get([2]).num_rows == 1
    finally:
        servers.stop()
        one.close()
