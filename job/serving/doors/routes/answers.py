"""Answers as /openapi.json describes them; the answers themselves are made of parts, without these classes."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, create_model

from freshet.job.serving.doors.refusals import STATUS
from freshet.job.serving.protocol.wanted import TIMES

Id: TypeAlias = int | str
Numbers: TypeAlias = list[float | None]  # null stands for what is not finite
_KINDS = tuple(sorted(STATUS))
_ROW = {"id": 7, "epoch": 117, "embedding": [0.25, -1.5]}
_EPOCH = {"as_of": 120, "as_of_ms": 1764288000123, "event_ts": None}


def _absent(about: str) -> Any:
    """Describe a member that is left out where there is none."""
    return Field(default_factory=lambda: None, description=about)


def _example(*shown: dict[str, Any]) -> ConfigDict:
    return ConfigDict(extra="allow", json_schema_extra={"examples": [*shown]})


_TIMES: dict[str, Any] = {name: (int | None, Field(description=about)) for name, about in TIMES.items()}
_MORE: dict[str, Any] = {
    "consistency": (Literal["row"], _absent("`row`: of a server that feeds from a topic, whose rows are of no epoch")),
    "generation": (int, _absent("of a service: the generation of the rows")),
    "model": (str, _absent("of a service: SHA-256 of the model")),
}
AsOf: Any = create_model(
    "AsOf",
    __config__=_example(_EPOCH),
    __doc__="The epoch that all rows of an answer are of, and its times, in ms since 1970.",
    as_of=(int, Field(description="epoch of the answer")),
    **_TIMES,
    **_MORE,
)


class Error(BaseModel):
    """A refusal: a sentence for people, and the kind, by which programs choose."""

    model_config = _example({"error": "ids: expected it, got none", "kind": "bad-request"})

    error: str
    kind: Literal[_KINDS]  # type: ignore[valid-type]


class EmbeddingRow(BaseModel):
    """The row of a vertex."""

    model_config = _example(_ROW)

    id: Id = Field(description="a string with `ids_as=string`, and where ids are strings")
    epoch: int = Field(description="in which the row changed last")
    embedding: Numbers
    logits: Numbers = _absent("where the model has a head")
    class_: int = Field(default_factory=int, alias="class", description="where the model has a head: the largest logit")


class OneEmbedding(EmbeddingRow, AsOf):
    """The row of a vertex, and the epoch of the answer."""

    model_config = _example(_ROW | _EPOCH)


class UnknownVertex(Error):
    """There is no row of the vertex; where the epoch is known, as of which epoch."""

    model_config = _example({"error": "no vertex '8'", "kind": "unknown"} | _EPOCH)


class Embeddings(AsOf):
    """Rows of several vertices, at one epoch."""

    model_config = _example({"found": [_ROW], "unknown": [8]} | _EPOCH)

    found: list[EmbeddingRow]
    unknown: list[Any] = Field(description="ids that have no row, as they were asked for")


class RowsPage(AsOf):
    """A page of all rows."""

    model_config = _example({"rows": [_ROW], "next": None} | _EPOCH)

    rows: list[EmbeddingRow]
    next: str | None = Field(description="to be given as `after`; null at the end")


class ScoredRow(EmbeddingRow):
    """A row, and its score."""

    model_config = _example(_ROW | {"score": 0.875})

    score: float | None


class NearestVertices(AsOf):
    """Rows that are nearest, the best first."""

    model_config = _example({"found": [_ROW | {"score": 0.875}]} | _EPOCH)

    found: list[ScoredRow]


class Scores(AsOf):
    """Scores of pairs, in their order."""

    model_config = _example({"scores": [0.5, None], "unknown": [11]} | _EPOCH)

    scores: Numbers = Field(description="null where one of both ids is unknown")
    unknown: list[Id] | dict[str, list[Id]] = Field(description="ids without a row; of pairs of two kinds, by kind")


class TriedRow(EmbeddingRow):
    """A row as it would be."""

    model_config = _example(_ROW | {"id": None})

    id: Any = Field(description="null of a new vertex without one")
    vertex: int = _absent("of a request with `vertices`: which of them it is of")


class TriedRows(AsOf):
    """Rows as they would be."""

    model_config = _example({"found": [_ROW | {"id": None}], "unknown": []} | _EPOCH)

    found: list[TriedRow]
    unknown: list[Any] = Field(description="ids of `also` that have no row")


class FeatureNames(AsOf):
    """Names of the columns."""

    model_config = _example({"feature_names": ["id", "embedding"]} | _EPOCH)

    feature_names: list[str]


class FeatureColumn(BaseModel):
    """Values of a column, with their statuses."""

    values: list[Any]
    statuses: list[Literal["PRESENT", "NOT_FOUND"]]
    event_timestamps: list[str]


class FeatureColumns(BaseModel):
    """An answer of Feast's; event_timestamps are those of the epochs in which rows changed last."""

    metadata: FeatureNames
    results: list[FeatureColumn]


class SourcePosition(BaseModel):
    """Position up to which a partition of a source has been read."""

    source: str
    partition: int
    next_offset: int
    epoch: int


class KindFigures(BaseModel):
    """Figures of a kind of vertices."""

    tables: str | None
    epoch: int | None
    vertices: int | None


class HealthFigures(BaseModel):
    """Freshness of the table; without a token `ready` alone."""

    model_config = _example({"ready": True, "epoch": 120, "vertices": 2708, "job": "running", "behind_s": 0.1})

    ready: bool
    reason: str | None = _absent("why it is not ready")
    tables: str = _absent("folder of the table")
    kind: str = _absent("of the vertices, where the model has kinds")
    lacks: str = _absent("rows that a topic can't have")
    generation: int = _absent("of a service")
    next: Any = _absent("of a service: the generation that is being prepared")
    kept: list[int] = _absent("of a service: earlier generations that can be read")
    epoch: int = _absent("the newest complete one")
    vertices: int = _absent("vertices with a row")
    consistency: Literal["epoch", "row"] = _absent("of answers")
    job: Literal["running", "ended", "stopped", "failed", "lost", "silent", "unknown"] = _absent("state of the job")
    behind_s: float | None = _absent("for how long nothing was heard")
    age_of_last_event_s: float | None = _absent("since the last event came")
    publish_to_readable_ms: float | None = _absent("of the newest epoch")
    positions: list[SourcePosition] = _absent("of the input")
    tail_failures: int = _absent("tail files that could not be written")
    records_refused: int = _absent("of a topic: records that no job has written")
    history_misses: int = _absent("reads that the ring was too short for")
    ids_found: int = _absent("by this process")
    ids_missing: int = _absent("by this process")
    bytes_in_flight: int = _absent("of requests and answers")
    bytes_in_flight_limit: int = _absent("above it requests are refused")
    refused: int = _absent("requests above the limit")
    waiting: int = _absent("calls that wait for an epoch or a position")
    kinds: dict[str, KindFigures] = _absent("of a server of several kinds")
