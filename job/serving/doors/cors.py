"""Pages of other origins: which may read answers (`--cors`), by the headers that browsers ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from freshet.job.errors import UsageError

ANY = "*"
_ORIGIN = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9._~-]+)(?::([0-9]{1,5}))?", re.ASCII)
_DEFAULT_PORT = {"http": "80", "https": "443"}
_KEPT_S = 600  # for which a browser need not ask again
# Those that pages may read of an answer, and may send.
_EXPOSED = b"allow, content-encoding, retry-after, www-authenticate"
_SENT = b"authorization, content-type, last-event-id"
Headers = list[tuple[bytes, bytes]]


def origins_of(given: Sequence[str]) -> tuple[str, ...]:
    """Return the origins of `--cors` as browsers send them.

    Raises: UsageError
    """
    return tuple(dict.fromkeys(map(_origin, given)))


def _origin(given: str) -> str:
    found = _ORIGIN.fullmatch(given.lower())
    if given == ANY:
        return ANY
    if found is None:
        msg = f"--cors {given}: expected an origin, https://HOST or https://HOST:PORT without a path, or * for any"
        raise UsageError(msg)
    scheme, host, port = found.groups()
    return f"{scheme}://{host}" + (f":{port}" if port and port != _DEFAULT_PORT[scheme] else "")


class Cors:
    """Origins whose pages may read answers; none by default."""

    def __init__(self, origins: Sequence[str] = ()) -> None:
        self._any, self._origins = ANY in origins, {one.encode() for one in origins}

    def headers(self, asked: Mapping[bytes, bytes]) -> Headers:
        """Return what an answer to a request with these headers has beside its own."""
        if self._any:
            return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", _EXPOSED)]
        if not self._origins:
            return []
        origin = asked.get(b"origin")
        allowed = [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", _EXPOSED)]
        return [(b"vary", b"Origin"), *((name, value) for name, value in allowed if value and origin in self._origins)]

    def preflight(self, method: str, asked: Mapping[bytes, bytes]) -> Headers | None:
        """Return the headers for a browser that asks whether it may ask, which bears no token; None: it is not one."""
        origin = asked.get(b"origin")
        if method != "OPTIONS" or origin is None or b"access-control-request-method" not in asked:
            return None
        if not self._any and origin not in self._origins:
            return None
        return [
            (b"access-control-allow-methods", b"GET, HEAD, POST, OPTIONS"),
            (b"access-control-allow-headers", _SENT),
            (b"access-control-max-age", b"%d" % _KEPT_S),
        ]
