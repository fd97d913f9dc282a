"""How many records a job has read, and how many of them it rejected: one file, for the process that waits for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from operators.telemetry.status_file import StatusFile, read_statuses

_PREFIX = "read-"
_INTERVAL_MS = 100.0


class ReadCounts(NamedTuple):
    """Counts since the job began; `rejected` is part of `read`."""

    read: int = 0
    rejected: int = 0

    @property
    def share(self) -> float:
        """How much of what was read was rejected, from 0 to 1."""
        return self.rejected / self.read if self.read else 0.0


class ReadCounter:
    """Writes the counts of the Partitioner, which all records come through in their order.

    Without a folder it writes nothing, and nothing before the first record is rejected.
    """

    def __init__(self, out: Path | None = None) -> None:
        self._status = None if out is None else StatusFile(out, f"{_PREFIX}partitioner", _INTERVAL_MS)
        self._counts = self._told = ReadCounts()

    def note(self, read: int, rejected: int) -> None:
        """Take the newest counts."""
        self._counts = ReadCounts(read, rejected)
        self._tell(time.time() * 1e3)

    def close(self) -> None:
        """Write the last counts."""
        self._tell(float("inf"))

    def _tell(self, now_ms: float) -> None:
        is_new = self._counts.rejected and self._counts != self._told
        if is_new and self._status is not None and self._status.is_due(now_ms):
            self._status.write(self._counts._asdict(), now_ms)
            self._told = self._counts


def read_counts(out: Path) -> ReadCounts:
    """What a job has counted; nothing before it has rejected a record."""
    for found in read_statuses(out, _PREFIX, needs=ReadCounts._fields):
        return ReadCounts(found["read"], found["rejected"])
    return ReadCounts()
