"""HTTP with JSON: one embedding or many (also as Feast asks for them), neighbours, health, metrics."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.convertors import Convertor, register_url_convertor

from gnn.errors import FreshetError
from job.serving.health import Health
from job.serving.http_front import as_json
from job.serving.lookup import TIMEOUT_S, Answer, Lookup, Wanted
from job.serving.requests import TIMEOUT_MAX_S, kind_of, nearest_of
from state.served.ids import Texts

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

_STATUS = {"bad-request": 400, "not-yet": 504, "not-ready": 503, "failed": 500}
_POLL_S = 0.002
_NUMBER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_NUMBERS = (
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
)


class _AnyText(Convertor[str]):
    """The rest of a path, whatever it holds: an id may be empty, a URI, or several lines."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("any", _AnyText())


class Lookups(BaseModel):
    """Ids, and from when on an answer will do."""

    model_config = ConfigDict(extra="forbid")
    ids: list[Any]
    min_epoch: int = 0
    min_position: dict[str, int] | None = Field(default=None, description="partition -> offset that must be covered")
    timeout: float = Field(default=TIMEOUT_S, ge=0, le=TIMEOUT_MAX_S)

    @property
    def wanted(self) -> Wanted:
        """From when on an answer will do."""
        return Wanted(self.min_epoch, self.min_position, self.timeout)


class OnlineFeatures(BaseModel):
    """A request of Feast's; what else stands in it is ignored."""

    entities: dict[str, list[Any]]
    features: list[str] = []
    full_feature_names: bool = False


class Nearest(BaseModel):
    """Neighbours of a vertex, or of a vector."""

    model_config = ConfigDict(extra="forbid")
    id: Any = None
    vector: list[float] | None = None
    k: int = 10
    metric: str = "cosine"


def make_app(lookup: Lookup, health: Health) -> FastAPI:
    """The application behind the door."""
    # Feast sends its JSON without a Content-Type.
    about = "Fresh embeddings of a changing graph: every answer is of one epoch."
    app = FastAPI(title="Freshet", description=about, strict_content_type=False)
    _refuse_by_kind(app)
    _add_lookups(app, lookup)
    _add_health(app, lookup, health)
    return app


def _refuse_by_kind(app: FastAPI) -> None:
    @app.exception_handler(FreshetError)
    async def refuse(_request: Request, error: FreshetError) -> Response:
        kind = kind_of(error)
        return _json({"error": str(error), "kind": kind}, _STATUS[kind])

    @app.exception_handler(RequestValidationError)
    async def refuse_form(_request: Request, error: RequestValidationError) -> Response:
        # without the input, which FastAPI would repeat: it may be no text at all
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        return _json({"error": "; ".join(wrong), "kind": "bad-request"}, 422)


def _add_lookups(app: FastAPI, lookup: Lookup) -> None:
    async def rows(values: list[Any], wanted: Wanted) -> Answer:
        await _wait(lookup, wanted)
        return lookup.get(lookup.ids_of(values))

    def as_of(answer: Answer) -> dict[str, Any]:
        return {"as_of": answer.epoch, **lookup.more}

    @app.get("/embeddings/{id:any}")
    @app.get("/embeddings")
    async def embedding(
        id: str,
        min_epoch: int = 0,
        timeout: float = Query(TIMEOUT_S, ge=0, le=TIMEOUT_MAX_S),  # what clients call it
    ) -> Response:
        """The embedding of one vertex; 404 where there is none.

        `?id=` takes any id, also `.` and `..`, which most clients leave out of a path.
        """
        value: Any = int(id) if not lookup.table.strings and _NUMBER.fullmatch(id) else id
        answer = await rows([value], Wanted(min_epoch, None, timeout))
        if not len(answer.epochs):
            return _json({"error": f"no vertex {value!r}", "kind": "unknown", **as_of(answer)}, 404)
        return _json({**_listed(lookup, answer)[0], **as_of(answer)})

    @app.post("/embeddings/", include_in_schema=False)
    @app.post("/embeddings")
    async def embeddings(asked: Lookups) -> Response:
        """The embeddings of many vertices, at one epoch."""
        answer = await rows(asked.ids, asked.wanted)
        found = _listed(lookup, answer)
        known = {one["id"] for one in found}
        return _json({**as_of(answer), "found": found, "unknown": [one for one in asked.ids if one not in known]})

    @app.post("/get-online-features")
    async def online_features(asked: OnlineFeatures) -> Response:
        """As Feast's feature server answers: columns of values, with their statuses."""
        name, values = next(iter(asked.entities.items()), ("id", []))
        answer = await rows(values, Wanted())
        return _json(_as_feast(name, values, asked, answer, as_of(answer)))

    @app.post("/nearest")
    async def nearest(asked: Nearest) -> Response:
        """The k vertices whose embeddings are nearest, exactly."""
        told = asked.model_dump(exclude_none=True)
        answer, scores = await run_in_threadpool(nearest_of, lookup, told, Wanted())
        found = [{**one, "score": score} for one, score in zip(_listed(lookup, answer), scores.tolist(), strict=True)]
        return _json({**as_of(answer), "found": found})


