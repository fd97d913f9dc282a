"""Progress and counters of a job: the entry `sealed` of the Partitioner's keyed state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from freshet.operators.epochs.cut import refuse_foreign
from freshet.operators.parser.letter_box import NOTED_LATE, OTHER_REASONS, add_reasons

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
    attrs: int = 0  # edges that came with attr, which is checked and not kept
    since_marker_ms: float = 0.0  # since the last marker
    reasons: dict[str, int] = field(default_factory=dict)  # why they were rejected and refused, as many as these are
    noted: dict[str, int] = field(default_factory=dict)  # by the names of NOTED_AND_ALL, without zeros

    @staticmethod
    def decode(entry: bytes | None, job: str) -> Progress:
        """The inverse of `encode`; without an entry a job that begins.

        Raises:
            ForeignStateError: the entry is another job's.
        """
        found = orjson.loads(entry) if entry is not None else {}
        refuse_foreign(found.pop("job", ""), job)
        found.pop("streamed_ms", None)  # of a former version
        if entry is not None and "noted" not in found:  # of another one, which did not count these
            found["noted"] = {NOTED_LATE: 1}
        return Progress(**found)

    def reject(self, records: int, reasons: Iterable[tuple[str, int]]) -> None:
        """Count records that the Parser rejected."""
        self.rejected += records
        self._count(reasons, records)

    def refuse(self, reasons: Sequence[str]) -> None:
        """Count events that only the graph's state shows to be wrong."""
        self.refused += len(reasons)
        self._count(((reason, 1) for reason in reasons), len(reasons))

    def note(self, counts: Mapping[str, int]) -> bool:
        """Count what became of accepted events; returns whether there was anything."""
        found = {name: number for name, number in counts.items() if number}
        for name, number in found.items():
            self.noted[name] = self.noted.get(name, 0) + number
        return bool(found)

    def _count(self, reasons: Iterable[tuple[str, int]], records: int) -> None:
        """Count records by reason."""
        known = list(reasons)
        add_reasons(self.reasons, known)
        if without := records - sum(count for _, count in known):
            add_reasons(self.reasons, [(OTHER_REASONS, without)])

    def encode(self, job: str) -> bytes:
        """The entry, as JSON."""
        counts: dict[str, Any] = {"epoch": self.epoch, "rejected": self.rejected, "refused": self.refused, "job": job}
        counts |= {"told": self.told, "attrs": self.attrs, "reasons": self.reasons, "noted": self.noted}
        counts["since_marker_ms"] = round(self.since_marker_ms)
        return orjson.dumps(counts)

    @property
    def rejected_in_all(self) -> int:
        """Records and events that became part of no epoch."""
        return self.rejected + self.refused
