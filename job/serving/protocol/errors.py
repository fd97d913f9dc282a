"""Errors of a lookup: servers send their kind and text, clients raise them."""

from __future__ import annotations

from freshet.errors import FreshetError

EXHAUSTED = "RESOURCE_EXHAUSTED"  # the kind of the refusal, by the name that gRPC has for it


class BadRequestError(FreshetError):
    """A request that can't be answered; the message says what was expected."""


class NotReadyError(FreshetError):
    """There is no table yet, or no more: try again later."""


class NotYetError(FreshetError):
    """The requested data did not arrive in time."""


class TooSlowError(FreshetError):
    """The table no longer has the rows of an epoch that a client has not taken yet."""


class ExhaustedError(FreshetError):
    """A request or an answer that is too large for one, or beside those in flight; `again`: later it may do."""

    def __init__(self, text: str, again: bool) -> None:
        super().__init__(f"{EXHAUSTED}: {text}")
        self.again = again
