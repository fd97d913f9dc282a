"""Table of the token that each path needs, for all of HTTP, read before the application behind the door is loaded."""

from __future__ import annotations

from enum import StrEnum

PREFIX = "/v1"  # every path is here; those of before it came are without it, too


class Access(StrEnum):
    """Rights that a request needs."""

    OPEN = "open"  # no token: health for orchestrators, and files of the page, which say nothing of the data
    READ = "read"
    ADMIN = "admin"


HEALTH = frozenset({"/healthz", "/readyz"})
_OPEN = HEALTH | {"/", "/docs"}
_OPEN_BELOW = ("/assets/", "/docs/")
_ADMIN = frozenset({"/rejected"})  # raw records


def unprefixed(path: str) -> str:
    """Return a path without /v1."""
    return path.removeprefix(PREFIX) if path.startswith(f"{PREFIX}/") else path


def access_of(path: str) -> Access:
    """Return what a request for this path needs; an unknown path needs what most do."""
    found = unprefixed(path)
    if found in _OPEN or found.startswith(_OPEN_BELOW):
        return Access.OPEN
    return Access.ADMIN if found in _ADMIN else Access.READ
