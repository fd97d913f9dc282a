"""Fields of requests, with types and limits, read strictly from JSON or from the query of a URL.

HTTP, its documentation and Flight read the same forms. Ids and vectors are checked where the table is known. Forms of
requests whose answers are computed, and Flight's ticket, are in `requests.py`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any, Literal, NoReturn, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from freshet.job.serving.protocol.errors import BadRequestError
from freshet.job.serving.protocol.wanted import TIMEOUT_S, Wanted

TIMEOUT_MAX_S = 60.0
LETTERS_MAX = 200
ROWS_MAX = 10_000  # of a page
_INT64_MAX = 2**63 - 1
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,19})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?", re.ASCII)
_PLACE = "min_position"  # an object in JSON, and in a query PLACE:OFFSET, once for each partition
_SHOWN, _ERRORS_MAX = 50, 5
_IDS_AS = "`string`: ids of the answer are strings, for clients that read numbers as 64-bit floats (JavaScript)"
_KIND = "kind of the vertices; needed of a server of several, and that of another server is refused"
_KINDS = "kinds of the left and the right vertex of a pair, where the server has more than one link head for its kinds"
_POSITION = "records that must be covered: their offset by partition (PARTITION, of several sources SOURCE:PARTITION)"


class FormError(BadRequestError):
    """A request with a field that its form does not have, lacks, or has with another type; the message names it."""

    http_status = 422


class Form(BaseModel):
    """A request; fields that it does not name are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def part(cls, _name: str) -> type[Form]:
        """Return the form of a field that is an object, else this one."""
        return cls


class Conditions(Form):
    """From when on an answer will do."""

    min_epoch: int = Field(default=0, ge=-_INT64_MAX, le=_INT64_MAX, description="wait until this epoch is readable")
    min_position: dict[str, int] | None = Field(default=None, description=_POSITION)
    timeout: float = Field(default=TIMEOUT_S, ge=0, le=TIMEOUT_MAX_S, description="seconds to wait for that")
    generation: int | None = Field(
        default=None,
        ge=0,
        le=_INT64_MAX,
        description="of a service: the current generation, or an earlier one while it is kept, else 410",
    )

    @property
    def wanted(self) -> Wanted:
        """Condition on the table for an answer."""
        return Wanted(self.min_epoch, self.min_position, self.timeout, self.generation)


class WithIds(Form):
    """A request whose answer has ids."""

    ids_as: Literal["string"] | None = Field(default=None, description=_IDS_AS)


class OfKind(Form):
    """A request for vertices of one kind."""

    kind: str | None = Field(default=None, description=_KIND)


class OfKinds(Form):
    """A request whose vertices may be of two kinds."""

    kinds: list[str] | None = Field(default=None, min_length=2, max_length=2, description=_KINDS)


class One(Conditions, WithIds, OfKind):
    """One vertex, over HTTP."""

    id: str = Field(description="the vertex")


class Many(Conditions, WithIds, OfKind):
    """Several vertices, over HTTP."""

    ids: list[Any] = Field(description="the vertices; integers may be written as strings")


class PageOfRows(Conditions, WithIds, OfKind):
    """A page of all rows."""

    after: str | None = Field(default=None, max_length=1000, description="`next` of the page before")
    limit: int = Field(default=1000, ge=1, le=ROWS_MAX, description="rows at most")


class ChangesSince(WithIds, OfKind):
    """Changes from an epoch on."""

    since_epoch: int | None = Field(
        default=None,
        ge=0,
        le=_INT64_MAX,
        description="epoch whose rows the reader has; without it, changes from now on",
    )


