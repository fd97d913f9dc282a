"""The HTTP server's first door: token, body and health; it opens before the application behind it is loaded."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import numpy as np
import orjson

from freshet.job.serving.bounds.budget import RETRY_S, Held, parsed
from freshet.job.serving.bounds.calls import begin, end_of_status, kind_of_path
from freshet.job.serving.doors.access import HEALTH, Access, access_of, unprefixed
from freshet.job.serving.protocol.errors import EXHAUSTED, BadRequestError, ExhaustedError
from freshet.job.serving.tables.health import Health, status_of

BODY_BYTES_MAX = 4 << 20
_POLL_S = 0.005
BODY_S = 10.0  # until a body is there; over a connection of its own timed_http sees to that
EXHAUSTED_STATUS, RETRY = 429, {"Retry-After": str(RETRY_S)}
FORM_STATUS = 422  # of a request with a field that is unknown, missing, or of another type
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Front:
    """An ASGI application before another one, which may start later: its requests wait, health is answered at once."""

    def __init__(self, health: Health, token: str | None = None, app: App | None = None) -> None:
        """`token`: what every request but those for health must bear."""
        self._health, self._token, self.app = health, token, app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it; where that fails, the client gets one sentence."""
        status, begun = 0, begin()

        async def sent(message: Message) -> None:
            nonlocal status
            status = status or message.get("status", 0)
            await send(message)

        try:
            await self._let_pass(scope, receive, sent)
        except Exception as error:
            from freshet.job.serving.doors.one_sentence import logged

            sentence = logged(error)
            if not status:
                await _answer(sent, 500, {"error": sentence, "kind": "failed"})
        finally:
            if status:
                self._health.budget.calls.count(kind_of_path(scope["path"]), end_of_status(status), begun)

    async def _let_pass(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            refused = self._refused(scope, headers)
            if refused is not None:
                await _answer(send, *refused)
                return
            path = unprefixed(scope["path"])
            if path in HEALTH and not self._is_known(headers):
                figures = self._health.figures()
                await _answer(send, _probed(scope, figures), {"ready": bool(figures["ready"])})
                return
            if self.app is None and path in HEALTH:
                figures = self._health.figures()
                await _answer(send, _probed(scope, figures), figures)
                return
            if headers.get(b"content-length", b"0") != b"0":
                await self._within_budget(scope, receive, send)
                return
        await self._passed(scope, receive, send)

    async def _passed(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        while self.app is None:
            await asyncio.sleep(_POLL_S)
        await self.app(scope, receive, send)

    def _is_known(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether a caller may see paths and more: it has the token, or none is required."""
        return not self._token or hmac.compare_digest(headers.get(b"authorization", b""), self._expected)

    async def _within_budget(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Take the body, count it while the application works with it, and let the request pass."""
        with Held(self._health.budget) as held:
            try:
                body = await asyncio.wait_for(_body(receive, held), BODY_S)
                if body:
                    held.resize(parsed(body), "the request's body")
            except TimeoutError:
                await _answer(send, 408, {"error": f"expected the whole body within {BODY_S:g} s"})
                return
            except ExhaustedError as error:
                failure = {"error": str(error), "kind": EXHAUSTED}
                await _answer(send, EXHAUSTED_STATUS, failure, RETRY if error.again else {})
                return
            if body is None:
                return
            taken: list[bytes] = [body]
            del body

            async def again() -> Message:
                if taken:
                    return {"type": "http.request", "body": taken.pop(), "more_body": False}
                return await receive()

            await self._passed(scope, again, send)

    def _refused(
        self, scope: MutableMapping[str, Any], headers: dict[bytes, bytes]
    ) -> tuple[int, dict[str, str]] | None:
        if access_of(scope["path"]) is not Access.OPEN and not self._is_known(headers):
            return 401, {"error": "expected the header `Authorization: Bearer TOKEN`"}
        coding = headers.get(b"content-encoding", b"identity").strip().lower()
        if coding not in (b"", b"identity"):
            return 415, {"error": f"Content-Encoding: expected a body as it is, got {coding[:20].decode('latin-1')!r}"}
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers or not length.isdigit() or int(length) > BODY_BYTES_MAX:
            return 413, {"error": f"expected a body of at most {BODY_BYTES_MAX:,} bytes, with its length"}
        try:
            _probe(scope)
        except BadRequestError as error:
            return FORM_STATUS, {"error": str(error), "kind": "bad-request"}
        return None


def as_json(content: Any) -> bytes:
    """JSON; arrays become lists, and numbers that are not finite null."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY, default=_plain)


def _probed(scope: MutableMapping[str, Any], figures: dict[str, Any]) -> int:
    return status_of(figures, unprefixed(scope["path"]), _probe(scope) == "ok")


def _probe(scope: MutableMapping[str, Any]) -> str | None:
    """Return `stale` of a probe's query.

    Raises: FormError for a query that is not that of the path.
    """
    query, path = scope.get("query_string", b""), unprefixed(scope["path"])
    if not query or path not in HEALTH:
        return None
    from freshet.job.serving.bounds.forms import Nothing, Readiness, form_of_query  # which take long to load

    if path == "/readyz":
        return form_of_query(Readiness, query).stale
    form_of_query(Nothing, query)
    return None


async def _body(receive: Receive, held: Held) -> bytes | None:
    """The body of a request, whose length is known to be no more than `BODY_BYTES_MAX`; None: the client has gone."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        piece = message.get("body", b"")
        size += len(piece)
        held.resize(2 * size, "the request's body")  # its pieces, and what they become together
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)


async def _answer(send: Send, status: int, content: Any, more: dict[str, str] | None = None) -> None:
    body = as_json(content)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(name.lower().encode(), value.encode()) for name, value in (more or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else str(value)
