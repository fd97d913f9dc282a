"""Errors of a lookup: servers send their kind and text, clients raise them."""

from __future__ import annotations

from freshet.errors import FreshetError

OF_SERVICE = (
    "this server is of a service folder, and the server that feeds from it asks for a job without a generation: it is "
    "of an earlier version, or has tails or the change log of one job; update it, and give it --from alone"
)
EXHAUSTED = "RESOURCE_EXHAUSTED"  # the kind of the refusal, by the name that gRPC has for it


class BadRequestError(FreshetError):
    """A request that can't be answered; the message says what was expected."""

    served_as = "bad-request"


class UnknownVertexError(BadRequestError):
    """A request for what is computed of a vertex that has no row; over Flight it is a bad request."""

    http_kind = "unknown"


class TooFarError(BadRequestError):
    """Events that a request tries, which reach more vertices than it allows; the message has both numbers."""

    served_as, http_status = "too-far", 422


class NotReadyError(FreshetError):
    """There is no table yet, or no more: try again later."""

    served_as = "not-ready"


class NotYetError(FreshetError):
    """The requested data did not arrive in time."""

    served_as = "not-yet"


class TooSlowError(FreshetError):
    """The table no longer has the rows of an epoch that a client has not taken yet."""

    served_as = "too-slow"


class OtherModelError(FreshetError):
    """A vector of another model than the one whose embeddings are served: the two can't be compared."""

    served_as = "other-model"


class GoneError(FreshetError):
    """A generation of a service whose table is not kept, or not any more."""

    served_as = "gone"


class ExhaustedError(FreshetError):
    """A request or an answer that is too large for one, or beside those in flight; `again`: later it may do."""

    served_as = EXHAUSTED

    def __init__(self, text: str, again: bool) -> None:
        super().__init__(f"{EXHAUSTED}: {text}")
        self.again = again


def kind_of(error: FreshetError) -> str:
    """Return the kind of an error, as answers name it."""
    return str(getattr(error, "served_as", "failed"))
