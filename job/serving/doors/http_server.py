"""HTTP with JSON: one embedding or many (also as Feast asks for them), neighbours, health, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import Route

from freshet.errors import FreshetError
from freshet.job.serving.bounds.asked_ids import as_stored, ids_of_values
from freshet.job.serving.bounds.budget import ALL_BYTES_MAX, FREE_BYTES, OBJECT_BYTES, ONE_BYTES_MAX, Held
from freshet.job.serving.bounds.forms import (
    TIMEOUT_MAX_S,
    Form,
    FormError,
    Many,
    Nothing,
    One,
    OnlineFeatures,
    Readiness,
    fields_in_query,
    form_of_json,
    form_of_query,
)
from freshet.job.serving.doors.feast import feast_bytes, feast_parts, moments_of
from freshet.job.serving.doors.http_front import BODY_BYTES_MAX, BODY_S, EXHAUSTED_STATUS, FORM_STATUS, RETRY, as_json
from freshet.job.serving.doors.json_answers import (
    INLINE_BYTES,
    JSON,
    Apart,
    ids_in,
    listed,
    object_of,
    rows_of,
    values_of,
)
from freshet.job.serving.doors.one_sentence import logged
from freshet.job.serving.protocol.errors import EXHAUSTED, ExhaustedError, kind_of
from freshet.job.serving.protocol.wanted import IDS_MAX, TIMES, Wanted, as_json_fields
from freshet.job.serving.tables.health import Health, status_of
from freshet.job.serving.tables.lookup import K_MAX, Lookup
from freshet.job.serving.tables.one_generation import of_generation
from freshet.job.serving.tables.requests import REQUESTS
from freshet.job.serving.tables.requests import Request as Computed
from freshet.job.serving.tables.served import Answer, Served

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_STATUS = {
    "bad-request": 400,
    "not-yet": 504,
    "other-model": 409,
    "gone": 410,
    "not-ready": 503,
    "failed": 500,
    "too-slow": 503,
    EXHAUSTED: EXHAUSTED_STATUS,
}
_NUMBERS = (
    "generation",
    "epoch",
    "vertices",
    "behind_s",
    "age_of_last_event_s",
    "publish_to_readable_ms",
    "tail_failures",
    "records_refused",
    "history_misses",
    "ids_found",
    "ids_missing",
    "bytes_in_flight",
    "bytes_in_flight_limit",
    "refused",
    "waiting",
)
_OF_IDS = ("unknown",)  # lists of ids in answers that are computed
F = TypeVar("F", bound=Form)


class _AnyText(Convertor[str]):
    """The rest of a path, whatever it holds: an id may be empty, a URI, or several lines."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("any", _AnyText())


_TIMES: dict[str, Any] = {name: (int | None, Field(description=about)) for name, about in TIMES.items()}
AsOf: Any = create_model(
    "AsOf",
    __config__=ConfigDict(extra="allow"),
    __doc__="The epoch that all rows of an answer are of, and its times, in ms since 1970.",
    as_of=int,
    **_TIMES,
)


class FeatureColumns(BaseModel):
    """An answer of Feast's; event_timestamps are those of the epochs in which rows changed last."""

    metadata: AsOf
    results: list[dict[str, Any]]


_OF_EPOCH: dict[int | str, dict[str, Any]] = {200: {"model": AsOf}}


def make_app(lookup: Lookup, health: Health) -> FastAPI:
    """The application behind the door."""
    about = (
        "Fresh embeddings of a changing graph: every answer is of one epoch.\n\n"
        f"Limits: {IDS_MAX:,} ids a request, k at most {K_MAX:,}, a body of {BODY_BYTES_MAX >> 20} MiB (else 413), not "
        f"compressed (415), whole within {BODY_S:g} s (408), waiting at most {TIMEOUT_MAX_S:g} s. One request or "
        f"answer takes at most {ONE_BYTES_MAX >> 20} MiB, all in flight together at most {ALL_BYTES_MAX >> 20} MiB: "
        "past it 429, with Retry-After where a later try may do."
    )
    app = FastAPI(title="Freshet", description=about)
    lookup.as_server()
    _refuse_by_kind(app)
    _add_description(app)
    apart = Apart()
    _add_lookups(app, lookup, apart)
    _add_features(app, lookup, apart)
    for name, computed in REQUESTS.items():
        _add_computed(app, lookup, apart, name, computed)
    _add_health(app, lookup, health)
    return app


