"""The HTTP server's first door: tokens, origins, body and health; it opens before the application behind is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import numpy as np
import orjson

from freshet.errors import FreshetError
from freshet.job.serving.bounds.budget import Held, parsed
from freshet.job.serving.bounds.calls import begin, end_of_status, kind_of_path
from freshet.job.serving.doors.access import HEALTH, Access, access_of, unprefixed
from freshet.job.serving.doors.cors import Cors
from freshet.job.serving.doors.refusals import (
    FAILED,
    FORBIDDEN,
    LARGE,
    LATE,
    LENGTH,
    MEDIA,
    UNAUTHORIZED,
    HttpError,
    body_of,
    refusal_of,
)
from freshet.job.serving.doors.tokens import ServerTokens
from freshet.job.serving.tables.health import Health, status_of

BODY_BYTES_MAX = 4 << 20
_DIGITS_MAX = 20  # of a length
_POLL_S = 0.005
BODY_S = 10.0  # until a body is there; over a connection of its own timed_http sees to that
ALLOWED = "freshet.allowed"  # of a scope: whether the token of the request still holds, for answers that go on
HEAD = "freshet.head"  # of a scope: nobody reads the body
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Front:
    """An ASGI application before another one, which may start later: its requests wait, health is answered at once."""

    def __init__(
        self, health: Health, token: str | ServerTokens | None = None, app: App | None = None, cors: Cors | None = None
    ) -> None:
        """`token`: those that requests must bear; `cors`: pages that may read answers."""
        self._health, self._tokens, self.app, self._cors = health, ServerTokens.of(token), app, cors or Cors()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it; where that fails, the client gets one sentence."""
        if scope["type"] != "http":
            await self._passed(scope, receive, send)
            return
        status, begun, headers = 0, begin(), dict(scope["headers"])
        more = self._cors.headers(headers)
        if is_head := scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET", HEAD: True}

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if more:
                    message = {**message, "headers": [*message.get("headers", []), *more]}
            elif is_head:
                if status < 0:
                    return
                message, status = {"type": "http.response.body", "body": b""}, -status
            await send(message)

        try:
            await self._let_pass(scope, headers, receive, sent)
        except FreshetError as error:
            if not status:
                await _answer(sent, *refusal_of(error))
        except Exception as error:
            from freshet.job.serving.doors.one_sentence import logged

            sentence = logged(error)
            if not status:
                await _answer(sent, 500, body_of(FAILED, sentence))
        finally:
            if status:
                self._health.budget.calls.count(kind_of_path(scope["path"]), end_of_status(abs(status)), begun)

    async def _let_pass(
        self, scope: MutableMapping[str, Any], headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        if (preflight := self._cors.preflight(scope.get("method", ""), headers)) is not None:
            await send({"type": "http.response.start", "status": 204, "headers": preflight})
            await send({"type": "http.response.body", "body": b""})
            return
        authorization, path = headers.get(b"authorization"), unprefixed(scope["path"])
        right = self._tokens.right_of(authorization)
        _check_right(access_of(scope["path"]), right)
        _check_body(headers)
        if path in HEALTH and (right is None or self.app is None):
            stale_ok, figures = _probe(path, scope.get("query_string", b"")) == "ok", self._health.figures()
            shown = figures if right is not None else {"ready": bool(figures["ready"])}
            await _answer(send, status_of(figures, path, stale_ok), shown)
            return
        if self._tokens.required:
            scope[ALLOWED] = lambda: self._tokens.right_of(authorization) is not None
        if headers.get(b"content-length", b"0") != b"0":
            await self._within_budget(scope, receive, send)
            return
        await self._passed(scope, receive, send)

    async def _passed(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        while self.app is None:
            await asyncio.sleep(_POLL_S)
        await self.app(scope, receive, send)

    async def _within_budget(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Take the body, count it while the application works with it, and let the request pass."""
        with Held(self._health.budget) as held:
            try:
                body = await asyncio.wait_for(_body(receive, held), BODY_S)
            except TimeoutError:
                raise HttpError(LATE, f"expected the whole body within {BODY_S:g} s") from None
            if body:
                held.resize(parsed(body), "the request's body")
            if body is None:
                return
            taken: list[bytes] = [body]
            del body

            async def again() -> Message:
                if taken:
                    return {"type": "http.request", "body": taken.pop(), "more_body": False}
                return await receive()

            await self._passed(scope, again, send)


def as_json(content: Any) -> bytes:
    """JSON; arrays become lists, and numbers that are not finite null."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY, default=_plain)


def _check_right(wanted: Access, right: Access | None) -> None:
    if wanted is Access.OPEN:
        return
    if right is None:
        msg = "expected the header `Authorization: Bearer TOKEN`"
        raise HttpError(UNAUTHORIZED, msg, {"WWW-Authenticate": "Bearer"})
    if wanted is Access.ADMIN and right is not Access.ADMIN:
        msg = "the token is for reads; this path expects one of --admin-token or --token"
        raise HttpError(FORBIDDEN, msg)


def _check_body(headers: dict[bytes, bytes]) -> None:
    coding = headers.get(b"content-encoding", b"identity").strip().lower()
    if coding not in (b"", b"identity"):
        msg = f"Content-Encoding: expected a body as it is, got {coding[:20].decode('latin-1')!r}"
        raise HttpError(MEDIA, msg)
    length = headers.get(b"content-length", b"0")
    if b"transfer-encoding" in headers or not length.isdigit():
        msg = f"expected a body with its length, the header Content-Length, of at most {BODY_BYTES_MAX:,} bytes"
        raise HttpError(LENGTH, msg)
    if len(length) > _DIGITS_MAX or int(length) > BODY_BYTES_MAX:
        msg = f"expected a body of at most {BODY_BYTES_MAX:,} bytes, with its length"
        raise HttpError(LARGE, msg)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


def _probe(path: str, query: bytes) -> str | None:
    """Return `stale` of a probe's query.

    Raises: FormError for a query that is not that of the path.
    """
    if not query:
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
