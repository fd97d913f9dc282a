"""Conditions of a request, and what all answers have: their consistency and the times of their epoch.

Times are in ms since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # which clients do not have
    from freshet.state.served.times import Moment

IDS_MAX = PAIRS_MAX = 100_000  # of a request
TIMEOUT_S = 5.0
# What the rows of an answer have in common: an epoch, or nothing: each is the newest of its own that is known.
EPOCH, ROW = "epoch", "row"
# Times in every answer, in the order of a Moment; HTTP, its description, Flight and clients have them from here.
TIMES = {
    "as_of_ms": "when the last event up to that epoch came; null where it is not known",
    "event_ts": "the largest ts of the events up to it; null where none has any",
}
ANSWERED = (
    "epoch",
    *TIMES,
    "consistency",
    "generation",
    "model",
)  # what stands in the metadata of an answer, where it is known


class Wanted(NamedTuple):
    """Condition on the table for an answer, and how long to wait for it.

    `min_position`: partition (or SOURCE:PARTITION) -> the offset of a record that must be covered. `generation`: of a
    service, None for the current one.
    """

    min_epoch: int = 0
    min_position: Mapping[str, int] | None = None
    timeout_s: float = TIMEOUT_S
    generation: int | None = None


NOTHING_SPECIAL = Wanted()


def as_text(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return fields of an answer as metadata of a table has them: in JSON, without those that are null."""
    return {name: json.dumps(value) for name, value in fields.items() if value is not None}


def as_json_fields(times: Moment) -> dict[str, int | None]:
    """Return all times, null where nothing is known."""
    return dict(zip(TIMES, times, strict=True))


def as_metadata(times: Moment) -> dict[str, str]:
    """Return the times that are known, as text."""
    return {name: str(value) for name, value in as_json_fields(times).items() if value is not None}
