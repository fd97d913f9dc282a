"""Requests that all protocols have: for each its fields, the bound of its answer, and how that is computed.

An entry of `REQUESTS` is a request by its name: over HTTP it is POST /NAME, which /openapi.json describes; in a ticket
of Flight it is a field; a client of a mapped table computes it itself. `bounds/calls.py` counts it by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from pydantic import create_model, model_validator

from freshet.job.serving.bounds.calls import COMPUTED
from freshet.job.serving.bounds.forms import Conditions, Form, Stream, WithIds
from freshet.job.serving.protocol.errors import BadRequestError
from freshet.job.serving.protocol.wanted import Wanted
from freshet.job.serving.tables.lookup import K_MAX, Lookup
from freshet.job.serving.tables.served import Answer

_REQUEST_BYTES_MAX = 16 << 20
OPTIONS_BYTES_MAX = 256 << 10  # of a request that has neither ids nor vectors
Gone = Callable[[], bool]  # whether the caller has gone
Computed = tuple[Answer, dict[str, np.ndarray]]  # rows, and columns beside them by name


class NearestRequest(Form):
    """Neighbours of a vertex, or of a vector."""

    id: Any = None
    vector: list[float] | None = None
    k: int = 10
    metric: str = "cosine"


def _nearest(lookup: Lookup, asked: Any, wanted: Wanted, gone: Gone | None = None) -> Computed:
    """Answer {"id": ID or "vector": [...], "k": K, "metric": "cosine" or "dot"}."""
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
        vector = found.rows[0]
    else:
        try:
            vector = np.array(asked["vector"], np.float32)
        except (TypeError, ValueError) as error:
            msg = "nearest: expected a vector of numbers"
            raise BadRequestError(msg) from error
    answer, scores = lookup.nearest(vector, k, metric)
    return answer, {"score": scores}


class Request(NamedTuple):
    """A request whose answer is computed.

    `form`: its fields, to which HTTP adds Conditions and `ids_as`; `most`: rows of its answer, before they are limited
    to K_MAX; `run` gets the fields that were given, waits for what is wanted, and raises BadRequestError, NotReadyError
    or NotYetError; `about`: a sentence for /docs.
    """

    form: type[Form]
    most: Callable[[Any], int]
    run: Callable[..., Computed]
    about: str

    def over_http(self, name: str) -> type[Conditions]:
        """Return the form of its body over HTTP."""
        doc = f"{(self.form.__doc__ or '').rstrip('.')}, over HTTP."
        made: Any = create_model(name.title(), __base__=(self.form, Conditions, WithIds), __doc__=doc)
        return cast("type[Conditions]", made)

    def rows(self, asked: Any) -> int:
        """Return the number of rows that its answer has at most."""
        return min(max(self.most(asked), 0), K_MAX)


REQUESTS = {
    "nearest": Request(
        NearestRequest, lambda asked: int(asked.k), _nearest, "The k vertices whose embeddings are nearest, exactly."
    ),
}
assert tuple(REQUESTS) == COMPUTED
_OWN = {"changes": {"job"}, "tails": {"job", "version"}}  # options of requests by other servers
_EXAMPLES = ['{"ids": [...]}', '{"all": true}', *(f'{{"{name}": {{...}}}}' for name in REQUESTS)]


class _Ticket(Conditions, Stream):
    """A request over Flight: ids, all rows, a computed one, or changes and tails for servers that feed from it."""

    ids: list[Any] | None = None
    all: bool | None = None
    changes: bool | None = None
    tails: list[int] | None = None
    job: str | None = None
    version: int | None = None

    @classmethod
    def part(cls, name: str) -> type[Form]:
        """Return the form of a computed request."""
        return REQUESTS[name].form if name in REQUESTS else cls

    @property
    def computed(self) -> tuple[Request, Any] | None:
        """The request whose answer is computed, and its form; None for ids, all rows, changes and tails."""
        found = ((one, getattr(self, name)) for name, one in REQUESTS.items())
        return next(((one, form) for one, form in found if form is not None), None)

    @model_validator(mode="after")
    def _asks_one_thing(self) -> _Ticket:
        given = {name for name in self.model_fields_set if getattr(self, name) not in (None, False)}
        asked = [name for name in ("ids", "all", *REQUESTS, "changes", "tails") if name in given]
        if len(asked) != 1:
            msg = f"expected one of {', '.join(_EXAMPLES[:-1])} and {_EXAMPLES[-1]}"
            raise ValueError(msg)
        own = _OWN.get(asked[0], {*Conditions.model_fields, *Stream.model_fields})
        if alien := sorted(given - own - {asked[0]}):
            msg = f"{alien[0]}: does not go with {asked[0]}; expected {', '.join(sorted(own))}"
            raise ValueError(msg)
        return self


if TYPE_CHECKING:
    Ticket = _Ticket
else:
    _COMPUTED = {name: (one.form | None, None) for name, one in REQUESTS.items()}
    Ticket = create_model("Ticket", __base__=_Ticket, **_COMPUTED)


def check_size(raw: bytes, most: int = _REQUEST_BYTES_MAX) -> None:
    """Raises: BadRequestError for a request of more bytes."""
    if len(raw) > most:
        msg = f"a request: expected at most {most:,} bytes, got {len(raw):,}"
        raise BadRequestError(msg)
