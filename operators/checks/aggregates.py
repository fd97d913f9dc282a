"""Checks of an aggregate by itself: order of messages, taking back, parts against the whole, and the full pass.

Two messages find what streams miss: a merge that forgets its shift passed 112 random streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from freshet.gnn.answers import ClaimAnswer
from freshet.gnn.smallest import shown, smallest
from freshet.operators.checks.cases import EPOCHS, Law, MessageCase, draw, smaller
from freshet.operators.checks.kept import Both, KeptAggregate
from freshet.operators.checks.many import SIZES, apart_by_order, apart_by_parts, drawn, smallest_apart

PARTS = 2
TOLERANCE = 1e-5  # of aggregates that round, relative to the largest value; others are compared bit by bit
ORDER = Law("the order of messages changes nothing")
TAKING_BACK = Law("messages that go or change leave nothing behind", goes=True)
MERGED = Law("states of parts merge into that of the whole", parts=PARTS, goes=True)
FULL_PASS = Law("a full pass makes the same", later=False)
_ONCE = "it differed once, and not again: a function depends on more than what it reads"
PER_SIZE = 160
_MESSAGES = (1, 2, 3, 4)
_PER_MANY = 8  # times fewer cases of many messages


class TwoResults(NamedTuple):
    """Two results that should be one, after an epoch."""

    epoch: int
    got: np.ndarray
    want: np.ndarray

    def __str__(self) -> str:
        after = f"after epoch {self.epoch}: " if self.epoch else ""
        return f"{after}{shown(self.got)}, but all messages at once make {shown(self.want)}"


def check_aggregate(kept: KeptAggregate, *, seed: int = 0, per_size: int = PER_SIZE) -> list[ClaimAnswer]:
    """Return what was found about an aggregate by itself, claim by claim, with the smallest counterexamples."""
    laws: list[tuple[Law, Callable[[Sequence[MessageCase]], list[Both]]]] = [
        (ORDER, lambda cases: [_both_ways(kept, cases), *kept.streamed(cases, 1)]),
        (TAKING_BACK, lambda cases: kept.streamed(cases, 1)),
    ]
    if kept.merges:
        laws.append((MERGED, lambda cases: kept.streamed(cases, PARTS)))
    if kept.has_full_pass:
        laws.append((FULL_PASS, lambda cases: [kept.passed(cases)]))
    return [_answer(kept, law, results, np.random.default_rng(seed), per_size) for law, results in laws]


def _both_ways(kept: KeptAggregate, cases: Sequence[MessageCase]) -> Both:
    return Both(kept.folded(cases, backwards=True), kept.folded(cases, backwards=False))


def _answer(
    kept: KeptAggregate,
    law: Law,
    results: Callable[[Sequence[MessageCase]], list[Both]],
    rng: np.random.Generator,
    per_size: int,
) -> ClaimAnswer:
    def differing(cases: Sequence[MessageCase]) -> list[bool]:
        wrong = np.zeros(len(cases), bool)
        for both in results(cases):
            wrong |= _differs(kept, both)
        return wrong.tolist()

    searched = 0
    for messages in _MESSAGES:
        cases = draw(law, kept.widths, messages, per_size, rng)
        found = [case for case, wrong in zip(cases, differing(cases), strict=True) if wrong]
        searched += len(cases)
        if found:
            case = smallest(found[0], smaller, differing)
            return ClaimAnswer(law.claim, "refuted", searched, f"{case}\n{_difference(kept, results([case]))}")
    answer = ClaimAnswer(law.claim, "searched", searched)
    return answer if kept.functions is None or law not in _OF_MANY else _of_many(kept, law, answer, rng)


_OF_MANY = {ORDER: apart_by_order, MERGED: apart_by_parts}


def _of_many(kept: KeptAggregate, law: Law, few: ClaimAnswer, rng: np.random.Generator) -> ClaimAnswer:
    """Return the answer about a fold that a user wrote, with many messages, where few have shown nothing."""
    assert kept.functions is not None  # by the caller
    apart, searched = _OF_MANY[law](kept.functions, TOLERANCE), few.cases
    for case in drawn(law, kept.widths.source, few.cases // len(_MESSAGES) // _PER_MANY, rng):
        searched += 1
        if apart(case) is not None:
            case = smallest_apart(case, apart)
            both = apart(case)
            result = _ONCE if both is None else TwoResults(0, both.got[0], both.want[0])
            return ClaimAnswer(law.claim, "refuted", searched, f"{case}\n{result}")
    return ClaimAnswer(law.claim, "searched", searched, f"of up to {SIZES[-1]:,} messages")


def _differs(kept: KeptAggregate, both: Both) -> np.ndarray:
    """Return of each case whether its results differ: in any number, or by more than rounding where it rounds."""
    got, want = (side.astype(np.float64) for side in both)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    if not (kept.relation.synopsis.is_linear or kept.relation.synopsis.finds_by_value):
        with np.errstate(invalid="ignore"):
            largest = np.abs(np.where(np.isfinite(want), want, 0)).max(axis=0, initial=0)
            same |= np.abs(got - want) <= TOLERANCE * (1 + largest)
    return ~same.all(axis=1)


def _difference(kept: KeptAggregate, results: Sequence[Both]) -> TwoResults | str:
    """Return the first difference of a case that has one, or that it differs from time to time."""
    first = len(results) - EPOCHS
    for number, both in enumerate(results):
        if _differs(kept, both)[0]:
            return TwoResults(max(0, number - first + 1) if len(results) > 1 else 0, both.got[0], both.want[0])
    return _ONCE
