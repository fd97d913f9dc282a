"""The HTTP server's first door: token, size and health; it opens before the application behind it is loaded."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import numpy as np
import orjson

from job.serving.health import Health

BODY_BYTES_MAX = 4 << 20
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})  # for orchestrators, which have no token
_POLL_S = 0.005
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Front:
    """An ASGI application before another one, which may come later: requests for it wait, health is told at once."""

    def __init__(self, health: Health, token: str | None = None, app: App | None = None) -> None:
        """`token`: what every request but those for health must bear."""
        self._health, self._token, self.app = health, token, app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it."""
        if scope["type"] == "http":
            refused = self._refused(scope["path"], dict(scope["headers"]))
            if refused is not None:
                await _answer(send, *refused)
                return
            if self.app is None and scope["path"] in _OPEN_PATHS:
                figures = self._health.figures()
                ready = figures["ready"] or scope["path"] == "/healthz"
                await _answer(send, 200 if ready else 503, figures)
                return
        while self.app is None:
            await asyncio.sleep(_POLL_S)
        await self.app(scope, receive, send)

    def _refused(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, dict[str, str]] | None:
        given = headers.get(b"authorization", b"")
        if self._token and path not in _OPEN_PATHS and not hmac.compare_digest(given, self._expected):
            return 401, {"error": "expected the header `Authorization: Bearer TOKEN`"}
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers or not length.isdigit() or int(length) > BODY_BYTES_MAX:
            return 413, {"error": f"expected a body of at most {BODY_BYTES_MAX:,} bytes, with its length"}
        return None


def as_json(content: Any) -> bytes:
    """JSON; arrays become lists, and numbers that are not finite null."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY, default=_plain)


async def _answer(send: Send, status: int, content: Any) -> None:
    body = as_json(content)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else str(value)