def _refuse_by_kind(app: FastAPI) -> None:
    @app.exception_handler(FreshetError)
    async def refuse(_request: Request, error: FreshetError) -> Response:
        kind = kind_of(error)
        headers = RETRY if isinstance(error, ExhaustedError) and error.again else None
        status = FORM_STATUS if isinstance(error, FormError) else _STATUS[kind]
        return _json({"error": str(error), "kind": kind}, status, headers)

    @app.exception_handler(Exception)
    async def refuse_all(_request: Request, error: Exception) -> Response:
        return _json({"error": logged(error), "kind": "failed"}, 500)


def _add_description(app: FastAPI) -> None:
    async def described(request: Request) -> Response:
        _query(Nothing, request)
        return _json(app.openapi())

    app.router.routes.insert(0, Route("/openapi.json", described))  # FastAPI's own takes any query


def _add_lookups(app: FastAPI, lookup: Lookup, apart: Apart) -> None:
    @app.get("/embeddings/{id:any}", openapi_extra=_in_query(One, "id"), responses=_OF_EPOCH)
    @app.get("/embeddings", openapi_extra=_in_query(One), responses=_OF_EPOCH)
    async def embedding(request: Request) -> Response:
        """The embedding of one vertex; 404 where there is none.

        `?id=` takes any id, also `.` and `..`, which most clients leave out of a path. A server of several kinds wants
        the `kind`; one that it does not have is refused.
        """
        asked = _query(One, request)
        one = of_generation(lookup, asked.generation).of(asked.kind)
        ids = one.ids_of([asked.id])
        await _wait(one, asked.wanted)
        answer = one.get(ids)
        answer.served.job.check_kind(asked.kind)  # of a wait it may be another one
        if not len(answer.epochs):
            return _json(
                {"error": f"no vertex {asked.id!r}", "kind": "unknown", **_as_of(answer.served, answer.epoch)}, 404
            )
        return _json({**listed(answer, asked.ids_as is not None)[0], **_as_of(answer.served, answer.epoch)})

    @app.post("/embeddings/", include_in_schema=False)
    @app.post("/embeddings", openapi_extra=_body(Many), responses=_OF_EPOCH)
    async def embeddings(request: Request) -> Response:
        """The embeddings of many vertices, at one epoch."""
        asked, sent = await _sent(apart, Many, request)

        def size_of(served: Served) -> int:
            return _bytes_of(served, len(asked.ids), 2 * sent)

        one = of_generation(lookup, asked.generation).of(asked.kind)
        answer, held, size = await found_in(one, apart, asked.ids, asked.wanted, size_of)
        answer.served.job.check_kind(asked.kind)
        return apart.answer(_found_parts(answer, asked), size, held)


def _add_features(app: FastAPI, lookup: Lookup, apart: Apart) -> None:
    @app.post("/get-online-features", openapi_extra=_body(OnlineFeatures), responses={200: {"model": FeatureColumns}})
    async def online_features(request: Request) -> Response:
        """Answer like Feast's feature server: columns of values, with their statuses."""
        asked, sent = await _sent(apart, OnlineFeatures, request)
        name, values = next(iter(asked.entities.items()), ("id", []))  # the form takes one at most

        def size_of(served: Served) -> int:
            return feast_bytes(served.table.width, asked.columns, len(values)) + 2 * sent

        answer, held, size = await found_in(lookup.of(None), apart, values, Wanted(), size_of)
        names = [name, *asked.names]
        head = {"metadata": {"feature_names": names, **_as_of(answer.served, answer.epoch)}}
        try:
            moments = await apart(size <= INLINE_BYTES, moments_of, lookup, answer)
        except BaseException:
            held.release()
            raise
        return apart.answer(feast_parts(head, values, asked.columns, answer, moments), size, held)


