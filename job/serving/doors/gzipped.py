"""Answers as gzip, where the client takes it: small ones are left alone, large ones compressed part by part, apart."""

from __future__ import annotations

import zlib
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from freshet.job.serving.doors.json_answers import Apart

SMALL_BYTES = 4096  # they fit into a few packets, and compressing one takes longer than a lookup
INLINE_BYTES = 16 << 10  # what has no more is compressed in the event loop, in a quarter of a millisecond
_LEVEL = 1  # numbers become no smaller by more work
_GZIP = 16 + zlib.MAX_WBITS
_STREAMS = b"text/event-stream"  # whose events must not wait in a compressor


class Gzipped:
    """An application before another one, whose answers it compresses."""

    def __init__(self, app: ASGIApp, apart: Apart) -> None:
        self._app, self._apart = app, apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and compress its answer where that is asked for and worth it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        accepted = next((value for name, value in scope["headers"] if name == b"accept-encoding"), b"")
        await self._app(scope, receive, _Answer(send, takes_gzip(accepted), self._apart) if accepted else send)


class _Answer:
    """Sends one answer; its head waits for the first part of its body, which says how long it is."""

    def __init__(self, send: Send, asked: bool, apart: Apart) -> None:
        self._send, self._asked, self._apart = send, asked, apart
        self._head: Message | None = None
        self._packed: Any = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            names = dict(message["headers"])
            plain = b"content-encoding" in names or names.get(b"content-type", b"").startswith(_STREAMS)
            if plain or message["status"] in (204, 304):
                await self._send(message)
            else:
                self._head = message
            return
        head, self._head = self._head, None
        if head is not None:
            size = len(message.get("body", b""))
            is_large = message.get("more_body", False) or size >= SMALL_BYTES
            if is_large and self._asked:
                self._packed = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
            await self._send({**head, "headers": _headers(head["headers"], self._packed is not None, is_large)})
        await self._send(await self._part(message) if self._packed is not None else message)

    async def _part(self, message: Message) -> Message:
        body, is_last = message.get("body", b""), not message.get("more_body", False)
        packed = self._packed

        def compressed() -> bytes:
            return bytes(packed.compress(body) + (packed.flush() if is_last else b""))

        found = await self._apart(len(body) <= INLINE_BYTES, compressed)
        return {"type": "http.response.body", "body": found, "more_body": not is_last}


def _headers(given: list[tuple[bytes, bytes]], packed: bool, varies: bool) -> list[tuple[bytes, bytes]]:
    found = [one for one in given if not (packed and one[0] == b"content-length")]
    found += [(b"content-encoding", b"gzip")] if packed else []
    return found + ([(b"vary", b"Accept-Encoding")] if varies else [])


def takes_gzip(accepted: bytes) -> bool:
    """Return whether a header `Accept-Encoding` has gzip, or any encoding, with a quality that is not 0."""
    qualities: dict[str, float] = {}
    for one in accepted.decode("latin-1").lower().split(","):
        name, *parameters = (part.strip() for part in one.split(";"))
        qualities[name] = min((_quality(part) for part in parameters), default=1.0)
    return qualities.get("gzip", qualities.get("x-gzip", qualities.get("*", 0.0))) > 0


def _quality(parameter: str) -> float:
    name, _, value = parameter.partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
