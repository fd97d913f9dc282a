"""Moment of an answer's epoch, as answers have them: `as_of_ms` and `event_ts`, both in ms since 1970."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # which clients do not have
    from freshet.state.served.times import Moment

AS_OF_MS, EVENT_TS = "as_of_ms", "event_ts"
ANSWERED = ("epoch", AS_OF_MS, EVENT_TS, "consistency")  # what stands in the metadata of an answer, where it is known


def as_json_fields(times: Moment) -> dict[str, int | None]:
    """Return both times, null where nothing is known."""
    return {AS_OF_MS: times.arrived_ms, EVENT_TS: times.event_ts}


def as_metadata(times: Moment) -> dict[str, str]:
    """Return the times that are known, as text."""
    return {name: str(value) for name, value in as_json_fields(times).items() if value is not None}
