"""Comparison of a change log's embeddings with an oracle's, each value at its own scale; the findings of a check."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

# Smaller scales count as this one: numbers so small lose digits in float32 that nobody misses.
SCALE_MIN = 1e-30
_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class Worst:
    """The value that is furthest off."""

    id: Any
    channel: int
    got: float
    expected: float
    scale: float

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, which has no NaN and no infinity."""
        numbers = {"got": self.got, "expected": self.expected, "scale": self.scale}
        shown = {name: value if math.isfinite(value) else str(value) for name, value in numbers.items()}
        return {"id": self.id, "channel": self.channel, **shown}


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of two sets of embeddings.

    `max_rel_error` is relative to the scale of the value that is off. `nan` counts values that are NaN in both, or may
    be, since float32's range was passed on the way to them; `mismatched` those that are NaN, or infinite, on one side
    alone or with another sign. `worst` is None where no value is off.
    """

    vertices: int
    max_abs_error: float
    max_rel_error: float
    missing: int
    extra: int
    nan: int
    mismatched: int
    worst: Worst | None = None

    def is_within(self, tolerance: float) -> bool:
        """Return whether the two agree up to this relative error."""
        return not (self.missing or self.extra or self.mismatched) and self.max_rel_error <= tolerance


def compare(
    ids: np.ndarray, rows: np.ndarray, expected_ids: np.ndarray, expected: np.ndarray, scale: np.ndarray
) -> Difference:
    """Compare embeddings with those expected; ids are unique on each side, in any order.

    If the scale is infinite, NaN and infinity count as equal to the expected value.

    Shapes: ids (n,), expected_ids (m,) int64 or strings (object); rows (n, width), expected, scale (m, width)
    """
    here, there = matches(ids, expected_ids)
    rows = rows.reshape(len(rows), expected.shape[1])  # a log without rows has no width
    found = _Found()
    for first in range(0, len(here), _ROWS):
        mine, theirs = here[first : first + _ROWS], there[first : first + _ROWS]
        found.take(ids[mine], rows[mine], expected[theirs].astype(np.float64), np.maximum(scale[theirs], SCALE_MIN))
    return Difference(
        vertices=len(expected_ids),
        max_abs_error=found.max_abs_error,
        max_rel_error=found.max_rel_error,
        missing=len(expected_ids) - len(there),
        extra=len(ids) - len(here),
        nan=found.nan,
        mismatched=found.mismatched,
        worst=found.worst,
    )


class _Found:
    """Differences found so far; rows are compared by the thousand, since several arrays of their size are made."""

    def __init__(self) -> None:
        self.max_abs_error = self.max_rel_error = self.furthest = 0.0
        self.nan = self.mismatched = 0
        self.worst: Worst | None = None

    def take(self, ids: np.ndarray, got: np.ndarray, wanted: np.ndarray, scales: np.ndarray) -> None:
        """Compare some rows."""
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(got - wanted)
            narrow = wanted.astype(np.float32)
            same = got == narrow  # so are equal infinities, whose difference is NaN
        both_nan = np.isnan(got) & np.isnan(wanted)
        may_overflow = ~np.isfinite(scales) & ~np.isnan(wanted) & ~np.isfinite(got)
        odd = ~(same | both_nan | may_overflow) & ~(np.isfinite(got) & np.isfinite(wanted))
        error[both_nan | may_overflow | odd | (same & ~np.isfinite(narrow))] = 0.0
        relative = error / scales
        self.max_abs_error = max(self.max_abs_error, float(error.max(initial=0.0)))
        self.max_rel_error = max(self.max_rel_error, float(relative.max(initial=0.0)))
        self.nan += int((both_nan | (may_overflow & np.isnan(got))).sum())
        self.mismatched += int(odd.sum())
        off = np.where(odd, np.inf, relative)
        if off.max(initial=0.0) > self.furthest:
            self.furthest = float(off.max())
            row, channel = (int(place) for place in np.unravel_index(int(off.argmax()), off.shape))
            values = (float(array[row, channel]) for array in (got, wanted, scales))
            self.worst = Worst(ids[row] if isinstance(ids[row], str) else int(ids[row]), channel, *values)


def matches(ids: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the ids common to both sides, in `ids` and in `others`."""
    if not len(ids) or not len(others):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.argsort(others, kind="stable")
    place = np.minimum(np.searchsorted(others[order], ids), len(others) - 1)
    found = others[order[place]] == ids
    return np.flatnonzero(found), order[place[found]]


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
