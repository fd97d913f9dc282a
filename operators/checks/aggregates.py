"""Checks of an aggregate by itself: order of messages, taking back, parts against the whole, and the full pass.

Two messages find what streams miss: a merge that forgets its shift passed 112 random streams. A fold that a user wrote
also gets as many messages as a hub has, in other orders, and in parts that are merged: it may read some of its messages
alone, such as the first hundred, which few messages do not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from freshet.gnn.answers import ClaimAnswer
from freshet.gnn.smallest import VALUES, shown, smallest
from freshet.gnn.synopses.redone import RedoneFunctions
from freshet.operators.checks.cases import EPOCHS, Law, MessageCase, OneMessage, draw, smaller
from freshet.operators.checks.kept import Both, KeptAggregate

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


SIZES = (8, 24, 80, 300, 1_200)  # docs/guide/own_layers.md
_FORMS = 3
_FEW_PARTS, _PARTS = 2, 8
_LARGE = 120  # magnitude of numbers past small ones, whose sums of powers are judged in float64
_EXACT = 80  # messages, past which sums of rounded numbers may be off by more than few are
_STEPS_MAX = 400_000  # messages of cases on the way to a small one
Apart = Callable[[MessageCase], Both | None]
"""Returns the two results of a case that should be one; None where they are."""


def apart_by_order(functions: RedoneFunctions, tolerance: float) -> Apart:
    """Return what says whether the order of messages changes their aggregate."""

    def apart(case: MessageCase) -> Both | None:
        rows, _ = _arrays(case)
        numbers = np.arange(len(rows))
        with np.errstate(all="ignore"):  # infinities and NaN are results
            want = functions.read(functions.fold(rows)[None])
            for order in (numbers[::-1], np.roll(numbers, 1), np.random.default_rng(0).permutation(numbers)):
                both = Both(functions.read(functions.fold(np.ascontiguousarray(rows[order]))[None]), want)
                if _differs_much(both, len(rows), tolerance):
                    return both
        return None

    return apart


def apart_by_parts(functions: RedoneFunctions, tolerance: float) -> Apart:
    """Return what says whether merged states of parts are another aggregate than that of all messages."""

    def apart(case: MessageCase) -> Both | None:
        rows, part = _arrays(case)
        with np.errstate(all="ignore"):
            states = [functions.fold(np.ascontiguousarray(rows[part == one])) for one in np.unique(part)]
            merged = reduce(functions.merge, states)
            both = Both(functions.read(merged[None]), functions.read(functions.fold(rows)[None]))
        return both if _differs_much(both, len(rows), tolerance) else None

    return apart


def drawn(law: Law, width: int, per_size: int, rng: np.random.Generator) -> Iterator[MessageCase]:
    """Yield cases of many messages, each size in each form."""
    for messages in SIZES:
        forms = _FORMS + (messages <= _EXACT)  # products of many larger numbers are past float64
        for number in range(max(forms, per_size if messages <= _EXACT else 0)):
            rows = _rows(number % forms, messages, width, rng)
            part = (
                rng.integers(_FEW_PARTS if number % 2 else _PARTS, size=messages) if law.parts > 1 else [0] * messages
            )
            pairs = zip(rows.tolist(), part, strict=True)
            yield MessageCase(tuple(OneMessage(tuple(row), part=int(one)) for row, one in pairs))


def smallest_apart(case: MessageCase, apart: Apart) -> MessageCase:
    """Return the smallest case whose results still differ, on a way of bounded work."""
    left = _STEPS_MAX

    def is_apart(step: MessageCase) -> bool:
        nonlocal left
        left -= len(step.messages)
        return left > 0 and bool(step.messages) and apart(step) is not None

    return smallest(case, smaller, partial(map, is_apart))


def _rows(form: int, messages: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Return integers: small ones; two of them by halves; the largest and smallest at the ends; or larger ones.

    The second and third show order statistics and extrema of some of the messages.
    """
    if form == 0:
        return rng.choice(VALUES, (messages, width))
    if form == _FORMS:
        return rng.integers(-_LARGE, _LARGE + 1, (messages, width)).astype(np.float64)
    if form == 1:
        halves = np.where(np.arange(messages) < messages // 2, -1.0, 1.0)
        return np.repeat(halves[:, None], width, axis=1)
    rows: np.ndarray = rng.choice((0.0, 1.0, -1.0), (messages, width))
    rows[0], rows[-1] = 2.0, -2.0
    return rows


def _arrays(case: MessageCase) -> tuple[np.ndarray, np.ndarray]:
    rows = np.array([one.row for one in case.messages], np.float64).reshape(len(case.messages), -1)
    rows = rows if np.abs(rows).max(initial=0) > max(VALUES) else rows.astype(np.float32)
    return rows, np.array([one.part for one in case.messages])


def _differs_much(both: Both, messages: int, tolerance: float) -> bool:
    got, want = (side.astype(np.float64) for side in both)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(got - want) <= tolerance * max(1.0, messages / _EXACT) * (1 + np.abs(want))
    return not bool((near | (got == want) | (np.isnan(got) & np.isnan(want))).all())


_OF_MANY = {ORDER: apart_by_order, MERGED: apart_by_parts}
