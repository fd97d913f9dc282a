"""The rows of an epoch, as the Sink hands them to its outputs, and the files of the change log that they go into."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

ID_BYTES = 16  # counted for a row's id and what else is kept of it


def wall_ms() -> float:
    """Milliseconds since 1970."""
    return time.time() * 1e3


@dataclass(slots=True)
class EpochRows:
    """The rows of one epoch: first what changed, then what was deleted.

    Shapes:
        ids: for int64 ids [(n + d,) int64], for strings pairs of (k + 1,) int32 offsets and (bytes,) uint8
        rows: arrays of (k, width) float32, n rows in all; the d deleted ids have none
        positions: (source, partition, next_offset, events) rows, (p, 4) int64
    """

    epoch: int
    ids: list[np.ndarray] | list[tuple[np.ndarray, np.ndarray]]
    rows: list[np.ndarray]
    changed: int
    deleted: int
    positions: np.ndarray | None = None
    arrived_ms: int = 0  # when its first event came, while its latency is to be counted
    applied_ms: float = 0.0
    last_arrival_ms: int | None = None  # when its last event came
    event_ts: int | None = None  # the largest `ts` of its events
    published_ms: int | None = None  # when others could read it, in this attempt; None: not yet

    @property
    def size(self) -> int:
        """Rows in the file."""
        return self.changed + self.deleted

    @property
    def nbytes(self) -> int:
        """About what the rows hold in memory, without the text of string ids."""
        return sum(array.nbytes for array in self.rows) + ID_BYTES * self.size


@dataclass(slots=True)
class LogFile:
    """The epochs that go into file `number`; what it adds to `epochs/` goes to the file that began with file `group`.

    `partial`: a longer one may follow, in this attempt (then it is `open`: its rows stay in memory) or in a later one.
    `defers`: others follow at once, so `epochs/` may wait for them. A file without epochs ends that wait.
    """

    number: int
    epochs: list[EpochRows] = field(default_factory=list)
    partial: bool = False
    group: int = -1  # a file of its own
    open: bool = False
    defers: bool = False
    shown: int = 0  # epochs of it that a partial one has made visible
