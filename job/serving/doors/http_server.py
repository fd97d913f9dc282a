"""HTTP with JSON: one embedding or many (also as Feast asks for them), neighbours, health, metrics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.routing import Route

from freshet.errors import FreshetError
from freshet.job.serving.bounds.budget import ALL_BYTES_MAX, ONE_BYTES_MAX
from freshet.job.serving.bounds.forms import TIMEOUT_MAX_S
from freshet.job.serving.doors.gzipped import Gzipped
from freshet.job.serving.doors.http_front import BODY_BYTES_MAX, BODY_S
from freshet.job.serving.doors.one_sentence import logged
from freshet.job.serving.doors.refusals import FAILED, METHOD, UNKNOWN_PATH, HttpError, body_of
from freshet.job.serving.doors.routes import changes, computed_answers, features, job, lookups, page, probes, rows
from freshet.job.serving.doors.routes import description as described
from freshet.job.serving.doors.routes.asking import json_answer, refused
from freshet.job.serving.doors.routes.registration import Routes
from freshet.job.serving.protocol.wanted import IDS_MAX
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import K_MAX, Lookup
from freshet.job.serving.tables.served import CurrentTable
from freshet.version import __version__

_SHOWN = 100
# Another capability is a module with `add(routes)`, and here its tag; access.py has paths that are open or for admins.
_MODULES = {
    lookups: "embeddings",
    rows: "embeddings",
    changes: "embeddings",
    features: "embeddings",
    computed_answers: "embeddings",
    probes: "health",
    job: "job",
    page: "",
    described: "",
}


def make_app(lookup: Lookup, health: Health, ending: Callable[[], bool] = lambda: False) -> FastAPI:
    """The application behind the door; `ending`: whether the server ends, and with it streams."""
    about = (
        "Fresh embeddings of a changing graph: every answer is of one epoch.\n\n"
        f"Limits: {IDS_MAX:,} ids a request, k at most {K_MAX:,}, a body of {BODY_BYTES_MAX >> 20} MiB (else 413), not "
        f"compressed (415), whole within {BODY_S:g} s (408), waiting at most {TIMEOUT_MAX_S:g} s. One request or "
        f"answer takes at most {ONE_BYTES_MAX >> 20} MiB, all in flight together at most {ALL_BYTES_MAX >> 20} MiB: "
        "past it 429, with Retry-After where a later try may do."
    )
    app = FastAPI(
        title="Freshet", description=about, version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    lookup.as_server()
    _refuse_by_kind(app)
    routes = Routes(app, lookup, health, ending)
    for module, routes.tag in _MODULES.items():
        module.add(routes)
    app.add_middleware(Gzipped, apart=routes.apart)
    return app


def description() -> dict[str, Any]:
    """Return /openapi.json, without a server."""
    lookup = Lookup(CurrentTable(Path("tables")))
    return described.description_of(make_app(lookup, Health(lookup)))


def _refuse_by_kind(app: FastAPI) -> None:
    @app.exception_handler(FreshetError)
    async def refuse(_request: Request, error: FreshetError) -> Response:
        return refused(error)

    @app.exception_handler(404)
    async def refuse_path(request: Request, _error: Exception) -> Response:
        path = request.scope["path"]
        near = next((one for one in (path.rstrip("/"), path + "/") if _methods(app, one)), None)
        msg = f"no such path: {path[:_SHOWN]!r}; " + (f"did you mean {near}?" if near else "/openapi.json has all")
        return refused(HttpError(UNKNOWN_PATH, msg))

    @app.exception_handler(405)
    async def refuse_method(request: Request, _error: Exception) -> Response:
        allowed = {"Allow": ", ".join(sorted(_methods(app, request.scope["path"])))}
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=allowed)
        msg = f"{request.method[:_SHOWN]}: expected one of {allowed['Allow']}"
        return refused(HttpError(METHOD, msg, allowed))

    @app.exception_handler(Exception)
    async def refuse_all(_request: Request, error: Exception) -> Response:
        return json_answer(body_of(FAILED, logged(error)), 500)


def _methods(app: FastAPI, path: str) -> set[str]:
    """Return the methods of a path; none where there is no such path."""
    found: set[str] = set()
    for route in app.router.routes:
        if isinstance(route, Route) and route.path_regex.match(path):
            found |= route.methods or set()
    return found | {"HEAD", "OPTIONS"} if found else found
