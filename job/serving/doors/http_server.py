"""HTTP with JSON: one embedding or many (also as Feast asks for them), neighbours, health, metrics."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from freshet.errors import FreshetError
from freshet.job.serving.bounds.budget import ALL_BYTES_MAX, ONE_BYTES_MAX
from freshet.job.serving.bounds.forms import TIMEOUT_MAX_S, FormError
from freshet.job.serving.doors.http_front import BODY_BYTES_MAX, BODY_S, EXHAUSTED_STATUS, FORM_STATUS, RETRY
from freshet.job.serving.doors.one_sentence import logged
from freshet.job.serving.doors.routes import computed_answers, description, features, job, lookups, page, probes
from freshet.job.serving.doors.routes.asking import json_answer
from freshet.job.serving.doors.routes.registration import Routes
from freshet.job.serving.protocol.errors import EXHAUSTED, ExhaustedError, kind_of
from freshet.job.serving.protocol.wanted import IDS_MAX
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import K_MAX, Lookup

_STATUS = {
    "bad-request": 400,
    "no-job": 404,
    "not-yet": 504,
    "other-model": 409,
    "gone": 410,
    "not-ready": 503,
    "failed": 500,
    "too-slow": 503,
    EXHAUSTED: EXHAUSTED_STATUS,
}
# Another capability is a module with `add(routes)` and a name here; one that is open or for admins stands in access.py.
_MODULES = (description, lookups, features, computed_answers, probes, job, page)


def make_app(lookup: Lookup, health: Health) -> FastAPI:
    """The application behind the door."""
    about = (
        "Fresh embeddings of a changing graph: every answer is of one epoch.\n\n"
        f"Limits: {IDS_MAX:,} ids a request, k at most {K_MAX:,}, a body of {BODY_BYTES_MAX >> 20} MiB (else 413), not "
        f"compressed (415), whole within {BODY_S:g} s (408), waiting at most {TIMEOUT_MAX_S:g} s. One request or "
        f"answer takes at most {ONE_BYTES_MAX >> 20} MiB, all in flight together at most {ALL_BYTES_MAX >> 20} MiB: "
        "past it 429, with Retry-After where a later try may do."
    )
    app = FastAPI(title="Freshet", description=about, docs_url=None, redoc_url=None)
    lookup.as_server()
    _refuse_by_kind(app)
    routes = Routes(app, lookup, health)
    for module in _MODULES:
        module.add(routes)
    return app


def _refuse_by_kind(app: FastAPI) -> None:
    @app.exception_handler(FreshetError)
    async def refuse(_request: Request, error: FreshetError) -> Response:
        kind = kind_of(error)
        headers = RETRY if isinstance(error, ExhaustedError) and error.again else None
        status = FORM_STATUS if isinstance(error, FormError) else _STATUS[kind]
        return json_answer({"error": str(error), "kind": kind}, status, headers)

    @app.exception_handler(Exception)
    async def refuse_all(_request: Request, error: Exception) -> Response:
        return json_answer({"error": logged(error), "kind": "failed"}, 500)
