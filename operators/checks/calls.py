"""Checks that functions of a user's make the same at every call: none draws random numbers, counts, or keeps results.

A draw in ten thousand and a count to thousands show in many calls alone. Functions take turns, as one may keep what
another one reads, and so do two inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from freshet.gnn.answers import CUT_SHORT, ClaimAnswer
from freshet.gnn.own.aggregates import Redone
from freshet.gnn.own.running import BLOCK, RunningLayer
from freshet.gnn.smallest import VALUES, shown

SAME_CALLS = "each function makes the same at every call"
CALLS = 50_000  # of each function: a draw in 10,000 shows in 99 of 100 searches
SECONDS_MAX = 3.0  # of this thread, so that a busy machine cuts nothing short
_BETWEEN = 256  # calls between looks at the clock
_MESSAGES = (3, 5)  # of the two inputs of a fold
Given = tuple[np.ndarray, ...]


class _Called(NamedTuple):
    """A function, an input of it, and what it made of that at first."""

    name: str
    function: Callable[..., np.ndarray]
    given: Given
    first: np.ndarray


def check_calls(
    running: RunningLayer, *, seed: int = 0, calls: int = CALLS, clock: Callable[[], float] = time.thread_time
) -> ClaimAnswer:
    """Return whether the functions of a layer make the same of the same rows, call after call.

    Raises: WrittenLayerError for one that fails.
    """
    functions = running.functions()
    turns = [_calls(running, functions, np.random.default_rng([seed, k]), k) for k in range(2)]
    end = clock() + SECONDS_MAX
    with np.errstate(all="ignore"):  # infinities and NaN are results
        for number in range(calls):
            for one in turns[number % 2]:
                made = np.asarray(one.function(*one.given))
                if made.tobytes() != one.first.tobytes():
                    return ClaimAnswer(SAME_CALLS, "refuted", number + 1, _shown(one, made, number + 1))
            if number % _BETWEEN == 0 and clock() > end and number + 1 < calls:
                short = f"{CUT_SHORT} after {SECONDS_MAX:g} s, at {number + 1:,} of {calls:,} calls of each"
                return ClaimAnswer(SAME_CALLS, "searched", number + 1, short)
    return ClaimAnswer(SAME_CALLS, "searched", calls)


def _calls(
    running: RunningLayer, functions: dict[str, Callable[..., np.ndarray]], rng: np.random.Generator, turn: int
) -> list[_Called]:
    found = list[_Called]()
    with np.errstate(all="ignore"):
        for name, given in _given(running, functions, rng, turn).items():
            for rows in given:
                rows.flags.writeable = False
            found.append(_Called(name, functions[name], given, np.array(functions[name](*given))))
    return found


def _given(
    running: RunningLayer, functions: dict[str, Callable[..., np.ndarray]], rng: np.random.Generator, turn: int
) -> dict[str, Given]:
    """Return an input of each function: small integers at first, then any numbers."""

    def rows(width: int, count: int = BLOCK) -> np.ndarray:
        drawn = rng.choice(VALUES, (count, width)) if turn == 0 else rng.standard_normal((count, width))
        return drawn.astype(np.float32)

    widths = running.function_widths()
    found: dict[str, Given] = {name: tuple(map(rows, widths[name])) for name in functions if name in widths}
    if isinstance(running.aggregate, Redone):
        messages = rows(running.widths.message, _MESSAGES[turn])
        found["fold"] = (messages,)
        states = [running.fold(messages), running.fold(messages[:1])]
        if "merge" in functions:
            found["merge"] = (states[0], states[1])
        if "read" in functions:
            found["read"] = (np.repeat(np.stack(states), BLOCK // 2, axis=0),)
    return found


def _shown(one: _Called, made: np.ndarray, number: int) -> str:
    """Return what came out differently, with what it is made of, for people."""
    first, given = one.first, [rows for of in one.given for rows in np.atleast_2d(of)]
    if made.shape == first.shape and made.ndim == 2:
        wrong = ~((made == first) | (np.isnan(made) & np.isnan(first))).all(axis=1)
        at = int(wrong.argmax())
        made, first, given = made[at], first[at], [rows[at] for rows in one.given]
    results = [shown(of) if of.ndim == 1 else f"shape {of.shape}" for of in (made, first)]
    read = ", ".join(map(shown, given))
    return f"{one.name} of {read}\ncall {number:,} makes {results[0]}, and the first one made {results[1]}"
