"""Requests that never end lose their connections; those that take their time elsewhere do not."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from freshet.job.serving.http_front import Front
from freshet.job.serving.workers import timed_http
from freshet.job.serving.workers.answering import Answering
from tests.support.serving.served import Served
from tests.unit.job.serving.test_workers import doors

LIMIT_S = 0.6
TLS = Path(__file__).parents[3] / "data" / "tls"
HEAD = b"GET /embeddings/2 HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "tls"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, bool]]:
    before, timed_http.REQUEST_S = timed_http.REQUEST_S, LIMIT_S
    one = Served(tmp_path_factory.mktemp("served") / "O", "int")
    shown = {"cert": str(TLS / "cert.pem"), "key": str(TLS / "key.pem")} if request.param else {}
    told = doors(**shown)
    answering = Answering(told, 0, one.lookup, one.health)
    answering.start()
    yield told.http_port, request.param
    answering.stop()
    one.close()
    timed_http.REQUEST_S = before


def connected(port: tuple[int, bool]) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", port[0]), 20)
    if not port[1]:
        return plain
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain)


def cut_after(connection: socket.socket, drip: Callable[[], bytes], every_s: float = 0.05) -> tuple[float, bytes]:
    """Send a little again and again until the server ends the connection; after how long, and what it said."""
    began, said = time.monotonic(), b""
    connection.settimeout(every_s)
    while time.monotonic() - began < 20:
        try:
            if piece := drip():
                connection.sendall(piece)
            got = connection.recv(4096)
            if not got:
                return time.monotonic() - began, said
            said += got
        except TimeoutError:
            continue
        except OSError:
            return time.monotonic() - began, said
    pytest.fail(f"still open, after {said!r}")


def test_the_limit_is_ten_seconds() -> None:
    assert timed_http.TimedProtocol.__module__ == timed_http.__name__
    assert Path(timed_http.__file__).read_text().count("REQUEST_S = 10.0") == 1


@pytest.mark.parametrize("begin", [b"", HEAD], ids=["nothing", "headers"])
@pytest.mark.parametrize("drip", [b"", b"X-A: b\r\n"], ids=["silent", "dripping"])
def test_headers_that_never_end(port: tuple[int, bool], begin: bytes, drip: bytes) -> None:
    if not begin and drip:
        begin = b"GET / HTTP/1.1\r\n"
    with connected(port) as connection:
        connection.sendall(begin)
        took, said = cut_after(connection, lambda: drip)
    assert took >= 0.8 * LIMIT_S
    assert said.startswith(b"HTTP/1.1 408 ") if begin else not said


@pytest.mark.parametrize("asked", ["POST /embeddings", "POST /healthz", "POST /nearest", "HEAD /embeddings", "HEAD /x"])
@pytest.mark.parametrize("drip", [b"", b"1"], ids=["silent", "dripping"])
def test_bodies_that_never_end(port: tuple[int, bool], asked: str, drip: bytes) -> None:
    with connected(port) as connection:
        connection.sendall((POST % 100_000).replace(b"POST /embeddings", asked.encode()))
        took, _ = cut_after(connection, lambda: drip)
    assert took >= 0.8 * LIMIT_S


def test_a_second_request_that_never_ends(port: tuple[int, bool]) -> None:
    with connected(port) as connection:
        for _ in range(2):
            connection.sendall(HEAD + b"\r\n")
            said = b""
            while not said.endswith(b"}"):
                said += connection.recv(4096)
            assert said.startswith(b"HTTP/1.1 200 ")
            time.sleep(2 * LIMIT_S)  # nothing is awaited: the connection stays
        connection.sendall(HEAD)
        cut_after(connection, lambda: b"X-A: b\r\n")


def test_a_request_in_pieces_is_answered(port: tuple[int, bool]) -> None:
    body = b'{"ids": [2, 3]}'
    with connected(port) as connection:
        for piece in (HEAD[:10], HEAD[10:], b"\r\n", (POST % len(body))[:30], (POST % len(body))[30:] + body):
            connection.sendall(piece)
            time.sleep(0.05)
        said = b""
        while said.count(b"HTTP/1.1 200 ") < 2:
            said += connection.recv(4096)


def test_a_handshake_that_never_ends(port: tuple[int, bool]) -> None:
    if not port[1]:
        pytest.skip("no handshake")
    with socket.create_connection(("127.0.0.1", port[0]), 20) as connection:
        connection.sendall(b"\x16\x03\x01")  # the beginning of a ClientHello
        took, _ = cut_after(connection, lambda: b"")
    assert took >= 0.8 * LIMIT_S


def test_an_answer_that_takes_long_is_waited_for(tmp_path: Path) -> None:
    before, timed_http.REQUEST_S = timed_http.REQUEST_S, 0.2
    one = Served(tmp_path / "O", "int")
    told = doors()
    answering = Answering(told, 0, one.lookup, one.health)

    async def slow(scope: object, receive: object, send: Callable[..., object]) -> None:
        await asyncio.sleep(1.0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    answering.start()
    try:
        front = answering._http.config.app
        assert isinstance(front, Front)
        front.app = slow
        with connected((told.http_port, False)) as connection:
            connection.sendall(HEAD + b"\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    finally:
        answering.stop()
        one.close()
        timed_http.REQUEST_S = before