def _add_health(app: FastAPI, lookup: Lookup, health: Health) -> None:
    @app.get("/healthz")
    async def alive() -> Response:
        """Whether the server lives; and how fresh its table is."""
        return _json(health.figures())

    @app.get("/readyz")
    async def ready() -> Response:
        """503 where there is no table yet, or nothing was heard of the job for too long."""
        figures = health.figures()
        return _json(figures, 200 if figures["ready"] else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        """For Prometheus."""
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(_Collector(health))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Collector:
    """The figures of health as gauges."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> list[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        figures = self._health.figures()
        found = [GaugeMetricFamily("freshet_ready", "1: there is a table, and it is fresh", float(figures["ready"]))]
        for name in _NUMBERS:
            if figures.get(name) is not None:
                found.append(GaugeMetricFamily(f"freshet_{name}", name.replace("_", " "), float(figures[name])))
        offsets = GaugeMetricFamily("freshet_next_offset", "what is read up to", labels=["source", "partition"])
        for row in figures.get("positions", ()):
            offsets.add_metric([row["source"], str(row["partition"])], row["next_offset"])
        return [*found, offsets]


async def _wait(lookup: Lookup, wanted: Wanted) -> None:
    for _ in lookup.while_lacking(wanted):
        await asyncio.sleep(_POLL_S)


def _listed(lookup: Lookup, answer: Answer) -> list[dict[str, Any]]:
    """The rows of an answer as JSON objects; numbers that are not finite become null."""
    ids = answer.ids.decode() if isinstance(answer.ids, Texts) else answer.ids.tolist()
    found = [
        {"id": id_, "epoch": epoch, "embedding": row}
        for id_, epoch, row in zip(ids, answer.epochs.tolist(), answer.rows, strict=True)
    ]
    if lookup.head_width and found:
        logits = lookup.logits(answer.rows)
        for one, row, winner in zip(found, logits, logits.argmax(1).tolist(), strict=True):
            one |= {"logits": row, "class": winner}
    return found


def _as_feast(
    name: str, values: list[Any], asked: OnlineFeatures, answer: Answer, as_of: dict[str, Any]
) -> dict[str, Any]:
    ids = answer.ids.decode() if isinstance(answer.ids, Texts) else answer.ids.tolist()
    at = {id_: k for k, id_ in enumerate(ids)}
    stamps = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())] * len(values)
    names, results = [name], [{"values": values, "statuses": ["PRESENT"] * len(values), "event_timestamps": stamps}]
    for feature in asked.features or ["embeddings:embedding"]:
        view, _, column = feature.rpartition(":")
        known = column in ("embedding", "epoch")
        rows = [at.get(value) if known else None for value in values]
        source: Any = answer.epochs.tolist() if column == "epoch" else answer.rows
        names.append(f"{view}__{column}" if asked.full_feature_names and view else column)
        results.append(
            {
                "values": [None if row is None else source[row] for row in rows],
                "statuses": ["NOT_FOUND" if row is None else "PRESENT" for row in rows],
                "event_timestamps": stamps,
            }
        )
    return {"metadata": {"feature_names": names, **as_of}, "results": results}


def _json(content: Any, status: int = 200) -> Response:
    return Response(as_json(content), status, media_type="application/json")
