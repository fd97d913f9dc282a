"""Findings of a check of a run: the difference of its embeddings, and other faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from freshet.job.results.compare import Difference


class Compared(NamedTuple):
    """The difference after an epoch, of the vertices of a kind where several are returned."""

    epoch: int
    difference: Difference
    kind: str = ""


@dataclass
class Findings:
    """The differences of the epochs that were looked at, up to `epoch`, the last; and faults in words."""

    epoch: int
    oracle: str
    differences: list[Compared] = field(default_factory=list)
    duplicates: int = 0
    nonfinite: int = 0
    events: int = 0
    rejected: int = 0
    approximate: bool = False
    module_answers: int | None = None
    """Answers of the module of a model with messages of a user's, against which the model was held; None for others."""
    faults: list[str] = field(default_factory=list)

    def is_good(self, tolerance: float) -> bool:
        """True if there is no fault."""
        within = all(one.difference.is_within(tolerance) for one in self.differences)
        return within and not self.duplicates and not self.faults

    def line(self) -> dict[str, Any]:
        """The JSON line: errors and counts over all epochs that were looked at, vertices of the last.

        Of several kinds together, and then `by_kind`.
        """
        every, kinds = [one.difference for one in self.differences], dict.fromkeys(one.kind for one in self.differences)
        by_kind = {kind: _figures([one for one in self.differences if one.kind == kind]) for kind in kinds}
        return {
            **_figures(self.differences),
            "nan": sum(one.nan for one in every),
            "mismatched": sum(one.mismatched for one in every),
            "duplicates": self.duplicates,
            "epoch": self.epoch,
            "oracle": self.oracle,
            "approximate": self.approximate,
            "epochs_checked": len({one.epoch for one in self.differences}),
            "events": self.events,
            "rejected": self.rejected,
            "nonfinite": self.nonfinite,
            "worst": _worst(self.differences),
            "faults": self.faults,
            **({"by_kind": by_kind} if any(kinds) else {}),
            **({} if self.module_answers is None else {"module_answers": self.module_answers}),
        }


def _figures(compared: list[Compared]) -> dict[str, Any]:
    every = [one.difference for one in compared]
    return {
        "vertices": sum(one.difference.vertices for one in compared if one.epoch == compared[-1].epoch),
        "max_abs_error": max(one.max_abs_error for one in every),
        "max_rel_error": max(one.max_rel_error for one in every),
        "missing": sum(one.missing for one in every),
        "extra": sum(one.extra for one in every),
    }


def _worst(compared: list[Compared]) -> dict[str, Any] | None:
    """Return the value that is furthest off; None where none is."""
    named = [(one.difference.mismatched > 0, one.difference.max_rel_error, one) for one in compared]
    off = max((one for one in named if one[2].difference.worst is not None), key=lambda one: one[:2], default=None)
    if off is None or (worst := off[2].difference.worst) is None:
        return None
    return {**worst.to_dict(), "epoch": off[2].epoch, **({"kind": off[2].kind} if off[2].kind else {})}
