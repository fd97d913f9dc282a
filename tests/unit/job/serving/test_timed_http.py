"""Requests that never end lose their connections; those that take their time elsewhere do not."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from freshet.job.serving.doors import timed_http
from freshet.job.serving.doors.answering import Answering
from freshet.job.serving.doors.http_front import Front
from tests.support.serving.served import Served
from tests.unit.job.serving.test_workers import doors

LIMIT_S = 0.6
PATIENT_S = 60.0  # for tests whose requests do come: this process may wait long for a core
TLS = Path(__file__).parents[3] / "data" / "tls"
SHOWN = {"cert": str(TLS / "cert.pem"), "key": str(TLS / "key.pem")}
HEAD = b"GET /embeddings/2 HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "tls"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, bool]]:
    before, timed_http.REQUEST_S = timed_http.REQUEST_S, PATIENT_S  # of each handshake
    one = Served(tmp_path_factory.mktemp("served") / "O", "int")
    told = doors(**(SHOWN if request.param else {}))
    answering = Answering(told, 0, one.lookup, one.health)
    answering.start()
    timed_http.REQUEST_S = LIMIT_S
    yield told.http_port, request.param
    answering.stop()
    one.close()
    timed_http.REQUEST_S = before


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_http, "REQUEST_S", PATIENT_S)


def connected(port: tuple[int, bool]) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", port[0]), 60)
    if not port[1]:
        return plain
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain)


def cut(connection: socket.socket, begin: bytes, drip: bytes = b"", every_s: float = 0.05) -> bytes:
    """Send a beginning, and a little again and again, until the server ends the connection; what it said."""
    deadline, said = time.monotonic() + 60, b""
    connection.settimeout(every_s)
    while time.monotonic() < deadline:
        try:
            with suppress(OSError):  # it has just been ended: what the server said is there still
                connection.sendall(begin)
            begin = drip
            got = connection.recv(4096)
            if not got:
                return said
            said += got
        except TimeoutError:
            continue
        except OSError:
            return said
    pytest.fail(f"still open, after {said!r}")


def answered(connection: socket.socket, end: Callable[[bytes], bool]) -> bytes:
    """What comes, up to that end of it."""
    said = b""
    while not end(said):
        got = connection.recv(4096)
        assert got, f"the connection has ended after {said!r}"
        said += got
    return said


@contextmanager
def at_least(seconds: float) -> Iterator[None]:
    """Assert that it takes no less; it begins before the server's clock does, however slow this process is."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began >= seconds


def test_the_limit_is_ten_seconds() -> None:
    assert timed_http.TimedProtocol.__module__ == timed_http.__name__
    assert Path(timed_http.__file__).read_text().count("REQUEST_S = 10.0") == 1


@pytest.mark.parametrize("begin", [b"", HEAD], ids=["nothing", "headers"])
@pytest.mark.parametrize("drip", [b"", b"X-A: b\r\n"], ids=["silent", "dripping"])
def test_headers_that_never_end(port: tuple[int, bool], begin: bytes, drip: bytes) -> None:
    if not begin and drip:
        begin = b"GET / HTTP/1.1\r\n"
    for _ in range(10 if begin else 1):  # it may have been cut before this process had a core to begin with
        with at_least(0.8 * LIMIT_S), connected(port) as connection:
            said = cut(connection, begin, drip)
        if said:
            break
    assert said.startswith(b"HTTP/1.1 408 ") if begin else not said


@pytest.mark.parametrize("asked", ["POST /embeddings", "POST /healthz", "POST /nearest", "HEAD /embeddings", "HEAD /x"])
@pytest.mark.parametrize("drip", [b"", b"1"], ids=["silent", "dripping"])
def test_bodies_that_never_end(port: tuple[int, bool], asked: str, drip: bytes) -> None:
    with at_least(0.8 * LIMIT_S), connected(port) as connection:
        cut(connection, (POST % 100_000).replace(b"POST /embeddings", asked.encode()), drip)


def test_a_second_request_that_never_ends(
    port: tuple[int, bool], patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(port) as connection:
        for _ in range(2):
            connection.sendall(HEAD + b"\r\n")
            said = answered(connection, lambda said: said.endswith(b"}"))
            assert said.startswith(b"HTTP/1.1 200 ")
            monkeypatch.setattr(timed_http, "REQUEST_S", LIMIT_S)  # it is connected: the next comes in one piece
        time.sleep(2 * LIMIT_S)  # nothing is awaited: the connection stays
        assert b"HTTP/1.1 408 " in cut(connection, HEAD, b"X-A: b\r\n")


def test_a_request_in_pieces_is_answered(port: tuple[int, bool], patient: None) -> None:
    body = b'{"ids": [2, 3]}'
    with connected(port) as connection:
        for piece in (HEAD[:10], HEAD[10:], b"\r\n", (POST % len(body))[:30], (POST % len(body))[30:] + body):
            connection.sendall(piece)
            time.sleep(0.05)
        answered(connection, lambda said: said.count(b"HTTP/1.1 200 ") == 2)


def test_a_handshake_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_http, "REQUEST_S", LIMIT_S)
    one = Served(tmp_path / "O", "int")
    told = doors(**SHOWN)
    answering = Answering(told, 0, one.lookup, one.health)
    answering.start()
    try:
        with at_least(0.8 * LIMIT_S), socket.create_connection(("127.0.0.1", told.http_port), 60) as connection:
            cut(connection, b"\x16\x03\x01")  # the beginning of a ClientHello
    finally:
        answering.stop()
        one.close()


def test_an_answer_that_takes_long_is_waited_for(
    tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        with connected((told.http_port, False)) as connection:
            connection.sendall(HEAD + b"\r\n")
            answered(connection, lambda said: said.endswith(b"}"))
            monkeypatch.setattr(timed_http, "REQUEST_S", 0.2)  # it is connected: the next comes in one piece
            front.app = slow
            connection.sendall(HEAD + b"\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    finally:
        answering.stop()
        one.close()
