"""Message from the Partitioner to all operators about an epoch: the places and flags of the column `ctl`."""

from __future__ import annotations

import numpy as np

# Places in the column, int64[8], of which the last is free; FLAGS holds REPLAY, LAST, FLUSH and PUBLISH.
CONTROLS = 8
MARKER, EVENTS_IN_EPOCH, ARRIVAL_MS, FLAGS, REJECTED, ACCEPTED, VERTICES = range(CONTROLS - 1)
REPLAY, LAST, FLUSH, PUBLISH = 1, 2, 4, 8


def control_values(
    marker: int = -1,
    events: int = 0,
    arrival_ms: float = 0,
    flags: int = 0,
    rejected: int = 0,
    accepted: int = 0,
    vertices: int = 0,
) -> np.ndarray:
    """The column `ctl` of an epoch's blocks.

    `marker` is its number, -1 for none; `events` and `arrival_ms` (of the first one at the Parser) are the epoch's; the
    last three count from the beginning of the job.
    """
    values = np.zeros(CONTROLS, np.int64)
    values[[MARKER, EVENTS_IN_EPOCH, ARRIVAL_MS, FLAGS]] = marker, events, int(arrival_ms), flags
    values[[REJECTED, ACCEPTED, VERTICES]] = rejected, accepted, vertices
    return values


def is_marker(control: np.ndarray) -> bool:
    """Return whether the epoch is a marker, at which every operator completes a cut of its state."""
    return int(control[MARKER]) >= 0
