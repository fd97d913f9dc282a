"""All rows at one epoch, page by page: a cursor says the table, the epoch and the place, and nothing is kept for it."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import NamedTuple

import orjson
from fastapi import Request, Response

from freshet.job.serving.bounds.budget import OBJECT_BYTES, Held
from freshet.job.serving.bounds.forms import FormError, PageOfRows
from freshet.job.serving.doors.json_answers import object_of, rows_of
from freshet.job.serving.doors.routes.answers import RowsPage
from freshet.job.serving.doors.routes.asking import as_of, query, wait
from freshet.job.serving.doors.routes.registration import Routes
from freshet.job.serving.protocol.errors import BadRequestError, GoneError, TooSlowError
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.one_generation import of_generation
from freshet.job.serving.tables.served import Answer, Served
from freshet.state.served import layout as lay
from freshet.state.served.ids import text_bytes
from freshet.state.served.read_kernels import MISSED
from freshet.state.served.reader import TableReader

_CURSOR_MAX = 1000  # characters
_TEXT_BYTES = 2 << 20  # of the ids of a page
_TRIES_S = 5.0
_READS_MAX = 64  # of slots, for one page: where most ids are deleted it has fewer rows than it may
_INT64_MAX = 2**63 - 1


class _Cursor(NamedTuple):
    """Place in a table; every field is looked at before it is used."""

    epoch: int
    first: int  # slot
    used: int  # slots at that epoch
    generation: int | None
    table: str  # name of the file
    kind: str | None

    def text(self) -> str:
        return base64.urlsafe_b64encode(orjson.dumps([1, *self])).decode().rstrip("=")

    @staticmethod
    def read(text: str) -> _Cursor:
        """Raises: FormError for what `text` never returns."""
        try:
            raw = base64.b64decode(text[:_CURSOR_MAX] + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            version, epoch, first, used, generation, table, kind = orjson.loads(raw)
            found = _Cursor(epoch, first, used, generation, table, kind)
            numbers = [version, epoch, first, used, *([] if generation is None else [generation])]
            texts = [table, *([] if kind is None else [kind])]
            fits = all(type(one) is int and 0 <= one <= _INT64_MAX for one in numbers) and version == 1
            if fits and all(type(one) is str for one in texts) and first <= used and found.text() == text:
                return found
        except (ValueError, TypeError):
            pass
        msg = f"after: expected `next` of an earlier page, got {text[:50]!r}"
        raise FormError(msg)


def add(routes: Routes) -> None:
    """Add GET /v1/rows."""
    lookup, apart = routes.lookup, routes.apart

    @routes.get("/rows", PageOfRows, name="get_rows", answer=RowsPage, errors=["gone", "not-yet"], before=False)
    async def rows(request: Request) -> Response:
        """All rows, page by page, at the epoch of the first page: give `next` as `after` until it is null.

        A page has at most `limit` rows, and may have fewer. 410 `gone`: the rows of that epoch are not kept any more
        (`freshet serve --history`), or the server has another table; begin again without `after`.
        """
        asked = query(PageOfRows, request)
        after = None if asked.after is None else _Cursor.read(asked.after)
        one = _lookup_of(lookup, asked, after)
        if after is None:
            await wait(one, asked.wanted)
        parts, size, held = await apart(False, _page, one, asked, after)
        return apart.answer(parts, size, held)


def _lookup_of(lookup: Lookup, asked: PageOfRows, after: _Cursor | None) -> Lookup:
    if after is None:
        return of_generation(lookup, asked.generation).of(asked.kind)
    for name, given, had in (("kind", asked.kind, after.kind), ("generation", asked.generation, after.generation)):
        if given not in (None, had):
            msg = f"{name}: the pages before were of {had!r}, got {given!r}; leave it out, or begin without `after`"
            raise BadRequestError(msg)
    if (lookup.job.generation is None) != (after.generation is None):
        raise _gone(after, "the server is of another job")
    return of_generation(lookup, after.generation).of(after.kind)


def _page(one: Lookup, asked: PageOfRows, after: _Cursor | None) -> tuple[Iterator[bytes], int, Held]:
    """Return the parts of an answer, their bytes at most, and the room that it takes."""
    served = one.whole
    shape = served.row_shape(readout=True)
    size = asked.limit * shape.in_json
    held = one.budget.hold(asked.limit * (shape.in_arrow + OBJECT_BYTES) + size, f"a page of {asked.limit:,} rows")
    try:
        cursor, answers = _first(served, asked) if after is None else _next(served, asked, after)
        size += sum(6 * text_bytes(answer.ids) for answer in answers)  # a character in JSON is at most so long
        held.resize(held.size + size, f"a page of {asked.limit:,} rows")
    except BaseException:
        held.release()
        raise
    following = None if cursor.first >= cursor.used else cursor.text()
    head = as_of(served, cursor.epoch) | {"next": following}
    as_text = asked.ids_as is not None

    def items() -> Iterator[bytes]:
        for k, answer in enumerate(answers):
            for n, part in enumerate(rows_of(answer, shape.in_json, {}, as_text)):
                yield (b"," if k and not n else b"") + part

    return object_of(head, {"rows": items()}), size, held


def _first(served: Served, asked: PageOfRows) -> tuple[_Cursor, list[Answer]]:
    """Begin at the newest epoch; where rows change faster than they are read, at the next one."""
    table, job, until = served.whole, served.job, time.monotonic() + _TRIES_S
    while True:
        epoch, used = table.epoch, table.word(lay.T_USED)
        begin = _Cursor(epoch, 0, used, job.generation, table.path.name, asked.kind)
        if (found := _read(served, table, begin, asked.limit)) is not None:
            return found
        if time.monotonic() > until:
            msg = "rows change faster than they can be read; give the server more --history"
            raise TooSlowError(msg)
        time.sleep(0.001)


def _next(served: Served, asked: PageOfRows, after: _Cursor) -> tuple[_Cursor, list[Answer]]:
    table = served.whole
    if table.path.name != after.table or served.job.generation != after.generation:
        raise _gone(after, "the server has another table now")
    if after.epoch > table.epoch or after.used > table.word(lay.T_USED):
        msg = "after: expected `next` of an earlier page; this one is past the table"
        raise FormError(msg)
    if (found := _read(served, table, after, asked.limit)) is None:
        raise _gone(after, "the table no longer has its rows (`freshet serve --history`)")
    return found


def _read(served: Served, table: TableReader, begin: _Cursor, limit: int) -> tuple[_Cursor, list[Answer]] | None:
    """Return the cursor behind the page, and its rows; None where the ring has moved on."""
    at, rows, answers = begin.first, 0, list[Answer]()
    for _ in range(_READS_MAX):
        if rows >= limit or at >= begin.used:
            break
        count = table.fitting(at, min(limit - rows, begin.used - at), _TEXT_BYTES)
        code, ids, found = table.part(begin.epoch, at, count)
        if code == MISSED:
            table.misses += 1
            return None
        at += count
        rows += len(found.own)
        if len(found.own):
            answers.append(Answer(begin.epoch, ids, found.own, found.rows, len(found.own), served))
    return begin._replace(first=at), answers


def _gone(cursor: _Cursor, why: str) -> GoneError:
    return GoneError(f"rows at epoch {cursor.epoch}: {why}; begin again without `after`")
