"""Requests whose answers are computed, of the table `REQUESTS`: nearest, score, what-if."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastapi import Request, Response

from freshet.job.serving.bounds.budget import OBJECT_BYTES, Held
from freshet.job.serving.bounds.calls import path_of
from freshet.job.serving.doors.json_answers import object_of, rows_of, values_of
from freshet.job.serving.doors.routes.answers import AsOf, NearestVertices, Scores, TriedRows
from freshet.job.serving.doors.routes.asking import as_of, sent, wait
from freshet.job.serving.doors.routes.registration import Routes
from freshet.job.serving.protocol.wanted import Wanted
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.one_generation import of_generation
from freshet.job.serving.tables.requests import REQUESTS
from freshet.job.serving.tables.requests import Request as Computed

_BEFORE = ("nearest", "score")  # those that are there without /v1, too
_OF_IDS = ("unknown",)  # lists of ids in answers that are computed
# Of /openapi.json: the answer, and the kinds of errors beside those of any path.
_ANSWERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "nearest": (NearestVertices, ("unknown", "other-model", "gone", "not-yet")),
    "score": (Scores, ("gone", "not-yet")),
    "what_if": (TriedRows, ("too-far", "gone", "not-yet")),
}


def add(routes: Routes) -> None:
    """Add POST /NAME for each of them."""
    for name, computed in REQUESTS.items():
        _add_one(routes, name, computed)


def _add_one(routes: Routes, name: str, computed: Computed) -> None:
    answer, errors = _ANSWERS.get(name, (AsOf, ()))
    form, lookup, apart = computed.over_http(name), routes.lookup, routes.apart
    computing = routes.in_turn if computed.in_turn else apart

    before = name in _BEFORE

    @routes.post(
        f"/{path_of(name)}", form, name=name, before=before, answer=answer, errors=errors, about=computed.about
    )
    async def answered(request: Request) -> Response:
        asked, size_sent = await sent(apart, form, request)
        every = of_generation(lookup, asked.generation)
        size = computed.room(every, asked, readout=True)[1] + size_sent
        lookup.budget.check(size, f"the answer of {computed.asked(asked):,} items")
        for one in dict.fromkeys(computed.ends(every, asked)):
            await wait(one, asked.wanted)
        parts, held = await computing(False, _parts, every, computed, asked, f"the {name} rows")
        return apart.answer(parts, size + held.size, held)


def _parts(lookup: Lookup, computed: Computed, asked: Any, what: str) -> tuple[Iterator[bytes], Held]:
    held, as_text = lookup.budget.hold(computed.room(lookup, asked, readout=True)[0], what), bool(asked.ids_as)
    answer = computed.run(lookup, asked.model_dump(exclude_none=True), Wanted(timeout_s=asked.timeout))
    in_json = answer.served.row_shape(readout=True).in_json
    lists: dict[str, Any] = {}
    if answer.found is not None:
        lists["found"] = rows_of(answer.found[0], in_json, answer.found[1], as_text, answer.new)

    def items(name: str, values: Sequence[Any]) -> Iterator[bytes]:
        return values_of(list(map(str, values) if as_text and name in _OF_IDS else values), OBJECT_BYTES)

    for name, values in answer.lists.items():
        if isinstance(values, Mapping):
            lists[name] = {kind: items(name, of) for kind, of in values.items()}
        else:
            lists[name] = items(name, values)
    return object_of({**as_of(answer.served, answer.epoch), **answer.more}, lists), held
