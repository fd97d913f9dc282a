"""Errors over HTTP: JSON with `error`, a sentence, and `kind`, by which programs choose; the kind has a status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freshet.errors import FreshetError
from freshet.job.serving.bounds.budget import RETRY_S
from freshet.job.serving.protocol.errors import EXHAUSTED, ExhaustedError, kind_of

UNAUTHORIZED, FORBIDDEN, UNKNOWN, UNKNOWN_PATH = "unauthorized", "forbidden", "unknown", "unknown-path"
METHOD, LATE, LENGTH, LARGE, MEDIA = (
    "method-not-allowed",
    "request-timeout",
    "length-required",
    "too-large",
    "unsupported-media-type",
)
BAD_REQUEST, FAILED, HEADERS_LARGE = "bad-request", "failed", "headers-too-large"
FORM_STATUS, EXHAUSTED_STATUS = 422, 429
RETRY = {"Retry-After": str(RETRY_S)}
# A request with a field that is unknown, missing, or of another type is a bad-request with FORM_STATUS.
STATUS: dict[str, int] = {
    BAD_REQUEST: 400,
    UNAUTHORIZED: 401,
    FORBIDDEN: 403,
    UNKNOWN: 404,
    UNKNOWN_PATH: 404,
    "no-job": 404,
    METHOD: 405,
    LATE: 408,
    "other-model": 409,
    "gone": 410,
    LENGTH: 411,
    LARGE: 413,
    MEDIA: 415,
    "too-far": FORM_STATUS,
    EXHAUSTED: EXHAUSTED_STATUS,
    HEADERS_LARGE: 431,
    FAILED: 500,
    "not-ready": 503,
    "too-slow": 503,
    "not-yet": 504,
}


class HttpError(FreshetError):
    """A refusal of a request over HTTP, of a kind of `STATUS`."""

    def __init__(self, kind: str, text: str, headers: Mapping[str, str] | None = None, status: int = 0) -> None:
        """`status`: another one than that of the kind."""
        super().__init__(text)
        self.served_as, self.headers, self.status = kind, dict(headers or {}), status or STATUS[kind]


def body_of(kind: str, text: str) -> dict[str, Any]:
    """Return the body of an error."""
    return {"error": text, "kind": kind}


def refusal_of(error: FreshetError) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Return status, body and headers of an answer that says an error."""
    if isinstance(error, HttpError):
        return error.status, body_of(error.served_as, str(error)), error.headers
    kind = getattr(error, "http_kind", kind_of(error))
    headers = RETRY if isinstance(error, ExhaustedError) and error.again else {}
    return getattr(error, "http_status", STATUS.get(kind, 500)), body_of(kind, str(error)), headers
