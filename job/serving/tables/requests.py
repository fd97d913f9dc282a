"""Requests that all protocols have: for each its fields, the bound of its answer, and how that is computed.

An entry of `REQUESTS` is a request by its name: over HTTP it is POST /NAME, which /openapi.json describes; in a ticket
of Flight it is a field; a client of a mapped table computes it itself. `bounds/calls.py` counts it by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic import Field, create_model, model_validator

from freshet.job.serving.bounds.asked_edges import AS_LIST
from freshet.job.serving.bounds.budget import NUMBER, OBJECT_BYTES, RowShape
from freshet.job.serving.bounds.calls import COMPUTED
from freshet.job.serving.bounds.forms import Conditions, Form, OfKind, OfKinds, Stream, WithIds
from freshet.job.serving.bounds.neighbours import METRICS
from freshet.job.serving.protocol.errors import BadRequestError
from freshet.job.serving.protocol.wanted import IDS_MAX, PAIRS_MAX
from freshet.job.serving.tables.computed import Computed, ends_of_nearest, ends_of_pairs, nearest, score
from freshet.job.serving.tables.lookup import K_MAX, Lookup
from freshet.job.serving.tables.what_if import what_if

_REQUEST_BYTES_MAX = 16 << 20
TRIED_MAX, EDGES_MAX = 1_000, 10_000
_EDGES = f"edges to it: {AS_LIST}, or objects with these, kind and key"
OPTIONS_BYTES_MAX = 256 << 10  # of a request that has neither ids nor vectors


class NearestRequest(OfKind, OfKinds):
    """Neighbours of a vertex, or of a vector; with `kinds` they may be of another kind."""

    id: Any = None
    vector: list[float] | None = None
    k: int = 10
    metric: str = Field(default=METRICS[0], description=f"{', '.join(METRICS[:-1])} or {METRICS[-1]}")
    model: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{64}$",
        description="SHA-256 of the model that the vector is of; refused where the embeddings are of another one",
    )
    among: list[Any] | None = Field(
        default=None, description=f"none but these ids, at most {IDS_MAX:,}; those without a row are listed as unknown"
    )
    exclude_self: bool = Field(default=False, description="without the vertex itself")
    approximate: bool = Field(
        default=False,
        description="by an index that is made at the first such request; until then answers are exact. The answer says "
        "whether it is approximate, and the measured recall",
    )


class ScoreRequest(OfKinds):
    """Scores of pairs of vertices, by the model's link head, or by the dot product of a model without one."""

    pairs: list[Any] = Field(description=f"pairs [LEFT, RIGHT] of ids, at most {PAIRS_MAX:,}")

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        """Take a list for the pairs, as a ticket has them."""
        return {"pairs": given} if isinstance(given, list) else given


class TriedVertex(Form):
    """A vertex as it is tried: one that there is, with other features and edges, or a new one."""

    id: Any = Field(default=None, description="null, or an id that is not there: a new vertex")
    x: list[float] | None = Field(default=None, description="features; without them those that it has, or zeros")
    in_edges: list[Any] | None = Field(default=None, max_length=EDGES_MAX, description=_EDGES)
    out_edges: list[Any] | None = Field(default=None, max_length=EDGES_MAX, description="edges from it, likewise")
    del_in_edges: list[Any] | None = Field(default=None, max_length=EDGES_MAX, description="edges to it that go")
    del_out_edges: list[Any] | None = Field(default=None, max_length=EDGES_MAX, description="edges from it that go")
    also: list[Any] | None = Field(
        default=None, max_length=IDS_MAX, description="other vertices whose rows are asked for, as they would be then"
    )


class WhatIfRequest(OfKind, TriedVertex):
    """The row of a vertex as it would be with other features or edges, or of a new one."""

    vertices: list[TriedVertex] | None = Field(
        default=None, min_length=1, max_length=TRIED_MAX, description="several such vertices, each tried by itself"
    )
    max_touched: int = Field(
        default=10_000, ge=0, le=1_000_000, description="rows of inner layers that may change; more are refused"
    )

    @model_validator(mode="after")
    def _one_or_several(self) -> WhatIfRequest:
        given = self.model_fields_set & TriedVertex.model_fields.keys()
        if self.vertices is not None and given:
            msg = f"{min(given)}: does not go with vertices, each of which has its own"
            raise ValueError(msg)
        if self.rows > IDS_MAX:
            msg = f"also: expected at most {IDS_MAX:,} rows of a request, the vertices among them, got {self.rows:,}"
            raise ValueError(msg)
        return self

    @property
    def rows(self) -> int:
        """Number of rows that are asked for."""
        return sum(1 + len(one.also or ()) for one in self.vertices or [self])


