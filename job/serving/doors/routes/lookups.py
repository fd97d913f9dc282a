"""Embeddings of one vertex, and of many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import Request, Response

from freshet.job.serving.bounds.asked_ids import as_stored
from freshet.job.serving.bounds.budget import OBJECT_BYTES
from freshet.job.serving.bounds.forms import Many, One
from freshet.job.serving.doors.json_answers import ids_in, listed, object_of, rows_of, values_of
from freshet.job.serving.doors.routes.answers import Embeddings, OneEmbedding, UnknownVertex
from freshet.job.serving.doors.routes.asking import as_of, found_in, json_answer, query, sent, wait
from freshet.job.serving.doors.routes.registration import Routes
from freshet.job.serving.tables.one_generation import of_generation
from freshet.job.serving.tables.served import Answer, Served

_WAITING = ("gone", "not-yet")  # kinds of errors of requests with Conditions


def add(routes: Routes) -> None:
    """Add GET /embeddings/{id}, GET /embeddings?id= and POST /embeddings."""
    lookup, apart = routes.lookup, routes.apart
    described: Any = {"answer": OneEmbedding, "errors": _WAITING, "others": {404: UnknownVertex}}

    @routes.get("/embeddings/{id:any}", One, in_path=["id"], name="get_embedding", **described)
    @routes.get("/embeddings", One, name="get_embedding_by_query", **described)
    async def embedding(request: Request) -> Response:
        """The embedding of one vertex; 404 where there is none.

        `?id=` takes any id, also `.` and `..`, which most clients leave out of a path. A server of several kinds wants
        the `kind`; one that it does not have is refused.
        """
        asked = query(One, request)
        one = of_generation(lookup, asked.generation).of(asked.kind)
        ids = one.ids_of([asked.id])
        await wait(one, asked.wanted)
        answer = one.get(ids)
        answer.served.job.check_kind(asked.kind)  # of a wait it may be another one
        of_epoch = as_of(answer.served, answer.epoch)
        if not len(answer.epochs):
            return json_answer({"error": f"no vertex {asked.id!r}", "kind": "unknown", **of_epoch}, 404)
        return json_answer({**listed(answer, asked.ids_as is not None)[0], **of_epoch})

    @routes.post("/embeddings", Many, name="get_embeddings", answer=Embeddings, errors=_WAITING)
    async def embeddings(request: Request) -> Response:
        """The embeddings of many vertices, at one epoch."""
        asked, size_sent = await sent(apart, Many, request)

        def size_of(served: Served) -> int:
            return len(asked.ids) * served.row_shape(readout=True).in_json + 2 * size_sent

        one = of_generation(lookup, asked.generation).of(asked.kind)
        answer, held, size = await found_in(one, apart, asked.ids, asked.wanted, size_of)
        answer.served.job.check_kind(asked.kind)
        return apart.answer(_parts(answer, asked), size, held)

    routes.hidden("POST", "/embeddings/", embeddings)


def _parts(answer: Answer, asked: Many) -> Iterator[bytes]:
    known, as_text = set(ids_in(answer)), asked.ids_as is not None
    stored = as_stored(asked.ids, answer.served.table.strings)
    unknown = [str(one) if as_text else one for one, id_ in zip(asked.ids, stored, strict=True) if id_ not in known]
    of_each = answer.served.row_shape(readout=True).in_json
    lists = {"found": rows_of(answer, of_each, {}, as_text), "unknown": values_of(unknown, OBJECT_BYTES)}
    yield from object_of(as_of(answer.served, answer.epoch), lists)
