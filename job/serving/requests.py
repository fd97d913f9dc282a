"""Answers to requests that all protocols have, and their errors by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from freshet.errors import FreshetError
from freshet.job.serving.lookup import Answer, Lookup
from freshet.job.serving.protocol.errors import (
    EXHAUSTED,
    BadRequestError,
    ExhaustedError,
    NotReadyError,
    NotYetError,
    TooSlowError,
)
from freshet.job.serving.protocol.wanted import Wanted
from freshet.state.served.mapped import HistoryTooShortError, WriterGoneError

_REQUEST_BYTES_MAX = 16 << 20
OPTIONS_BYTES_MAX = 256 << 10  # of a request that has neither ids nor vectors
_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (ExhaustedError, EXHAUSTED),
    (TooSlowError, "too-slow"),
    (HistoryTooShortError, "too-slow"),
    (BadRequestError, "bad-request"),
    (NotYetError, "not-yet"),
    (NotReadyError, "not-ready"),
    (WriterGoneError, "not-ready"),
)


def check_size(raw: bytes, most: int = _REQUEST_BYTES_MAX) -> None:
    """Raises: BadRequestError for a request of more bytes."""
    if len(raw) > most:
        msg = f"a request: expected at most {most:,} bytes, got {len(raw):,}"
        raise BadRequestError(msg)


def nearest_of(
    lookup: Lookup, asked: Any, wanted: Wanted, gone: Callable[[], bool] | None = None
) -> tuple[Answer, np.ndarray]:
    """Answer {"id": ID or "vector": [...], "k": K, "metric": "cosine" or "dot"}; `gone`: whether the caller has gone.

    Raises: BadRequestError, NotReadyError, NotYetError.
    """
    if not isinstance(asked, dict) or ("id" in asked) == ("vector" in asked):
        msg = 'nearest: expected {"id": ID} or {"vector": [...]}, with k and metric'
        raise BadRequestError(msg)
    k, metric = asked.get("k", 10), asked.get("metric", "cosine")
    if type(k) is not int or not isinstance(metric, str):
        msg = "nearest: expected an integer k and the name of a metric"
        raise BadRequestError(msg)
    lookup.wait(wanted, gone)
    if "id" in asked:
        found = lookup.get(lookup.ids_of([asked["id"]]))
        if not len(found.epochs):
            msg = f"nearest: no vertex {str(asked['id'])[:50]!r}"
            raise BadRequestError(msg)
        return lookup.nearest(found.rows[0], k, metric)
    try:
        vector = np.array(asked["vector"], np.float32)
    except (TypeError, ValueError) as error:
        msg = "nearest: expected a vector of numbers"
        raise BadRequestError(msg) from error
    return lookup.nearest(vector, k, metric)


def kind_of(error: FreshetError) -> str:
    """The kind of an error, as answers name it."""
    return next((kind for type_, kind in _KINDS if isinstance(error, type_)), "failed")
