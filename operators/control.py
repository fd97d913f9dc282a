"""What the Partitioner tells every operator about an epoch: the places and flags of the column `ctl`."""

from __future__ import annotations

import numpy as np

# Places in the column, int64[8]; FLAGS holds REPLAY, LAST, FLUSH and PUBLISH.
CONTROLS = 8
MARKER, EVENTS_IN_EPOCH, ARRIVAL_MS, FLAGS, REJECTED, ACCEPTED, VERTICES, STREAMED_MS = range(CONTROLS)
REPLAY, LAST, FLUSH, PUBLISH = 1, 2, 4, 8


def control_values(
    marker: int = -1,
    events: int = 0,
    arrival_ms: float = 0,
    flags: int = 0,
    rejected: int = 0,
    accepted: int = 0,
    vertices: int = 0,
    streamed_ms: float = 0,
) -> np.ndarray:
    """The column `ctl` of an epoch's blocks.

    `marker` is its number, -1 for none; `events` and `arrival_ms` (of the first one at the Parser) are the epoch's; the
    last four count from the beginning of the job.
    """
    values = np.empty(CONTROLS, np.int64)
    values[[MARKER, EVENTS_IN_EPOCH, ARRIVAL_MS, FLAGS]] = marker, events, int(arrival_ms), flags
    values[[REJECTED, ACCEPTED, VERTICES, STREAMED_MS]] = rejected, accepted, vertices, int(streamed_ms)
    return values


def is_marker(control: np.ndarray) -> bool:
    """Whether the epoch is a marker, at which every operator completes a cut of its state."""
    return int(control[MARKER]) >= 0
