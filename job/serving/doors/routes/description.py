"""The API's description, /openapi.json."""

from __future__ import annotations

from fastapi import Request, Response
from starlette.routing import Route

from freshet.job.serving.bounds.forms import Nothing
from freshet.job.serving.doors.access import PREFIX
from freshet.job.serving.doors.routes.asking import json_answer, query
from freshet.job.serving.doors.routes.registration import Routes


def add(routes: Routes) -> None:
    """Add GET /openapi.json, which is not in itself."""
    app = routes.app

    async def described(request: Request) -> Response:
        query(Nothing, request)
        return json_answer(app.openapi())

    for path in ("/openapi.json", f"{PREFIX}/openapi.json"):
        app.router.routes.insert(0, Route(path, described))  # FastAPI's own takes any query
