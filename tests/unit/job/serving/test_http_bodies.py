"""Bodies of requests: their length is known before anything of them is taken."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from types import SimpleNamespace
from typing import Any

import pytest

from freshet.job.serving.bounds.budget import Budget
from freshet.job.serving.doors.http_front import BODY_BYTES_MAX, Front


def answered(headers: list[tuple[bytes, bytes]], path: str = "/embeddings", body: bytes | None = None) -> int:
    """The status of a request; 200 where it came to the application behind. None: nothing of a body may be taken."""
    sent: list[int] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        sent.append(200)

    async def receive() -> MutableMapping[str, Any]:
        assert body is not None, "no body is taken"
        return {"type": "http.request", "body": body}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            sent.append(message["status"])

    health: Any = SimpleNamespace(budget=Budget())  # of which no more is asked, as the application is there
    scope = {"type": "http", "path": path, "headers": headers}
    asyncio.run(Front(health, None, behind)(scope, receive, send))
    [status] = sent
    return status


@pytest.mark.parametrize("path", ["/embeddings", "/healthz", "/readyz", "/metrics"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"transfer-encoding", b"chunked")], 411),
        ([(b"transfer-encoding", b"gzip, chunked")], 411),
        ([(b"content-length", b"7"), (b"transfer-encoding", b"chunked")], 411),
        ([(b"content-length", b"%d" % (BODY_BYTES_MAX + 1))], 413),
        ([(b"content-length", b"9" * 5000)], 413),
        ([(b"content-length", b"-1")], 411),
        ([(b"content-length", b"1e3")], 411),
        ([(b"content-length", b"")], 411),
    ],
)
def test_a_body_of_unknown_length_or_too_long_is_refused(
    headers: list[tuple[bytes, bytes]], path: str, status: int
) -> None:
    assert answered(headers, path) == status


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"0")], [(b"content-length", b"%d" % BODY_BYTES_MAX)]])
def test_a_body_that_may_come_passes(headers: list[tuple[bytes, bytes]]) -> None:
    length = int(dict(headers).get(b"content-length", 0))
    assert answered(headers, body=b" " * length or None) == 200
