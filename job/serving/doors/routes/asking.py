"""Shared by the paths: requests as forms, waiting for an epoch, rows within the budget, the epoch of an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from fastapi import Request, Response

from freshet.errors import FreshetError
from freshet.job.serving.bounds.asked_ids import ids_of_values
from freshet.job.serving.bounds.budget import FREE_BYTES, OBJECT_BYTES, Held
from freshet.job.serving.bounds.forms import Form, FormError, Nothing, form_of_json, form_of_query
from freshet.job.serving.doors.access import PREFIX
from freshet.job.serving.doors.http_front import as_json
from freshet.job.serving.doors.json_answers import INLINE_BYTES, JSON, Apart
from freshet.job.serving.doors.refusals import LENGTH, MEDIA, HttpError, refusal_of
from freshet.job.serving.protocol.wanted import Wanted, as_json_fields
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import Answer, Served

F = TypeVar("F", bound=Form)
_OF_CURL = "application/x-www-form-urlencoded"
_SHOWN = 100


def as_of(served: Served, epoch: int) -> dict[str, Any]:
    """Return what every answer says of its rows."""
    return {"as_of": epoch, **as_json_fields(served.so_far(epoch)), **served.job.more}


def json_answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a small answer."""
    return Response(as_json(content), status, headers, media_type=JSON)


def refused(error: FreshetError) -> Response:
    """Return the answer that says an error."""
    status, content, headers = refusal_of(error)
    return json_answer(content, status, headers)


async def sent(apart: Apart, form: type[F], request: Request) -> tuple[F, int]:
    """Return the request that a body is, and its number of bytes."""
    query(Nothing, request)
    if "content-length" not in request.headers:
        msg = "expected a body with its length, the header Content-Length"
        raise HttpError(LENGTH, msg)
    raw = await request.body()
    if request.scope["path"].startswith(PREFIX):  # the paths of before took any
        _check_type(request.headers.get("content-type", JSON), raw)
    return await apart(len(raw) <= FREE_BYTES, form_of_json, form, raw), len(raw)


def query(form: type[F], request: Request) -> F:
    """Return the request that the URL is."""
    if request.path_params:
        _check_encoding(request.scope.get("raw_path") or b"")
    return form_of_query(form, request.scope.get("query_string", b""), **request.path_params)


def _check_encoding(raw_path: bytes) -> None:
    """Raises: FormError for a path whose bytes are no text: servers put others in their place."""
    try:
        unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError as error:
        msg = f"the URL: expected UTF-8, got {raw_path[:_SHOWN].decode('latin-1')!a}"
        raise FormError(msg) from error


def _check_type(given: str, raw: bytes) -> None:
    """Raises: HttpError for a body that says it is no JSON; curl says so of any, if nobody else does."""
    kind = given.partition(";")[0].strip().lower()
    if kind in (JSON, "") or kind.endswith("+json") or (kind == _OF_CURL and raw.lstrip()[:1] == b"{"):
        return
    msg = f"Content-Type: expected {JSON}, got {kind[:_SHOWN]!r}"
    raise HttpError(MEDIA, msg)


async def found_in(
    lookup: Lookup, apart: Apart, values: list[Any], wanted: Wanted, size_of: Callable[[Served], int]
) -> tuple[Answer, Held, int]:
    """The rows for an answer, the room that they take, and the bytes of an answer from their source."""
    what = f"the answer for {len(values):,} ids"
    lookup.budget.check(size_of(lookup.served), what)
    await wait(lookup, wanted)
    served = lookup.served  # the rows come from it, whatever takes its place meanwhile
    lookup.budget.check(size := size_of(served), what)
    is_quick = size <= INLINE_BYTES and not lookup.is_computed
    return *await apart(is_quick, _rows, lookup, values, served), size


async def wait(lookup: Lookup, wanted: Wanted) -> None:
    """Return when the table is as far as wanted; raise what `Lookup.wait` does."""
    if lookup.lacks_now(wanted) is not None and lookup.room is not None:
        await lookup.room.wait_as_task(wanted)
        lookup.lacks_now(wanted)  # of a generation that has ended meanwhile


def _rows(lookup: Lookup, values: list[Any], served: Served) -> tuple[Answer, Held]:
    ids = ids_of_values(values, served.table.strings)
    row = served.row_shape(readout=True).in_arrow + OBJECT_BYTES
    held = lookup.budget.hold(len(ids) * row, f"the rows of {len(ids):,} ids")
    return lookup.get(ids, served=served), held
