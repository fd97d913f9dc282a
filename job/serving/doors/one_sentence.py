"""Errors for clients: one sentence. Tracebacks, which name files and versions, stay in the server's log.

An error that nobody expected is logged with an id, which the sentence bears.
"""

from __future__ import annotations

import inspect
import secrets
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import pyarrow.flight as flight

from freshet.errors import FreshetError
from freshet.job.console import say
from freshet.job.serving.protocol.errors import ExhaustedError, kind_of
from freshet.log_lines import log_exception

T = TypeVar("T")
_ID = "_freshet_id"
_PLACES_MAX = 100
_seen: set[tuple[Any, ...]] = set()
_lock = threading.Lock()


def logged(error: BaseException) -> str:
    """Log an error that nobody expected, once, and return the sentence for the client.

    The traceback is logged once for each place that raises: whoever can cause an error could fill the disk else.
    """
    found = getattr(error, _ID, None)
    if found is None:
        found = secrets.token_hex(4)
        setattr(error, _ID, found)
        say(f"internal error {found}: {type(error).__name__}: {' '.join(str(error).split())[:500]}", "error", id=found)
        if _is_new(error):
            log_exception(error)
    return f"internal error {found}: the server's log has it by that id"


def _is_new(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    place = type(error), *((frame.filename, frame.lineno) for frame in frames[-1:])
    with _lock:
        if place in _seen or len(_seen) >= _PLACES_MAX:
            return False
        _seen.add(place)
    return True


def as_flight(error: FreshetError) -> Exception:
    """The error of Flight by which a client hears of one of ours."""
    if isinstance(error, ExhaustedError):  # pyarrow can't send the status itself; of UNAVAILABLE clients know to retry
        return (flight.FlightUnavailableError if error.again else flight.FlightServerError)(str(error))
    kind = kind_of(error)
    text = f"{kind}: {error}"
    if kind == "not-ready":
        return flight.FlightUnavailableError(text)
    if kind == "not-yet":
        return flight.FlightTimedOutError(text)
    return flight.FlightServerError(text)


@contextmanager
def _in_one_sentence(context: Any) -> Iterator[None]:
    """Have nothing but Flight's own errors leave: pyarrow sends the traceback of any other to the client."""
    try:
        yield
    except flight.FlightError:
        raise
    except FreshetError as error:
        raise as_flight(error) from None
    except Exception as error:
        if context is not None and context.is_cancelled():  # nobody is there to hear it
            msg = "the call was cancelled"
            raise flight.FlightCancelledError(msg) from None
        msg = f"failed: {logged(error)}"
        raise flight.FlightServerError(msg) from None


def in_a_sentence(method: Callable[..., T]) -> Callable[..., T]:
    """Wrap a call of a Flight server, `method(self, context, ...)`, a generator or not."""
    if inspect.isgeneratorfunction(method):

        @wraps(method)
        def streamed(self: Any, context: Any, *given: Any) -> Any:
            return pieces_in_a_sentence(context, method(self, context, *given))

        return streamed

    @wraps(method)
    def called(self: Any, context: Any, *given: Any) -> T:
        with _in_one_sentence(context):
            return method(self, context, *given)

    return called


def pieces_in_a_sentence(context: Any, pieces: Iterable[T]) -> Iterator[T]:
    """Go on with what a call sends later, piece by piece."""
    with _in_one_sentence(context):
        yield from pieces
