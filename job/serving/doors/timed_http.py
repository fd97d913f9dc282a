"""HTTP connections that have to get on: a request that does not come in time loses its connection.

uvicorn waits for ever for headers, for a body, and a minute for TLS; whoever opens enough connections and says nothing,
or a byte now and then, would keep everyone else out.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from freshet.job.serving.doors.refusals import BAD_REQUEST, HEADERS_LARGE, LATE, STATUS, body_of

REQUEST_S = 10.0  # from its first byte, or from the connection, to the end of the headers; as long again for the body
_HEADERS, _BODY = "headers", "body"
_TOO_LATE = f"the request did not come within {REQUEST_S:g} s"


class TimedProtocol(H11Protocol):
    """uvicorn's connection, cut when headers or body of a request take too long."""

    def __init__(self, *given: Any, **options: Any) -> None:
        """Same arguments as uvicorn's."""
        super().__init__(*given, **options)
        self._awaited: tuple[str, Any] | None = None  # what is to come, and after which request
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._await((_HEADERS, None))

    def data_received(self, data: bytes) -> None:
        """Look at what the request lacks now."""
        super().data_received(data)
        self._await(self._lacking())

    def on_response_complete(self) -> None:
        """A pipelined request may have come meanwhile."""
        super().on_response_complete()
        self._await(self._lacking())

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more comes."""
        self._await(None)
        super().connection_lost(exc)

    def _lacking(self) -> tuple[str, Any] | None:
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            return _BODY, self.cycle
        if state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            return _HEADERS, self.cycle
        return None

    def _await(self, lacking: tuple[str, Any] | None) -> None:
        if lacking == self._awaited:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._awaited, self._timer = lacking, None
        if lacking is not None:
            self._timer = self.loop.call_later(REQUEST_S, self._cut)

    def _cut(self) -> None:
        if self.transport.is_closing():
            return
        if self._awaited is not None and self._awaited[0] == _BODY and self.flow.read_paused:
            self._timer = self.loop.call_later(REQUEST_S, self._cut)  # it is the server that does not read
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # whoever answers hears that the client has gone
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self._says_nothing():
            self._refuse(LATE, _TOO_LATE)
        else:
            self.transport.abort()

    def _says_nothing(self) -> bool:
        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, as JSON; uvicorn calls it, with a text of its own."""
        error = sys.exception()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # amid the answer to the request before
            self.transport.close()
        elif isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == STATUS[HEADERS_LARGE]:
            self._refuse(HEADERS_LARGE, "the headers are too long")
        else:
            self._refuse(BAD_REQUEST, f"not a request of HTTP/1.1: {error or msg}")

    def _refuse(self, kind: str, text: str) -> None:
        body = orjson.dumps(body_of(kind, text))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        is_head = self.cycle is not None and self.scope["method"] == "HEAD"  # whose answers have no body
        data = h11.Data(data=b"" if is_head else body)
        for event in (h11.Response(status_code=STATUS[kind], headers=headers), data, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class TimedLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers give TLS no longer than a request."""

    async def create_server(self, *given: Any, **options: Any) -> Any:
        """Like asyncio's, except for its limits of 60 s and 30 s."""
        if options.get("ssl") is not None:
            options |= {"ssl_handshake_timeout": REQUEST_S, "ssl_shutdown_timeout": 1.0}
        return await super().create_server(*given, **options)
