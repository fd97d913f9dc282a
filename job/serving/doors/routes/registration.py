"""How a module of this room adds its paths: below /v1, and those of before it without, marked as deprecated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.convertors import Convertor, register_url_convertor

from freshet.job.serving.bounds.forms import Form, Nothing, fields_in_query
from freshet.job.serving.doors.access import PREFIX
from freshet.job.serving.doors.json_answers import JSON, Apart
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class _AnyText(Convertor[str]):
    """The rest of a path, whatever it holds: an id may be empty, a URI, or several lines."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("any", _AnyText())


class Routes:
    """The paths of an application, and what their answers come from."""

    def __init__(self, app: FastAPI, lookup: Lookup, health: Health) -> None:
        self.app, self.lookup, self.health, self.apart = app, lookup, health, Apart()

    def get(
        self,
        path: str,
        form: type[Form] = Nothing,
        *,
        name: str,
        answer: type[BaseModel] | None = None,
        in_path: Sequence[str] = (),
        before: bool = True,
    ) -> Callable[[Endpoint], Endpoint]:
        """Decorate what answers GET below /v1, with `form` in the query.

        `name`: the operationId; `answer`: what 200 has; `in_path`: fields of the form that stand in the path;
        `before`: the path is there without /v1, too. The docstring is the description.
        """
        more = {"parameters": fields_in_query(form, in_path)}
        return self._add("GET", path, name, answer, more, before)

    def post(
        self,
        path: str,
        form: type[BaseModel],
        *,
        name: str,
        answer: type[BaseModel] | None = None,
        about: str = "",
        before: bool = True,
    ) -> Callable[[Endpoint], Endpoint]:
        """Decorate what answers POST below /v1, with `form` as its body; `about`: in the place of a docstring."""
        schema = {"schema": form.model_json_schema()}
        more = {"requestBody": {"required": True, "content": {JSON: schema}}}
        return self._add("POST", path, name, answer, more, before, about)

    def _add(
        self,
        method: str,
        path: str,
        name: str,
        answer: type[BaseModel] | None,
        more: dict[str, Any],
        before: bool,
        about: str = "",
    ) -> Callable[[Endpoint], Endpoint]:
        described: dict[str, Any] = {
            "description": about or None,
            "openapi_extra": more,
            "responses": {} if answer is None else {200: {"model": answer}},
        }

        def added(endpoint: Endpoint) -> Endpoint:
            self._route(method, f"{PREFIX}{path}", endpoint, operation_id=name, **described)
            if before:
                self._route(method, path, endpoint, operation_id=f"{name}_unversioned", deprecated=True, **described)
            return endpoint

        return added

    def hidden(self, method: str, path: str, endpoint: Endpoint) -> None:
        """Answer at this very path as well, which /openapi.json does not have."""
        self._route(method, path, endpoint, include_in_schema=False)

    def _route(self, method: str, path: str, endpoint: Endpoint, **described: Any) -> None:
        self.app.add_api_route(path, endpoint, methods=[method], response_model=None, **described)