class OnlineFeatures(Form):
    """A request of Feast's. Fields that Feast has besides are taken, as its clients send them, and change nothing."""

    entities: dict[str, list[Any]] = Field(max_length=1)
    features: list[str] = []
    full_feature_names: bool = False
    feature_service: Any = None
    request_context: Any = None
    allow_registry_cache: Any = None
    include_feature_view_version_metadata: Any = None

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The view and the column of each feature."""
        return [(view, column) for view, _, column in (one.rpartition(":") for one in self._asked)]

    @property
    def names(self) -> list[str]:
        """Names of the columns in the answer."""
        return [f"{view}__{column}" if self.full_feature_names and view else column for view, column in self.columns]

    @property
    def _asked(self) -> list[str]:
        return self.features or ["embeddings:embedding"]


class Stream(OfKind):
    """Command of a lookup stream over Flight; each of its requests has Conditions."""

    logits: bool = False


class Readiness(Form):
    """A probe of readiness."""

    stale: Literal["ok", "no"] = Field(default="no", description="`ok`: a server with an old table is ready, too")


class HistorySince(Form):
    """Samples of the last hour."""

    since_ms: int = Field(default=0, ge=0, le=_INT64_MAX, description="only samples later than this, in ms since 1970")


class Rejected(Form):
    """The newest rejected records."""

    limit: int = Field(default=20, ge=1, le=LETTERS_MAX, description="records at most")


class OneEpochOf(OfKind):
    """An epoch."""

    epoch: int = Field(ge=0, le=_INT64_MAX, description="number of the epoch")


class Nothing(Form):
    """A request without fields."""


F = TypeVar("F", bound=Form)


def form_of_json(form: type[F], raw: bytes) -> F:
    """Return the request that a JSON object is.

    Raises: FormError naming what is wrong.
    """
    try:
        given = json.loads(raw, object_pairs_hook=_each_once, parse_constant=_no_constant)
    except FormError:
        raise
    except (ValueError, RecursionError) as error:
        msg = f"a request: expected a JSON object, got {raw[:_SHOWN].decode('latin-1')!a} ({error})"
        raise FormError(msg) from error
    return _filled(form, given)


def form_of_query(form: type[F], query: bytes, **path: str) -> F:
    """Return the request that the query of a URL is, with the fields that stand in its path.

    Raises: FormError naming what is wrong.
    """
    given: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query.decode(), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError as error:
        msg = f"the URL: expected UTF-8, got {query[:_SHOWN].decode('latin-1')!a}"
        raise FormError(msg) from error
    for name, text in [*path.items(), *pairs]:
        if name == _PLACE and name in form.model_fields:
            partition, _, offset = text.rpartition(":")
            found = given.setdefault(name, {})
            if not partition or type(_number(offset)) is not int:
                _refuse(f"{name}: expected PARTITION:OFFSET, of several sources SOURCE:PARTITION:OFFSET, got {text!r}")
            if partition in found:
                _refuse(f"{name}: expected one offset for partition {partition}, got {found[partition]} and {offset}")
            found[partition] = _number(offset)
        elif name in given:
            _refuse(f"{name}: expected it once, got {given[name]!r} and {text!r}")
        else:
            of_text = name not in form.model_fields or form.model_fields[name].annotation in (str, str | None)
            given[name] = text if of_text else _number(text)
    return _filled(form, given)


def fields_in_query(form: type[Form], path: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Describe, for OpenAPI, the fields of a form in a URL; `path`: those that stand in its path."""
    schema = form.model_json_schema()
    found = []
    for name, of_field in schema["properties"].items():
        where, required = "path" if name in path else "query", name in schema.get("required", ())
        if name == _PLACE:
            of_field = {"type": "array", "items": {"type": "string"}, "description": f"PARTITION:OFFSET; {_POSITION}"}
        about = of_field.pop("description", "")
        found.append({"name": name, "in": where, "required": required, "description": about, "schema": of_field})
    return found


def _filled(form: type[F], given: Any) -> F:
    try:
        return form.model_validate(given)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        sentences = [_sentence(form, one) for one in wrong[:_ERRORS_MAX]]
        msg = "; ".join([*sentences, *(["and more"] if len(wrong) > _ERRORS_MAX else [])])
        raise FormError(msg) from error


def _sentence(form: type[Form], wrong: Any) -> str:
    name = ".".join(str(one) or "''" for one in wrong["loc"]) or "a request"
    if wrong["type"] == "value_error":
        return f"{name}: {wrong['ctx']['error']}"
    if wrong["type"] == "missing":
        return f"{name}: expected it, got none"
    if wrong["type"] == "extra_forbidden":
        inner = form if len(wrong["loc"]) < 2 else form.part(str(wrong["loc"][0]))
        return unknown(ascii(name)[1:-1][: 2 * _SHOWN], inner.model_fields)
    return f"{name}: {wrong['msg']}, got {ascii(wrong['input'])[:_SHOWN]}"


def unknown(name: str, known: Iterable[str]) -> str:
    """Describe a field that a request does not have, with the nearest that it has."""
    names = sorted(known)
    near = difflib.get_close_matches(name.lower().rpartition(".")[2], names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{name}: no such field; {hint}expected {', '.join(names) if names else 'none here'}"


def _number(text: str) -> Any:
    """Return the number that a text of a query is, else the text, which the form refuses."""
    return json.loads(text) if _NUMBER.fullmatch(text) else text


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        _refuse(f"{ascii(twice)[1:-1][:_SHOWN]}: expected it once, got it {names.count(twice)} times")
    return found


def _no_constant(text: str) -> NoReturn:
    msg = f"{text} is no number of JSON"
    raise ValueError(msg)


def _refuse(text: str) -> NoReturn:
    raise FormError(text)
