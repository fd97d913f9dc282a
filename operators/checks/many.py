"""Checks of a fold that a user wrote with as many messages as a hub has: in other orders, and in parts that are merged.

It may read some of its messages alone, such as the first hundred, which few messages do not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce

import numpy as np

from freshet.gnn.smallest import VALUES, smallest
from freshet.gnn.synopses.redone import RedoneFunctions
from freshet.operators.checks.cases import Law, MessageCase, OneMessage, smaller
from freshet.operators.checks.kept import Both

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
                if _differs(both, len(rows), tolerance):
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
        return both if _differs(both, len(rows), tolerance) else None

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


def _differs(both: Both, messages: int, tolerance: float) -> bool:
    got, want = (side.astype(np.float64) for side in both)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(got - want) <= tolerance * max(1.0, messages / _EXACT) * (1 + np.abs(want))
    return not bool((near | (got == want) | (np.isnan(got) & np.isnan(want))).all())
