"""JSON answers in parts: a small one is made at once, a large one part by part, apart from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from fastapi import Response
from fastapi.responses import StreamingResponse

from freshet.job.serving.bounds.budget import FREE_BYTES, Held
from freshet.job.serving.doors.http_front import as_json
from freshet.state.served.ids import Ids, plain_ids, slice_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from freshet.job.serving.tables.served import Answer

JSON = "application/json"
PART_BYTES = INLINE_BYTES = 256 << 10  # what has no more is made in the event loop
_THREADS = 2  # that make answers: more would only hold up each other, and whoever asks for health
T = TypeVar("T")
Lists: TypeAlias = Mapping[str, "Iterator[bytes] | Lists"]


class Apart:
    """Threads for what takes long, so that the event loop goes on."""

    def __init__(self, threads: int = _THREADS) -> None:
        self._threads = ThreadPoolExecutor(threads, "freshet-answers")

    async def __call__(self, small: bool, function: Callable[..., T], *args: Any) -> T:
        """Return the result of the function; a small one is called here."""
        if small:
            return function(*args)
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args))

    def answer(self, parts: Iterator[bytes], size: int, held: Held) -> Response:
        """Return an answer of at most `size` bytes, of these parts; `held` is released once it has been sent."""
        if size <= INLINE_BYTES:
            body = b"".join(parts)
            if len(body) <= FREE_BYTES:
                held.release()
                return Response(body, media_type=JSON)
            parts = iter([body])
        return _HeldResponse(self._sent(parts, size <= INLINE_BYTES), held)

    async def _sent(self, parts: Iterator[bytes], small: bool) -> AsyncIterator[bytes]:
        while (part := await self(small, next, parts, None)) is not None:
            yield part


class _HeldResponse(StreamingResponse):
    """An answer in parts whose bytes are given back at its end, also when the client has gone.

    The parts of an answer that is cut off wait for a collection of garbage, which a server without work may not do for
    minutes.
    """

    def __init__(self, parts: AsyncIterator[bytes], held: Held) -> None:
        super().__init__(parts, media_type=JSON)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)


def object_of(members: dict[str, Any], lists: Lists) -> Iterator[bytes]:
    """An object with these members, and then members that are lists, or objects of lists; items come in parts."""
    yield as_json(members)[:-1]
    for k, (name, items) in enumerate(lists.items()):
        yield (b"," if k or members else b"") + as_json(name) + b":"
        if isinstance(items, Mapping):
            yield from object_of({}, items)
        else:
            yield b"["
            yield from items
            yield b"]"
    yield b"}"


def items_of(blocks: Iterator[Sequence[Any]]) -> Iterator[bytes]:
    """The items of a list, block by block, with the commas between them."""
    first = True
    for block in blocks:
        if len(block):
            yield (b"" if first else b",") + as_json(block)[1:-1]
            first = False


def values_of(values: Sequence[Any], of_each: int) -> Iterator[bytes]:
    """Return the items of a list in parts; `of_each` is the size of an item in bytes."""
    step = max(1, PART_BYTES // max(1, of_each))
    return items_of(values[at : at + step] for at in range(0, len(values), step))


def rows_of(
    answer: Answer,
    of_each: int,
    columns: Mapping[str, np.ndarray],
    as_text: bool = False,
    without_id: np.ndarray | None = None,
) -> Any:
    """The rows of an answer as items, and beside them the values of `columns`.

    `as_text`: of the ids; `without_id`, (n,) bool: which have null in their place.
    """
    step = max(1, PART_BYTES // of_each)

    def blocks() -> Iterator[list[dict[str, Any]]]:
        for at in range(0, len(answer.epochs), step):
            end = min(at + step, len(answer.epochs))
            found = listed(answer.part(at, end), as_text)
            for place in () if without_id is None else np.flatnonzero(without_id[at:end]).tolist():
                found[place]["id"] = None
            for name, values in columns.items():
                found = [{**one, name: value} for one, value in zip(found, values[at:end].tolist(), strict=True)]
            yield found

    return items_of(blocks())


def ids_in(answer: Answer, as_text: bool = False) -> list[Any]:
    """The ids of an answer as Python has them; `as_text`: integers as strings."""
    return ids_in_form(answer.ids, 0, len(answer.ids), as_text)


def ids_in_form(ids: Ids, begin: int, end: int, as_text: bool) -> list[Any]:
    """Some ids as Python has them; `as_text`: integers as strings."""
    found = plain_ids(slice_of(ids, begin, end))
    return list(map(str, found)) if as_text else found


def listed(answer: Answer, as_text: bool = False) -> list[dict[str, Any]]:
    """The rows of an answer as JSON objects; numbers that are not finite become null."""
    found = [
        {"id": id_, "epoch": epoch, "embedding": row}
        for id_, epoch, row in zip(ids_in(answer, as_text), answer.epochs.tolist(), answer.rows, strict=True)
    ]
    if found and (readout := answer.served.readout) is not None:
        for name, values in readout.columns(answer.rows).items():
            for one, value in zip(found, values if values.ndim > 1 else values.tolist(), strict=True):
                one[name] = value
    return found
