"""How far a job has come, and what it has counted on the way: the entry `sealed` of the Partitioner's keyed state."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from operators.epochs.cut import refuse_foreign

SEALED_KEY = "sealed"


@dataclass(slots=True)
class Progress:
    """Counts since the job began, as of the newest epoch that any attempt has sealed and saved.

    Units: streamed_ms, since_marker_ms milliseconds in which attempts were at work.
    """

    epoch: int = 0  # the newest one sealed; a replay ends there
    rejected: int = 0  # records that the Parser rejected
    refused: int = 0  # events that only the graph's state shows to be wrong
    told: int = 0  # so many of both as the newest epoch has told
    streamed_ms: float = 0.0  # in which events arrived
    since_marker_ms: float = 0.0  # since the last marker
    _arrival_ms: float = field(default=0.0, compare=False)  # of the last epoch whose events came in this attempt

    @staticmethod
    def decode(entry: bytes | None, job: str) -> Progress:
        """The inverse of `encode`; without an entry a job that begins.

        Raises:
            ForeignStateError: the entry is another job's.
        """
        found = orjson.loads(entry) if entry is not None else {}
        refuse_foreign(found.pop("job", ""), job)
        return Progress(**found)

    def encode(self, job: str) -> bytes:
        """The entry, as JSON."""
        counts = {"epoch": self.epoch, "rejected": self.rejected, "refused": self.refused, "job": job}
        times = {"streamed_ms": round(self.streamed_ms), "since_marker_ms": round(self.since_marker_ms)}
        return orjson.dumps(counts | {"told": self.told} | times)

    @property
    def rejected_in_all(self) -> int:
        """Records and events that became part of no epoch."""
        return self.rejected + self.refused

    def count_streamed(self, arrival_ms: float) -> None:
        """Count the time from the first event of the epoch before to the first one of this epoch, at `arrival_ms`."""
        if arrival_ms > 0:
            if self._arrival_ms:
                self.streamed_ms += max(0.0, arrival_ms - self._arrival_ms)
            self._arrival_ms = arrival_ms
