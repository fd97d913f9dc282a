"""The API's description, /openapi.json."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.routing import Route

from freshet.job.serving.bounds.forms import Nothing
from freshet.job.serving.doors.access import PREFIX
from freshet.job.serving.doors.routes.asking import json_answer, query
from freshet.job.serving.doors.routes.registration import SCHEME, Routes


def add(routes: Routes) -> None:
    """Add GET /openapi.json, which is not in itself."""
    app = routes.app

    async def described(request: Request) -> Response:
        query(Nothing, request)
        return json_answer(description_of(app))

    for path in ("/openapi.json", f"{PREFIX}/openapi.json"):
        app.router.routes.insert(0, Route(path, described))  # FastAPI's own takes any query


def description_of(app: FastAPI) -> dict[str, Any]:
    """Return the description of all paths, in OpenAPI 3.1."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        about = "A token of `freshet serve`; not needed where the server has none."
        found["components"]["securitySchemes"] = {SCHEME: {"type": "http", "scheme": "bearer", "description": about}}
        app.openapi_schema = found
    return app.openapi_schema