def _add_computed(app: FastAPI, lookup: Lookup, apart: Apart, name: str, computed: Computed) -> None:
    form = computed.over_http(name)

    @app.post(f"/v1/{name}", name=name, include_in_schema=False)
    @app.post(f"/{name}", name=name, description=computed.about, openapi_extra=_body(form), responses=_OF_EPOCH)
    async def answered(request: Request) -> Response:
        asked, sent = await _sent(apart, form, request)
        every = of_generation(lookup, asked.generation)
        size = computed.room(every, asked, readout=True)[1] + sent
        lookup.budget.check(size, f"the answer of {computed.asked(asked):,} items")
        for one in dict.fromkeys(computed.ends(every, asked)):
            await _wait(one, asked.wanted)
        parts, held = await apart(False, _computed_parts, every, computed, asked, f"the {name} rows")
        return apart.answer(parts, size + held.size, held)


async def _sent(apart: Apart, form: type[F], request: Request) -> tuple[F, int]:
    """Return the request, and its number of bytes."""
    _query(Nothing, request)
    raw = await request.body()
    return await apart(len(raw) <= FREE_BYTES, form_of_json, form, raw), len(raw)


def _query(form: type[F], request: Request) -> F:
    """Return the request that the URL is."""
    return form_of_query(form, request.scope.get("query_string", b""), **request.path_params)


def _in_query(form: type[Form], *path: str) -> dict[str, Any]:
    """Describe, for /docs, a URL that FastAPI does not read itself: it takes names that it does not know."""
    return {"parameters": fields_in_query(form, path)}


def _body(model: type[BaseModel]) -> dict[str, Any]:
    """Describe, for /docs, a body that FastAPI does not read itself, which it would do in the event loop."""
    return {"requestBody": {"required": True, "content": {JSON: {"schema": model.model_json_schema()}}}}


def _bytes_of(served: Served, rows: int, more: int) -> int:
    """Return the maximum bytes of an answer with `rows` rows and `more` other bytes."""
    return rows * served.row_shape(readout=True).in_json + more


async def found_in(
    lookup: Lookup, apart: Apart, values: list[Any], wanted: Wanted, size_of: Callable[[Served], int]
) -> tuple[Answer, Held, int]:
    """The rows for an answer, the room that they take, and the bytes of an answer from their source."""
    what = f"the answer for {len(values):,} ids"
    lookup.budget.check(size_of(lookup.served), what)
    await _wait(lookup, wanted)
    served = lookup.served  # the rows come from it, whatever takes its place meanwhile
    lookup.budget.check(size := size_of(served), what)
    return *await apart(size <= INLINE_BYTES, _rows, lookup, values, served), size


async def _wait(lookup: Lookup, wanted: Wanted) -> None:
    if lookup.lacks_now(wanted) is not None and lookup.room is not None:
        await lookup.room.wait_as_task(wanted)
        lookup.lacks_now(wanted)  # of a generation that has ended meanwhile


def _rows(lookup: Lookup, values: list[Any], served: Served) -> tuple[Answer, Held]:
    ids = ids_of_values(values, served.table.strings)
    row = served.row_shape(readout=True).in_arrow + OBJECT_BYTES
    held = lookup.budget.hold(len(ids) * row, f"the rows of {len(ids):,} ids")
    return lookup.get(ids, served=served), held


