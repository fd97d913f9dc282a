"""Changes as they come, as server-sent events: `change`, `whole` where all rows are sent, `generation` of a service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import orjson
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from freshet.errors import FreshetError
from freshet.job.service.generations import GENERATION
from freshet.job.serving.bounds.calls import add_waited
from freshet.job.serving.bounds.forms import ChangesSince, FormError
from freshet.job.serving.doors.http_front import ALLOWED, HEAD, as_json
from freshet.job.serving.doors.json_answers import PART_BYTES, ids_in_form, listed
from freshet.job.serving.doors.refusals import refusal_of
from freshet.job.serving.doors.routes.asking import as_of, query
from freshet.job.serving.doors.routes.registration import Routes
from freshet.job.serving.feeds import change_stream
from freshet.job.serving.protocol.errors import BadRequestError, NotReadyError
from freshet.job.serving.protocol.wanted import ROW
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import Answer, Served
from freshet.state.served.reader import Change

MEDIA_TYPE = "text/event-stream"
BEAT_S = 10.0  # a comment comes at least so often, so that proxies and clients see that the connection lives
_POLL_S = 0.02
_RETRY_MS = 1000  # after which browsers connect again
_SEND_S = 30.0  # a client that takes nothing for so long loses its connection
_STREAMS_MAX = 256  # of a process
_THREADS = 4
_DEAD_AT_ONCE = 16_384
_INT64_MAX = 2**63 - 1


def add(routes: Routes) -> None:
    """Add GET /v1/changes."""
    open_streams, threads = set[object](), ThreadPoolExecutor(_THREADS, "freshet-changes")

    @routes.get("/changes", ChangesSince, name="get_changes", answer=MEDIA_TYPE, before=False)
    async def changes(request: Request) -> Response:
        """Changed rows as server-sent events, from `since_epoch` on, or from now on.

        `change`: `rows` that changed and ids that were `deleted`, as of the epoch `as_of`, which is the `id`, so that
        a browser that connects again goes on there (Last-Event-ID). A reader that is slow gets several epochs as one.
        `whole`: all rows, since the server does not know what followed the epoch; forget those before. A large one
        comes in several events, all but the last with `more`. `generation`: the job of a service has changed, and
        `whole` follows. `error`: the reason for which the stream ends; connect again.
        """
        asked = query(ChangesSince, request)
        one = routes.lookup.of(asked.kind)
        if one.job.consistency == ROW:
            raise BadRequestError(change_stream.OF_ROWS)
        one.served  # noqa: B018 - it raises where there is no table
        if len(open_streams) >= _STREAMS_MAX:
            one.budget.refuse(f"a stream of changes beside {_STREAMS_MAX}; try again later", again=True)
        since = _last_id(request) if "last-event-id" in request.headers else asked.since_epoch
        allowed: Callable[[], bool] = request.scope.get(ALLOWED, lambda: True)
        stream = _Stream(one, since, asked.ids_as is not None, lambda: routes.ending() or not allowed(), threads)
        return _Events(stream, open_streams)


def _last_id(request: Request) -> int:
    text = request.headers["last-event-id"]
    if text.isdecimal() and text.isascii() and len(text) < 20 and int(text) <= _INT64_MAX:
        return int(text)
    msg = f"Last-Event-ID: expected the id of an event, an epoch, got {text[:50]!r}"
    raise FormError(msg)


class _Stream:
    """The events of one reader, made on threads as the reader takes them."""

    def __init__(
        self, lookup: Lookup, since: int | None, as_text: bool, ended: Callable[[], bool], threads: ThreadPoolExecutor
    ) -> None:
        self._lookup, self._as_text, self._ended, self._threads = lookup, as_text, ended, threads
        self._epoch = since

    async def events(self) -> AsyncIterator[bytes]:
        """Yield pieces of the stream, until it ends; a comment as a heartbeat."""
        yield b"retry: %d\n\n" % _RETRY_MS
        while not self._ended():
            try:
                served = await self._apart(lambda: self._lookup.whole)
                for event in self._begin(served):
                    yield event
                async for event in self._of(served):
                    yield event
            except NotReadyError:  # another table takes the place
                yield b": no table\n\n"
                await asyncio.sleep(10 * _POLL_S)
            except FreshetError as error:
                yield _event("error", as_json(refusal_of(error)[1]))
                return

    def _begin(self, served: Served) -> Iterator[bytes]:
        """Say where the stream begins, and that the job is another one than that of the last epoch."""
        generation = served.job.generation
        if self._epoch is None:
            self._epoch = served.table.epoch
            yield b"id: %d\n\n" % self._epoch
        elif generation is not None and self._epoch < served.job.base:
            change = {"generation": generation, "model": served.job.model_sha256, "before": self._epoch // GENERATION}
            yield _event("generation", orjson.dumps(change))

    async def _of(self, served: Served) -> AsyncIterator[bytes]:
        """Yield the changes of one job."""
        found = change_stream.changes(self._lookup, served, self._ended, self._epoch)
        table, is_amid, sent = None, False, time.monotonic()
        try:
            while not self._ended():
                now = self._lookup.served
                if not is_amid and now.table is table and now.table.epoch <= (self._epoch or 0):
                    if time.monotonic() - sent > BEAT_S:
                        sent = time.monotonic()
                        yield b": beat\n\n"
                    await asyncio.sleep(_POLL_S)
                    continue
                table = now.table
                step = await self._apart(partial(next, found, None))
                if step is None:
                    return
                change, end = step
                is_amid = change.whole and end is None
                pieces = self._pieces(served, change, is_amid)
                while (piece := await self._apart(partial(next, pieces, None))) is not None:
                    sent = time.monotonic()
                    yield piece
                if not is_amid:
                    self._epoch = change.epoch
        finally:
            with suppress(ValueError):  # a thread is amid it, and ends it
                found.close()  # type: ignore[attr-defined]

    async def _apart(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def _pieces(self, served: Served, change: Change, is_amid: bool) -> Iterator[bytes]:
        live, dead = len(change.own), len(change.dead)
        if not live and not dead and not change.whole:
            return
        name, head = "whole" if change.whole else "change", as_of(served, change.epoch)
        rows = max(1, PART_BYTES // served.row_shape(readout=True).in_json)
        answer = Answer(change.epoch, change.ids, change.own, change.rows, live, served)
        count = max(1, -(-live // rows), -(-dead // _DEAD_AT_ONCE))
        for k in range(count):
            part = answer.part(min(k * rows, live), min((k + 1) * rows, live))
            gone = min(k * _DEAD_AT_ONCE, dead), min((k + 1) * _DEAD_AT_ONCE, dead)
            is_last = k == count - 1 and not is_amid
            shown = head | {
                "rows": listed(part, self._as_text),
                "deleted": ids_in_form(change.dead, *gone, self._as_text),
                "more": not is_last,
            }
            yield _event(name, as_json(shown), change.epoch if is_last else None)


def _event(name: str, data: bytes, id_: int | None = None) -> bytes:
    mark = b"" if id_ is None else b"id: %d\n" % id_
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), mark, data)


class _Events(Response):
    """Sends a stream as it comes, and ends with the client, with the server, and where the client takes nothing."""

    def __init__(self, stream: _Stream, others: set[object]) -> None:
        super().__init__(None, 200, {"cache-control": "no-store", "x-accel-buffering": "no"}, MEDIA_TYPE)
        self._stream, self._others = stream, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [one for one in self.raw_headers if one[0] != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        began = time.monotonic()
        if not scope.get(HEAD):
            self._others.add(self)
            gone = asyncio.ensure_future(_gone(receive))
            try:
                await self._send(gone, send)
            finally:
                self._others.discard(self)
                gone.cancel()
        add_waited(time.monotonic() - began)
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b""})

    async def _send(self, gone: asyncio.Future[None], send: Send) -> None:
        events = self._stream.events()
        try:
            while not gone.done():
                step = asyncio.create_task(_next(events))
                either: list[asyncio.Future[Any]] = [step, gone]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not step.done():
                    step.cancel()
                    with suppress(asyncio.CancelledError):
                        await step
                    return
                if (piece := step.result()) is None:
                    return
                body = {"type": "http.response.body", "body": piece, "more_body": True}
                await asyncio.wait_for(send(body), _SEND_S)
        except TimeoutError:
            return
        finally:
            await events.aclose()  # type: ignore[attr-defined]


async def _next(events: AsyncIterator[bytes]) -> bytes | None:
    return await anext(events, None)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
