"""A schema registry, asked over HTTP once for each schema."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from freshet.errors import FreshetError, InputError

USER_INFO, BEARER = "basic.auth.user.info", "bearer.auth.token"

_TIMEOUT_S = 10.0
_PATIENCE_S = 120.0  # while a registry is away; then the job fails, and begins again where it was
_PAUSE_S = 2.0
_ANSWER_BYTES_MAX = 16 << 20
_REFERENCES_MAX = 100
_PASSING = {429, 500, 502, 503, 504}


class RegistryError(FreshetError):
    """A registry that does not answer, or not as one: no record is to blame."""


class RegistryRefusalError(RegistryError, InputError):
    """A registry that can't be used as it is configured."""


class RegisteredSchema(NamedTuple):
    """A schema, or one that it refers to: the name by which others refer to it, and its text."""

    name: str
    text: str


class SchemaRegistry:
    """The registry at a URL; `login` has its user and password (`basic.auth.user.info`) or its token.

    Raises: RegistryError when it gives no answer for two minutes; RegistryRefusalError when it refuses the login.
    """

    def __init__(self, url: str, login: Mapping[str, str], pause: Callable[[float], None] = time.sleep) -> None:
        self.url = url.rstrip("/")
        self._pause, self.patience_s = pause, _PATIENCE_S
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if BEARER in login:
            self._headers["Authorization"] = f"Bearer {login[BEARER]}"
        elif USER_INFO in login:
            self._headers["Authorization"] = f"Basic {base64.b64encode(login[USER_INFO].encode()).decode()}"

    def check(self) -> None:
        """Look whether it answers, without waiting.

        Raises: RegistryRefusalError.
        """
        self.patience_s = 0.0
        try:
            found = self._get("/subjects?limit=1")
        except RegistryError as error:
            raise RegistryRefusalError(str(error)) from None
        if not isinstance(found, list):
            raise RegistryRefusalError(self._no_registry("/subjects"))
        self.patience_s = _PATIENCE_S

    def schemas(self, number: int, form: str = "") -> list[RegisteredSchema] | None:
        """Return a schema behind those that it refers to; None where there is none of that id.

        `form`: "serialized" for the descriptor of a Protobuf schema in base64, in place of its text.
        """
        found = self._get(f"/schemas/ids/{number}{_form(form)}")
        return None if found is None else self._with_references("", found, form)

    def _with_references(self, name: str, found: dict[str, Any], form: str) -> list[RegisteredSchema]:
        """The schemas, depth first, each once."""
        schemas, seen = list[RegisteredSchema](), set[str]()

        def add(name: str, found: dict[str, Any]) -> None:
            for one in found.get("references") or []:
                if one["name"] in seen:
                    continue
                seen.add(one["name"])
                if len(seen) > _REFERENCES_MAX:
                    msg = f"--registry {self.url}: a schema with more than {_REFERENCES_MAX} references"
                    raise RegistryError(msg)
                path = f"/subjects/{quote(one['subject'], safe='')}/versions/{int(one['version'])}{_form(form)}"
                other = self._get(path)
                if other is None:
                    msg = f"--registry {self.url}: has no {path}, which another schema refers to"
                    raise RegistryError(msg)
                add(one["name"], other)
            schemas.append(RegisteredSchema(name, str(found["schema"])))

        try:
            add(name, found)
        except (KeyError, TypeError, ValueError, AttributeError):
            msg = f"--registry {self.url}: answers without a schema; is it a registry?"
            raise RegistryError(msg) from None
        return schemas

    def _get(self, path: str) -> Any:
        """The answer as JSON; None where there is no such thing. Waits while the registry is away."""
        began = time.monotonic()
        while True:
            status, found = self._ask(path)
            if status == 200:
                return found
            if status == 404 and isinstance(found, dict) and "error_code" in found:
                return None
            if status == 404:  # of some other server, which knows nothing of schemas
                raise RegistryRefusalError(self._no_registry(path))
            if status is not None and status not in _PASSING:
                msg = f"--registry {self.url}: refuses {path} (HTTP status {status}); check address and login"
                raise RegistryRefusalError(msg)
            if time.monotonic() - began >= self.patience_s:
                why = f"HTTP status {status}" if status else found
                msg = f"--registry {self.url}: does not answer ({why}); check that it runs, and the address"
                raise RegistryError(msg)
            self._pause(_PAUSE_S)

    def _no_registry(self, path: str) -> str:
        return f"--registry {self.url}: answers {path} not as a registry does; check the address"

    def _ask(self, path: str) -> tuple[int | None, Any]:
        import httpx

        status: int | None = None
        try:
            with (
                httpx.Client(verify=_trusted(), timeout=_TIMEOUT_S) as client,
                client.stream("GET", f"{self.url}{path}", headers=self._headers) as answer,
            ):
                body, status = b"", answer.status_code
                for piece in answer.iter_bytes():
                    body += piece
                    if len(body) > _ANSWER_BYTES_MAX:
                        return None, "an answer of more than 16 MiB"
                return status, orjson.loads(body) if status in (200, 404) else None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return None, f"{type(error).__name__}: {' '.join(str(error).split())}"
        except orjson.JSONDecodeError:
            return (404, None) if status == 404 else (None, "an answer that is not JSON")


@cache
def _trusted() -> Any:
    """The certificates of the system, or of the file that SSL_CERT_FILE names; to read them takes a while."""
    import ssl

    return ssl.create_default_context()


def _form(form: str) -> str:
    return f"?format={form}" if form else ""
