"""Checks of functions of rows: the bits of a row depend on itself alone, wherever it stands and whatever stands beside.

A job computes rows in blocks that depend on what changed, and computes an old message once more to take it back: a
function that reads its whole block, or draws random numbers, would leave wrong sums behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from freshet.gnn.answers import ClaimAnswer
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.smallest import VALUES, shown, simpler_rows, smallest

_COUNTS = (1, 2, 3, 64, 65, 130)  # of rows: around the blocks of 64 that functions get
_PER_COUNT = 12
_TRIES = 8  # of a case: random numbers may come out alike
Given = tuple[Rows, ...]


@dataclass(frozen=True)
class RowFunction:
    """A function of rows, one or several matrices of them, by its name for people."""

    name: str
    run: Callable[..., Rows]
    widths: tuple[int, ...]
    """Of the rows of each matrix that it reads."""


class RowsApart(NamedTuple):
    """A row that came out in two ways."""

    how: str
    row: int
    one: np.ndarray
    other: np.ndarray


def check_rows(function: RowFunction, *, seed: int = 0) -> ClaimAnswer:
    """Return whether each row of a function's result depends on that row of what it reads alone."""
    claim = f"{function.name}: a row depends on itself alone"
    rng, searched = np.random.default_rng(seed), 0
    for count in _COUNTS:
        for whole_numbers in (True, False):
            for _ in range(_PER_COUNT):
                given = tuple(_drawn(count, width, rng, whole_numbers=whole_numbers) for width in function.widths)
                searched += 1
                if _apart(function, given) is not None:
                    return ClaimAnswer(claim, "refuted", searched, _shown(function, _shrunk(function, given)))
    return ClaimAnswer(claim, "searched", searched)


def _drawn(count: int, width: int, rng: np.random.Generator, *, whole_numbers: bool) -> Rows:
    if whole_numbers:
        return rng.choice(np.array(VALUES, np.float32), (count, width))
    return rng.standard_normal((count, width)).astype(np.float32)


def _apart(function: RowFunction, given: Given) -> RowsApart | None:
    """Return a row that has other bits in another place, alone, or the second time; None where there is none."""
    count = len(given[0]) if given else 0
    whole = function.run(*map(np.copy, given))
    orders = [np.arange(count), np.arange(count)[::-1], np.roll(np.arange(count), 1)]
    words = ["a second time", "in the opposite order", "after the last of them"]
    for order, how in zip(orders, words, strict=True):
        there = function.run(*(np.ascontiguousarray(rows[order]) for rows in given))
        wrong = ~_same(whole[order], there)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            return RowsApart(how, int(order[at]), whole[order][at], there[at])
    for row in dict.fromkeys((0, count - 1)):
        alone = function.run(*(rows[row : row + 1].copy() for rows in given))
        if not _same(whole[row : row + 1], alone)[0]:
            return RowsApart("alone", row, whole[row], alone[0])
    return None


def _same(one: Rows, other: Rows) -> np.ndarray:
    """Return of each row whether it has the same bits; NaN is NaN."""
    alike = (np.isnan(one) & np.isnan(other)) | (one.view(np.uint32) == other.view(np.uint32))
    return np.asarray(alike.all(axis=1))


def _shrunk(function: RowFunction, given: Given) -> Given:
    """Return the fewest and simplest rows that still fail."""

    def fails(step: Given) -> bool:
        return any(_apart(function, step) is not None for _ in range(_TRIES))

    return smallest(given, _smaller, partial(map, fails))


def _smaller(given: Given) -> Iterator[Given]:
    count = len(given[0])
    if count > 2:
        yield tuple(rows[: count // 2] for rows in given)
        yield tuple(rows[count // 2 :] for rows in given)
    for i in range(count if 1 < count <= 8 else 0):
        yield tuple(np.delete(rows, i, axis=0) for rows in given)
    for k, rows in enumerate(given):
        for i in range(count if count <= 8 else 0):
            for simpler in simpler_rows(tuple(rows[i].tolist())):
                changed = rows.copy()
                changed[i] = simpler
                yield (*given[:k], changed, *given[k + 1 :])


def _shown(function: RowFunction, given: Given) -> str:
    found = next((one for one in (_apart(function, given) for _ in range(_TRIES * _TRIES)) if one is not None), None)
    if found is None:
        return "it makes other rows of the same ones from time to time"
    lines = [f"row {i}: {', '.join(shown(rows[i]) for rows in given)}" for i in range(min(len(given[0]), 4))]
    lines += [f"... {len(given[0])} rows in all"] if len(given[0]) > 4 else []
    return "\n".join([*lines, f"row {found.row} makes {shown(found.one)}, and {found.how} {shown(found.other)}"])


def check_all_rows(functions: Sequence[RowFunction], *, seed: int = 0) -> list[ClaimAnswer]:
    """Return the answers for several functions."""
    return [check_rows(function, seed=seed) for function in functions]
