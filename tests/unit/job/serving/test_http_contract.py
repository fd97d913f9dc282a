"""HTTP as a contract: each error is {"error", "kind"} with its status; methods, origins, paths with any id."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest
from fastapi.testclient import TestClient

from freshet.job.errors import UsageError
from freshet.job.serving.doors.answering import Answering
from freshet.job.serving.doors.cors import Cors, origins_of
from freshet.job.serving.doors.http_front import BODY_BYTES_MAX, Front
from freshet.job.serving.doors.refusals import STATUS
from tests.support.serving.served import Served
from tests.unit.job.serving.test_workers import doors

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served") / "O", "int")
    yield one
    one.close()


@pytest.fixture(scope="module")
def port(served: Served) -> Iterator[int]:
    there = doors()
    answering = Answering(there, 0, served.lookup, served.health)
    answering.start()
    yield there.http_port
    answering.stop()


REQUEST = b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def refused(answer: Any, status: int, kind: str) -> str:
    assert (answer.status_code, answer.json().get("kind")) == (status, kind), answer.text
    assert isinstance(answer.json()["error"], str)
    assert status in (STATUS[kind], 422)
    return str(answer.json()["error"])


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind", "said"),
    [
        ("GET", "/nothing", None, 404, "unknown-path", "no such path: '"),
        ("GET", "/healthz/", None, 404, "unknown-path", "did you mean .*/healthz?"),
        ("GET", "/nearest", None, 405, "method-not-allowed", "expected one of HEAD, OPTIONS, POST"),
        ("DELETE", "/embeddings", None, 405, "method-not-allowed", "expected one of GET, HEAD, OPTIONS, POST"),
        ("PUT", "/embeddings/2", None, 405, "method-not-allowed", "expected one of GET, HEAD, OPTIONS"),
        ("POST", "/openapi.json", None, 405, "method-not-allowed", "GET"),
        ("GET", "/embeddings/99", None, 404, "unknown", "no vertex '99'"),
        ("POST", "/nearest", {"id": 99}, 404, "unknown", "nearest: no vertex '99'"),
        ("GET", "/embeddings/2?kind=user", None, 400, "bad-request", "kind: this server has embeddings of one kind"),
        ("GET", "/embeddings/2?kind=", None, 400, "bad-request", "kind: .*leave it out"),
        ("POST", "/embeddings", {"ids": [2], "kind": ""}, 400, "bad-request", "kind: .*leave it out"),
        ("POST", "/nearest", {"id": 2, "kind": ""}, 400, "bad-request", "kind: .*leave it out"),
        ("POST", "/score", {"pairs": [[2, 3]], "kinds": ["", ""]}, 400, "bad-request", "kinds: .*leave kinds out"),
        ("GET", "/healthz?kind=user", None, 422, "bad-request", "kind: no such field"),
        ("GET", "/embeddings/%ff", None, 422, "bad-request", "the URL: expected UTF-8"),
        ("POST", "/embeddings", {"id": [2]}, 422, "bad-request", "did you mean ids?"),
        ("GET", "/embeddings/2?min_epoch=99&timeout=0", None, 504, "not-yet", "expected epoch 99"),
    ],
)
def test_refusals(
    served: Served, prefix: str, method: str, path: str, body: Any, status: int, kind: str, said: str
) -> None:
    answer = served.http.request(method, prefix + path, json=body)
    assert re.search(said, refused(answer, status, kind))
    if status == 405:
        assert answer.headers["allow"] == answer.json()["error"].partition("expected one of ")[2]


@pytest.mark.parametrize(
    ("headers", "body", "status", "kind"),
    [
        ({"content-type": "text/plain"}, b'{"ids": [2]}', 415, "unsupported-media-type"),
        ({"content-type": "application/x-www-form-urlencoded"}, b"ids=2", 415, "unsupported-media-type"),
        ({"content-encoding": "gzip"}, b'{"ids": [2]}', 415, "unsupported-media-type"),
        (JSON, b" " * (BODY_BYTES_MAX + 1), 413, "too-large"),
        (JSON | {"content-length": "x"}, b"{}", 411, "length-required"),
        (JSON, b"{", 422, "bad-request"),
    ],
)
def test_bodies_that_are_refused(served: Served, headers: dict[str, str], body: bytes, status: int, kind: str) -> None:
    refused(served.http.post("/v1/embeddings", content=body, headers=headers), status, kind)


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "application/vnd.x+json", "", "APPLICATION/JSON"]
)
def test_bodies_that_are_taken(served: Served, kind: str) -> None:
    headers = {"content-type": kind} if kind else {}
    assert served.http.post("/v1/embeddings", content=b'{"ids": [2]}', headers=headers).status_code == 200
    curl = {"content-type": "application/x-www-form-urlencoded"}  # of `curl -d`
    assert served.http.post("/v1/embeddings", content=b' {"ids": [2]}', headers=curl).status_code == 200


def raw(port: int, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(sent)
        said = b""
        while piece := connection.recv(65536):
            said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


@pytest.mark.parametrize(
    ("sent", "status", "kind"),
    [
        (b"nonsense\r\n\r\n", 400, "bad-request"),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad-request"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400, "bad-request"),  # no Host
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000, 431, "headers-too-large"),
        (b"POST /v1/nearest HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 411, "length-required"),
        (b"POST /v1/nearest HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, "bad-request"),
        (
            b"POST /v1/nearest HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            411,
            "length-required",
        ),
    ],
)
def test_what_is_no_request_is_refused_as_json(port: int, sent: bytes, status: int, kind: str) -> None:
    found, headers, body = raw(port, sent)
    said = orjson.loads(body)
    assert (found, said["kind"], headers["content-type"]) == (status, kind, "application/json")
    assert said["error"]


def test_head_and_options(served: Served, port: int) -> None:
    whole = served.http.get("/v1/embeddings/2")
    head = served.http.head("/v1/embeddings/2")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(whole.content)))
    assert served.http.head("/v1/embeddings/99").status_code == 404
    assert served.http.head("/v1/nearest").status_code == 405
    options = served.http.options("/v1/embeddings")
    assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    assert served.http.options("/v1/nothing").status_code == 404
    status, headers, body = raw(port, b"HEAD /v1/embeddings/2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (status, headers["content-length"], body) == (200, str(len(whole.content)), b"")


ORIGIN, OTHER = "https://example.org", "https://example.org:8443"


def front(*origins: str, token: str | None = "secret") -> TestClient:
    async def behind(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    from freshet.job.serving.bounds.budget import Budget

    health: Any = SimpleNamespace(budget=Budget())
    return TestClient(Front(health, token, behind, Cors(origins_of(origins))))


def test_other_origins() -> None:
    asks = {"origin": ORIGIN, "access-control-request-method": "POST"}
    bears = {"authorization": "Bearer secret"}
    allow = "access-control-allow-origin"
    for origins in ((), (OTHER,)):
        closed = front(*origins)
        assert closed.options("/v1/nearest", headers=asks).status_code == 401
        assert allow not in closed.get("/v1/embeddings/2", headers=bears | {"origin": ORIGIN}).headers
    for origins, named in (((OTHER, "HTTPS://example.org:443"), ORIGIN), (("*",), "*")):
        opened = front(*origins)
        before = opened.options("/v1/nearest", headers=asks)
        assert (before.status_code, before.headers[allow]) == (204, named)
        assert "authorization" in before.headers["access-control-allow-headers"]
        assert "POST" in before.headers["access-control-allow-methods"]
        answer = opened.get("/v1/embeddings/2", headers=bears | {"origin": ORIGIN})
        assert (answer.status_code, answer.headers[allow]) == (200, named)
        assert "retry-after" in answer.headers["access-control-expose-headers"]
        assert opened.get("/v1/embeddings/2", headers={"origin": ORIGIN}).headers[allow] == named  # of a 401, too
        assert opened.options("/v1/nearest", headers={"origin": ORIGIN}).status_code == 401  # not before a request
    assert front(ORIGIN).get("/docs").headers["vary"] == "Origin"


@pytest.mark.parametrize("given", ["example.org", "https://", "https://a/b", "https://a/", "null", "", "ftp://a"])
def test_what_is_no_origin(given: str) -> None:
    with pytest.raises(UsageError, match=r"^--cors .*: expected an origin"):
        origins_of([given])


IDS = ["a/b", "a?b", "a#b", "..", ".", "", " ", "a\nb", "käse", "名前", "%2F", "a+b", "a&b=c"]
IDS += ["\\", "/", "//x", "\0", "😀", "a/../b", "nearest"]


def test_ids_of_any_characters(tmp_path: Any) -> None:
    one = Served(tmp_path / "O", "string")
    there = doors()
    answering = Answering(there, 0, one.lookup, one.health)
    answering.start()
    try:
        one.hand.names = dict(enumerate(IDS, 100))
        one.hand.apply(2, (dict.fromkeys(one.hand.names, 1.5), []), ({}, []))
        one.until(2)
        with httpx.Client(base_url=f"http://127.0.0.1:{there.http_port}/v1", trust_env=False, timeout=60) as http:
            for id_ in IDS:
                assert http.get("/embeddings", params={"id": id_}).json()["id"] == id_
                quoted = quote(id_, safe="").replace(".", "%2E")  # most clients leave dots out, also those
                status, _, body = raw(there.http_port, REQUEST % f"/v1/embeddings/{quoted}".encode())
                assert (status, orjson.loads(body)["id"]) == (200, id_)
    finally:
        answering.stop()
        one.close()