class Request(NamedTuple):
    """A request whose answer is computed.

    `form`: its fields, to which HTTP adds Conditions and `ids_as`; `asked`: items of its answer that are asked for, of
    which it has `most`; `bytes_of`: of an item, while it is computed, and in JSON; `ends`: the lookups of both ends of
    pairs, or of the vertex and of those to find; `run` gets the fields that were
    given, waits for what is wanted, and raises BadRequestError, NotReadyError or NotYetError; `about`: a sentence for
    /docs; `in_turn`: who asks may have to wait until others have their answers.
    """

    form: type[Form]
    asked: Callable[[Any], int]
    most: int
    bytes_of: Callable[[RowShape], tuple[int, int]]
    ends: Callable[[Lookup, Any], tuple[Lookup, Lookup]]
    run: Callable[..., Computed]
    about: str
    in_turn: bool = False

    def over_http(self, name: str) -> type[Conditions]:
        """Return the form of its body over HTTP."""
        doc = f"{(self.form.__doc__ or '').rstrip('.')}, over HTTP."
        made: Any = create_model(name.title().replace("_", ""), __base__=(self.form, Conditions, WithIds), __doc__=doc)
        return cast("type[Conditions]", made)

    def items(self, asked: Any) -> int:
        """Return the number of items that its answer has at most."""
        return min(max(self.asked(asked), 0), self.most)

    def room(self, lookup: Lookup, asked: Any, *, readout: bool) -> tuple[int, int]:
        """Return the bytes of its answer, while it is computed, and in JSON.

        Raises: BadRequestError, NotReadyError
        """
        rows = [one.served.row_shape(readout=readout) for one in self.ends(lookup, asked)]
        widest = RowShape(*map(max, zip(*rows, strict=True)))
        in_memory, in_json = self.bytes_of(widest)
        beside = OBJECT_BYTES * len(getattr(asked, "among", None) or ())  # of which all may be unknown
        return self.items(asked) * in_memory + beside, self.items(asked) * in_json + beside


REQUESTS = {
    "nearest": Request(
        NearestRequest,
        lambda asked: int(asked.k),
        K_MAX,
        lambda row: (row.in_arrow + OBJECT_BYTES, row.in_json),
        lambda lookup, asked: ends_of_nearest(lookup, asked.kind, asked.kinds, asked.metric),
        nearest,
        "The k vertices whose embeddings are nearest: exactly, or with `approximate` by an index.",
    ),
    "score": Request(
        ScoreRequest,
        lambda asked: len(asked.pairs),
        PAIRS_MAX,
        lambda row: (2 * (row.in_arrow + OBJECT_BYTES), 2 * NUMBER),
        lambda lookup, asked: ends_of_pairs(lookup, asked.kinds),
        score,
        "Scores of pairs, null where one of both is unknown.",
    ),
    "what_if": Request(
        WhatIfRequest,
        lambda asked: int(asked.rows),
        IDS_MAX,
        lambda row: (row.in_arrow + OBJECT_BYTES, row.in_json),
        lambda lookup, asked: (found := lookup.of(asked.kind), found),
        what_if,
        "Rows of vertices as they would be with other features or edges; of a server with `--what-if`.",
        in_turn=True,
    ),
}
assert tuple(REQUESTS) == COMPUTED
_OWN = {
    "changes": {"job", "generation", "kind", "since_epoch"},
    "tails": {"job", "generation", "version"},
}  # options of requests by other servers
_EXAMPLES = ['{"ids": [...]}', '{"all": true}', *(f'{{"{name}": {{...}}}}' for name in REQUESTS)]


class _Ticket(Conditions, Stream):
    """A request over Flight: ids, all rows, a computed one, or changes and tails for servers that feed from it."""

    ids: list[Any] | None = None
    all: bool | None = None
    changes: bool | None = None
    since_epoch: int | None = Field(default=None, ge=0, le=2**63 - 1)
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
        of_rows = {*Conditions.model_fields, *Stream.model_fields}
        own = _OWN.get(asked[0], of_rows - {*OfKind.model_fields} if asked[0] in REQUESTS else of_rows)
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
