"""The job of the rows and the server itself: status, the last hour, rejected records, times of epochs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field, create_model

from freshet.errors import FreshetError
from freshet.job.folder.layout import SAVED_JOB
from freshet.job.serving.bounds.forms import HistorySince, Nothing, OneEpochOf, Rejected
from freshet.job.serving.doors.http_front import as_json
from freshet.job.serving.doors.routes.asking import json_answer, query
from freshet.job.serving.doors.routes.registration import Routes
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.protocol.wanted import ROW
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.history import FIGURES, SECONDS, STATES
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.place import read_server
from freshet.job.serving.view.job_here import JobStatus, out_of
from freshet.job.serving.view.rejected import has_letters, newest_rejected
from freshet.job.serving.view.sampler import EVERY_S
from freshet.state.served.ids import plain_ids
from freshet.state.served.times import NO_TIME
from freshet.version import __version__

if TYPE_CHECKING:
    from freshet.state.served.reader import TableReader

_HOUR_BYTES = 8 << 20  # of samples as Python has them, and as JSON
_SOME = 8  # ids that are shown to begin with

_FIGURES: dict[str, Any] = {
    name: ((int if figure.whole else float) | None, Field(description=figure.about)) for name, figure in FIGURES.items()
}
_FIGURES["state"] = (Literal[STATES] | None, Field(description="of the job, as `job` of /healthz"))
Sample: Any = create_model("Sample", __doc__="Figures of a second.", **_FIGURES)


class LastHour(BaseModel):
    """Samples of the last hour, the oldest first; they begin when the server does."""

    every_s: float = Field(description="seconds between two samples")
    seconds: int = Field(description="samples that are kept at most")
    samples: list[Sample]


class Status(BaseModel):
    """Object that `freshet status --json` prints; the reference of that command has all fields."""

    model_config = ConfigDict(extra="allow")

    state: Literal["running", "stopped", "ended", "failed", "lost"]
    detail: str = Field(description="how the state is known, or the cause of an end")
    name: str
    epoch: int
    events: int
    rejected: int
    reasons: dict[str, int] = Field(description="rejected records by reason")
    events_per_s: float
    lag: dict[str, int] | None = Field(description="records that are not read yet, by partition")
    freshness_ms_p50: float | None
    freshness_ms_p99: float | None
    checkpoint_age_s: float | None
    parts: int | None


class Letter(BaseModel):
    """A rejected record; texts of more than 2,000 characters are cut, and `raw_length` and such say what they had."""

    model_config = ConfigDict(extra="allow")

    reason: str
    error: str
    source: str
    partition: int
    offset: int
    raw: str | None = Field(None, description="the record as it came")
    raw_base64: str | None = Field(None, description="in its place, where it is no UTF-8")


class RejectedRecords(BaseModel):
    """The newest rejected records, the newest first."""

    rejected: int = Field(description="since the job began")
    reasons: dict[str, int]
    dropped: int = Field(description="records that are in no file any more")
    file: str
    letters: list[Letter]
    truncated: bool = Field(description="there may be more, which would take reading more than 1 MiB of the file")


class KindHere(BaseModel):
    """Vertices of a kind, as they are served."""

    kind: str = Field(description="empty where vertices have no kinds")
    epoch: int | None
    vertices: int | None
    width: int | None = Field(description="numbers of an embedding")
    classes: int | None = Field(description="numbers of its logits; null for a model without a head")
    some_ids: list[str] = Field(description="a few of its vertices, to begin with")


class ServerHere(BaseModel):
    """The server that answers."""

    version: str
    feed: Literal["job", "service", "servers", "topic"] = Field(
        description="what the table is kept up to date from: the folder of a job or of a service, other servers, or a "
        "Kafka topic"
    )
    job_here: bool = Field(description="the folder of the job is on the server's machine: there is a status")
    letters_here: bool = Field(description="its rejected records are in a file there")
    kinds: list[KindHere]
    sources: list[str] = Field(description="of the job")
    model: str = Field(description="SHA-256 of the model, empty where it is not known")
    flight: str | None = Field(description="address of Arrow Flight")
    http: str | None
    processes: list[int] = Field(description="process ids, the one that keeps the table first")


class EpochMoment(BaseModel):
    """Times of an epoch, in ms since 1970; null where they are not known."""

    epoch: int
    arrived_ms: int | None = Field(description="when the last of its events arrived")
    event_ts: int | None = Field(description="the largest `ts` of its events")


def add(routes: Routes) -> None:
    """Add GET /v1/status, /v1/history, /v1/rejected, /v1/server and /v1/epochs/{epoch}."""
    _add_job(routes)
    _add_server(routes)


def _add_job(routes: Routes) -> None:
    lookup, status = routes.lookup, JobStatus(routes.lookup)

    @routes.get("/status", name="get_status", answer=Status, errors=["no-job"], before=False)
    async def job_status(request: Request) -> Response:
        """The job's state, progress and load, as `freshet status --json`; at most a second old.

        404 `no-job` where the folder of the job is not on the server's machine.
        """
        query(Nothing, request)
        return json_answer(await asyncio.to_thread(status.now))

    @routes.get("/rejected", Rejected, name="get_rejected", answer=RejectedRecords, errors=["no-job"], before=False)
    async def rejected(request: Request) -> Response:
        """The newest rejected records with their reasons, the newest first.

        404 `no-job` where there is no job here, or its rejected records go to a topic.
        """
        asked = query(Rejected, request)
        return json_answer(await asyncio.to_thread(newest_rejected, out_of(lookup), asked.limit))


def _add_server(routes: Routes) -> None:
    lookup, health = routes.lookup, routes.health

    @routes.get("/history", HistorySince, name="get_history", answer=LastHour, before=False)
    async def last_hour(request: Request) -> Response:
        """A sample a second of the last hour: epoch, events, lag, freshness, rows, rejected records.

        With `since_ms` only what came later, for clients that ask again.
        """
        asked = query(HistorySince, request)
        held = lookup.budget.hold(_HOUR_BYTES, "the samples of the last hour")
        try:
            body = await asyncio.to_thread(_hour, health, asked.since_ms)
        except BaseException:
            held.release()
            raise
        return routes.apart.answer(iter([body]), len(body), held)

    @routes.get("/server", name="get_server", answer=ServerHere, before=False)
    async def server(request: Request) -> Response:
        """The server: version, feed, kinds of vertices, processes."""
        query(Nothing, request)
        return json_answer(await asyncio.to_thread(_server, lookup))

    @routes.get("/epochs/{epoch}", OneEpochOf, in_path=["epoch"], name="get_epoch", answer=EpochMoment, before=False)
    async def times_of_epoch(request: Request) -> Response:
        """Times of an epoch, such as the `epoch` of a row, in which it changed last."""
        asked = query(OneEpochOf, request)
        one = lookup.of(asked.kind)
        [times] = await asyncio.to_thread(one.times_of_epochs, one.served, np.array([asked.epoch]))
        arrived_ms, event_ts = (None if time == NO_TIME else time for time in times.tolist())
        return json_answer({"epoch": asked.epoch, "arrived_ms": arrived_ms, "event_ts": event_ts})


def _hour(health: Health, since_ms: int) -> bytes:
    return as_json({"every_s": EVERY_S, "seconds": SECONDS, "samples": health.history.since(since_ms)})


def _server(lookup: Lookup) -> dict[str, Any]:
    job, found = lookup.job, read_server(lookup.folder)
    here = (out_of(lookup) / SAVED_JOB).exists()
    feed = "topic" if job.consistency == ROW else "servers" if not here else "service" if job.out else "job"
    return {
        "version": __version__,
        "feed": feed,
        "job_here": here,
        "letters_here": has_letters(out_of(lookup)),
        "kinds": [_kind(one) for one in lookup.each],
        "sources": list(job.sources),
        "model": job.model_sha256,
        "flight": found.get("flight"),
        "http": found.get("http"),
        "processes": [pid for pid in (found.get("pid"), *found.get("workers", ())) if pid],
    }


def _kind(lookup: Lookup) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": lookup.job.kind_name, **dict.fromkeys(("epoch", "vertices", "width", "classes"))}
    found["some_ids"] = []
    with suppress(NotReadyError):
        served = lookup.served if lookup.is_computed else lookup.whole
        table = served.whole
        found |= {"epoch": table.epoch, "vertices": table.live, "width": table.width, "some_ids": _some_ids(table)}
        readout = served.readout
        found["classes"] = None if readout is None else readout.width
    return found


def _some_ids(table: TableReader) -> list[str]:
    with suppress(FreshetError):  # it is replaced just now: another time
        return [str(one) for one in plain_ids(table.part(table.epoch, 0, min(_SOME, table.live))[1])]
    return []
