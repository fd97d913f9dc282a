"""Message from the Partitioner to all operators about an epoch: the places and flags of the column `ctl`."""

from __future__ import annotations

import numpy as np

# Places in the column, int64[9]. FLAGS holds REPLAY, LAST, FLUSH, PUBLISH and HAS_TS: EVENT_TS is one.
CONTROLS = 9
MARKER, EVENTS_IN_EPOCH, ARRIVAL_MS, FLAGS, REJECTED, ACCEPTED, VERTICES, EVENT_TS, LAST_ARRIVAL_MS = range(CONTROLS)
REPLAY, LAST, FLUSH, PUBLISH, HAS_TS = 1, 2, 4, 8, 16


def control_values(
    marker: int = -1,
    events: int = 0,
    arrival_ms: float = 0,
    flags: int = 0,
    rejected: int = 0,
    accepted: int = 0,
    vertices: int = 0,
    event_ts: int | None = None,
    last_arrival_ms: int = 0,
) -> np.ndarray:
    """The column `ctl` of an epoch's blocks.

    `marker` is its number, -1 for none; `events`, `arrival_ms` and `last_arrival_ms` (of the first one at the Parser,
    and the last) and `event_ts` (the largest `ts` of its accepted events) are the epoch's; the others count from the
    beginning of the job.
    """
    if event_ts is not None:
        flags |= HAS_TS
    epoch, job = (marker, events, int(arrival_ms), flags), (rejected, accepted, vertices)
    return np.array([*epoch, *job, event_ts or 0, last_arrival_ms], np.int64)  # in the order of the places


def event_ts_of(control: np.ndarray) -> int | None:
    """Return the largest `ts` of the epoch's accepted events, None where none has any."""
    return int(control[EVENT_TS]) if int(control[FLAGS]) & HAS_TS else None


def is_marker(control: np.ndarray) -> bool:
    """Return whether the epoch is a marker, at which every operator completes a cut of its state."""
    return bool(control.item(MARKER) >= 0)