def _found_parts(answer: Answer, asked: Many) -> Iterator[bytes]:
    known, as_text = set(ids_in(answer)), asked.ids_as is not None
    stored = as_stored(asked.ids, answer.served.table.strings)
    unknown = [str(one) if as_text else one for one, id_ in zip(asked.ids, stored, strict=True) if id_ not in known]
    of_each = answer.served.row_shape(readout=True).in_json
    rows = rows_of(answer, of_each, {}, as_text)
    lists = {"found": rows, "unknown": values_of(unknown, OBJECT_BYTES)}
    yield from object_of(_as_of(answer.served, answer.epoch), lists)


def _computed_parts(lookup: Lookup, computed: Computed, asked: Any, what: str) -> tuple[Iterator[bytes], Held]:
    held, as_text = lookup.budget.hold(computed.room(lookup, asked, readout=True)[0], what), bool(asked.ids_as)
    answer = computed.run(lookup, asked.model_dump(exclude_none=True), Wanted())
    in_json = answer.served.row_shape(readout=True).in_json
    lists: dict[str, Any] = {}
    if answer.found is not None:
        lists["found"] = rows_of(answer.found[0], in_json, answer.found[1], as_text)

    def items(name: str, values: Sequence[Any]) -> Iterator[bytes]:
        return values_of(list(map(str, values) if as_text and name in _OF_IDS else values), OBJECT_BYTES)

    for name, values in answer.lists.items():
        if isinstance(values, Mapping):
            lists[name] = {kind: items(name, of) for kind, of in values.items()}
        else:
            lists[name] = items(name, values)
    return object_of(_as_of(answer.served, answer.epoch), lists), held


def _as_of(served: Served, epoch: int) -> dict[str, Any]:
    return {"as_of": epoch, **as_json_fields(served.so_far(epoch)), **served.job.more}


def _add_health(app: FastAPI, lookup: Lookup, health: Health) -> None:
    @app.get("/healthz")
    async def alive(request: Request) -> Response:
        """Report that the server is alive, and the freshness of its table."""
        _query(Nothing, request)
        return _json(health.figures())

    @app.get("/readyz", openapi_extra=_in_query(Readiness))
    async def ready(request: Request) -> Response:
        """503 where there is no table yet, or nothing was heard of the job for too long (not with stale=ok)."""
        figures = health.figures()
        return _json(figures, status_of(figures, "/readyz", _query(Readiness, request).stale == "ok"))

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        """Return the metrics for Prometheus."""
        _query(Nothing, request)
        from prometheus_client import CONTENT_TYPE_LATEST

        text = await asyncio.to_thread(_metrics, lookup, health)  # it reads files, and may ask Flink
        return Response(text, media_type=CONTENT_TYPE_LATEST)


def _metrics(lookup: Lookup, health: Health) -> bytes:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(lookup, health))
    return generate_latest(registry)


class _Collector:
    """The figures of health as gauges, the requests, and the figures of the job."""

    def __init__(self, lookup: Lookup, health: Health) -> None:
        self._lookup, self._health = lookup, health

    def collect(self) -> list[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        from freshet.job.serving.doors.job_metrics import of_job, of_requests

        figures = self._health.in_flight() | self._health.figures()
        found: list[Metric] = [
            GaugeMetricFamily("freshet_ready", "1: there is a table, and it is fresh", float(figures["ready"]))
        ]
        for name in _NUMBERS:
            if figures.get(name) is not None:
                found.append(GaugeMetricFamily(f"freshet_{name}", name.replace("_", " "), float(figures[name])))
        if (switches := self._lookup.switches) is not None:
            found.append(CounterMetricFamily("freshet_switches", "generations of the service that followed", switches))
        offsets = GaugeMetricFamily("freshet_next_offset", "what is read up to", labels=["source", "partition"])
        for row in figures.get("positions", ()):
            offsets.add_metric([row["source"], str(row["partition"])], row["next_offset"])
        return [
            *found,
            offsets,
            *of_requests(self._lookup.budget.calls),
            *of_job(self._lookup.job.log_beside(self._lookup.folder).out),
        ]


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(as_json(content), status, headers, media_type=JSON)
