"""Registration of the paths of a room's modules: below /v1; those of before it without, marked as deprecated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.convertors import Convertor, register_url_convertor

from freshet.job.serving.bounds.forms import Form, Nothing, fields_in_query
from freshet.job.serving.bounds.waiting import THREADS_MAX
from freshet.job.serving.doors.access import PREFIX, Access, access_of
from freshet.job.serving.doors.json_answers import JSON, Apart
from freshet.job.serving.doors.refusals import (
    BAD_REQUEST,
    FAILED,
    FORBIDDEN,
    FORM_STATUS,
    HEADERS_LARGE,
    LARGE,
    LATE,
    LENGTH,
    MEDIA,
    STATUS,
    UNAUTHORIZED,
)
from freshet.job.serving.doors.routes.answers import Error
from freshet.job.serving.protocol.errors import EXHAUSTED
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Answer: TypeAlias = type[BaseModel] | str | None
SCHEME = "bearer"  # of securitySchemes
_CHALLENGE = {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "`Bearer`"}}


class _AnyText(Convertor[str]):
    """The rest of a path, whatever it holds: an id may be empty, a URI, or several lines."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("any", _AnyText())


# Kinds of errors that any path may answer with; those that need a token have further ones.
_ANY = (BAD_REQUEST, LATE, LENGTH, LARGE, MEDIA, EXHAUSTED, HEADERS_LARGE, FAILED, "not-ready")


class Routes:
    """The paths of an application, and what their answers come from."""

    tag = ""  # of the paths that are added now, by which /docs and generated clients group them

    def __init__(self, app: FastAPI, lookup: Lookup, health: Health, ending: Callable[[], bool]) -> None:
        self.app, self.lookup, self.health, self.ending = app, lookup, health, ending
        self.apart, self.in_turn = Apart(), Apart(THREADS_MAX)  # threads of the latter sleep while others have theirs

    def get(
        self,
        path: str,
        form: type[Form] = Nothing,
        *,
        name: str,
        answer: Answer = None,
        errors: Sequence[str] = (),
        others: Mapping[int, type[BaseModel]] | None = None,
        in_path: Sequence[str] = (),
        before: bool = True,
    ) -> Callable[[Endpoint], Endpoint]:
        """Decorate what answers GET below /v1, with `form` in the query.

        `name`: the operationId; `answer`: what 200 has, a class or a media type of text; `errors`: kinds of errors
        beside those of any path; `others`: answers of further statuses, or in the place of an error's; `in_path`:
        fields of the form that stand in the path; `before`: the path is there without /v1, too. The docstring is the
        description.
        """
        more = {"parameters": fields_in_query(form, in_path)}
        return self._add("GET", path, name, more, self._responses(path, answer, errors, others), before)

    def post(
        self,
        path: str,
        form: type[BaseModel],
        *,
        name: str,
        answer: Answer = None,
        errors: Sequence[str] = (),
        about: str = "",
        before: bool = True,
    ) -> Callable[[Endpoint], Endpoint]:
        """Decorate what answers POST below /v1, with `form` as its body; `about`: in the place of a docstring."""
        schema = _inlined(form.model_json_schema())
        schema.pop("title")  # generated clients name it by the operation: GetEmbeddingsBody
        more = {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}
        return self._add("POST", path, name, more, self._responses(path, answer, errors), before, about)

    def _responses(
        self, path: str, answer: Answer, errors: Sequence[str], others: Mapping[int, type[BaseModel]] | None = None
    ) -> dict[int | str, dict[str, Any]]:
        access = access_of(path)
        kinds = [*_ANY, *errors]
        kinds += [] if access is Access.OPEN else [UNAUTHORIZED]
        kinds += [FORBIDDEN] if access is Access.ADMIN else []
        found: dict[int | str, dict[str, Any]] = {}
        for status in sorted({STATUS[kind] for kind in kinds} | {FORM_STATUS}):
            of_status = [kind for kind in kinds if STATUS[kind] == status]
            of_status += [BAD_REQUEST] if status == FORM_STATUS else []
            found[status] = {"model": Error, "description": f"Refused: {', '.join(of_status)}"}
        if STATUS[UNAUTHORIZED] in found:
            found[STATUS[UNAUTHORIZED]]["headers"] = _CHALLENGE
        for status, model in (others or {}).items():
            found[status] = {"model": model, "description": found.get(status, {}).get("description", "As it is")}
        if isinstance(answer, str):
            found[200] = {"content": {answer: {"schema": {"type": "string"}}}, "description": "As text"}
        elif answer is not None:
            found[200] = {"model": answer}
        return found

    def _add(
        self,
        method: str,
        path: str,
        name: str,
        more: dict[str, Any],
        responses: dict[int | str, dict[str, Any]],
        before: bool,
        about: str = "",
    ) -> Callable[[Endpoint], Endpoint]:
        secured: dict[str, Any] = {} if access_of(path) is Access.OPEN else {"security": [{SCHEME: []}]}
        described: dict[str, Any] = {
            "description": about or None,
            "openapi_extra": more | secured,
            "responses": responses,
            "tags": [self.tag] if self.tag else None,
        }
        if "content" in responses.get(200, {}):
            described["response_class"] = Response  # FastAPI adds JSON else

        def added(endpoint: Endpoint) -> Endpoint:
            summary = name.replace("_", " ").capitalize()
            self._route(method, f"{PREFIX}{path}", endpoint, operation_id=name, summary=summary, **described)
            if before:
                former = {"operation_id": f"{name}_unversioned", "summary": summary, "deprecated": True}
                self._route(method, path, endpoint, **former, **described)
            return endpoint

        return added

    def hidden(self, method: str, path: str, endpoint: Endpoint) -> None:
        """Answer at this very path as well, which /openapi.json does not have."""
        self._route(method, path, endpoint, include_in_schema=False)

    def _route(self, method: str, path: str, endpoint: Endpoint, **described: Any) -> None:
        self.app.add_api_route(path, endpoint, methods=[method], response_model=None, **described)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a body with the objects that it refers to in the place of the references."""
    defined = schema.pop("$defs", {})

    def put(value: Any) -> Any:
        if isinstance(value, list):
            return [put(one) for one in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return put(defined[value["$ref"].rpartition("/")[2]])
        return {name: put(one) for name, one in value.items()}

    found: dict[str, Any] = put(schema)
    return found
