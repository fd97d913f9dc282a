"""Findings of a check of a run: the difference of its embeddings, and other faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from freshet.job.results.compare import Difference


@dataclass
class Findings:
    """The differences of the epochs that were looked at, up to `epoch`, the last; and faults in words."""

    epoch: int
    oracle: str
    differences: list[tuple[int, Difference]] = field(default_factory=list)
    duplicates: int = 0
    nonfinite: int = 0
    events: int = 0
    rejected: int = 0
    approximate: bool = False
    faults: list[str] = field(default_factory=list)

    def is_good(self, tolerance: float) -> bool:
        """True if there is no fault."""
        within = all(difference.is_within(tolerance) for _, difference in self.differences)
        return within and not self.duplicates and not self.faults

    def line(self) -> dict[str, Any]:
        """The JSON line: errors and counts over all epochs that were looked at, vertices of the last."""
        every = [difference for _, difference in self.differences]
        named = [(epoch, one) for epoch, one in self.differences if one.worst is not None]
        epoch, off = max(named, key=lambda found: (found[1].mismatched > 0, found[1].max_rel_error), default=(0, None))
        return {
            "vertices": every[-1].vertices,
            "max_abs_error": max(one.max_abs_error for one in every),
            "max_rel_error": max(one.max_rel_error for one in every),
            "missing": sum(one.missing for one in every),
            "extra": sum(one.extra for one in every),
            "nan": sum(one.nan for one in every),
            "mismatched": sum(one.mismatched for one in every),
            "duplicates": self.duplicates,
            "epoch": self.epoch,
            "oracle": self.oracle,
            "approximate": self.approximate,
            "epochs_checked": len(every),
            "events": self.events,
            "rejected": self.rejected,
            "nonfinite": self.nonfinite,
            "worst": None if off is None or off.worst is None else {**off.worst.to_dict(), "epoch": epoch},
            "faults": self.faults,
        }
