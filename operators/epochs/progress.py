"""How far a job has come, and what it has counted on the way: the entry `sealed` of the Partitioner's keyed state."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from operators.epochs.cut import refuse_foreign

SEALED_KEY = "sealed"


@dataclass(slots=True)
class Progress:
    """Counts since the job began, as of the newest epoch that any attempt has sealed and saved.

    Units: since_marker_ms milliseconds in which attempts were at work.
    """

    epoch: int = 0  # the newest one sealed; a replay ends there
    rejected: int = 0  # records that the Parser rejected
    refused: int = 0  # events that only the graph's state shows to be wrong
    told: int = 0  # so many of both as the newest epoch has told
    since_marker_ms: float = 0.0  # since the last marker

    @staticmethod
    def decode(entry: bytes | None, job: str) -> Progress:
        """The inverse of `encode`; without an entry a job that begins.

        Raises:
            ForeignStateError: the entry is another job's.
        """
        found = orjson.loads(entry) if entry is not None else {}
        refuse_foreign(found.pop("job", ""), job)
        found.pop("streamed_ms", None)  # of a former version
        return Progress(**found)

    def encode(self, job: str) -> bytes:
        """The entry, as JSON."""
        counts = {"epoch": self.epoch, "rejected": self.rejected, "refused": self.refused, "job": job}
        return orjson.dumps(counts | {"told": self.told, "since_marker_ms": round(self.since_marker_ms)})

    @property
    def rejected_in_all(self) -> int:
        """Records and events that became part of no epoch."""
        return self.rejected + self.refused
