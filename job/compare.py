"""Compares the embeddings of a change log with those of an oracle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two sets of embeddings are apart.

    `nan` counts values that are NaN in both, `mismatched` those that are NaN, or infinite, on one side alone or with
    another sign. `max_rel_error` is relative to the largest finite absolute value of the oracle.
    """

    vertices: int
    max_abs_error: float
    max_rel_error: float
    missing: int
    extra: int
    nan: int
    mismatched: int

    def is_within(self, tolerance: float) -> bool:
        """Whether the two are the same up to that relative error."""
        return not (self.missing or self.extra or self.mismatched) and self.max_rel_error <= tolerance


def compare(ids: np.ndarray, rows: np.ndarray, expected_ids: np.ndarray, expected: np.ndarray) -> Difference:
    """The difference of embeddings from those expected; ids are unique on each side, in any order.

    Shapes: ids (n,), expected_ids (m,) int64 or strings (object); rows (n, width), expected (m, width)
    """
    here, there = _matches(ids, expected_ids)
    wanted = expected[there]
    got = rows[here].reshape(wanted.shape)  # a log without rows has no width
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(np.float64) - wanted)
    both_nan = np.isnan(got) & np.isnan(wanted)
    same = both_nan | (got == wanted)  # equal infinities: their difference is NaN
    odd = ~same & ~(np.isfinite(got) & np.isfinite(wanted))
    error[same | odd] = 0.0
    finite = np.abs(expected[np.isfinite(expected)])
    largest = float(finite.max(initial=0.0))
    worst = float(error.max(initial=0.0))
    return Difference(
        vertices=len(expected_ids),
        max_abs_error=worst,
        max_rel_error=worst / (largest or 1.0),
        missing=len(expected_ids) - len(there),
        extra=len(ids) - len(here),
        nan=int(both_nan.sum()),
        mismatched=int(odd.sum()),
    )


def _matches(ids: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the ids that both have stand in the one and in the other."""
    if not len(ids) or not len(others):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.argsort(others, kind="stable")
    place = np.minimum(np.searchsorted(others[order], ids), len(others) - 1)
    found = others[order[place]] == ids
    return np.flatnonzero(found), order[place[found]]
