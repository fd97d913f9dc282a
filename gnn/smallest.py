"""Search for the smallest case that still fails, and rows of small integers of which such cases are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

Row = tuple[float, ...]
Case = TypeVar("Case")
VALUES = (0.0, 1.0, -1.0, 2.0, -2.0)
_SHOWN = 12  # numbers of a row that a person reads


def smallest(
    case: Case, smaller: Callable[[Case], Iterable[Case]], failing: Callable[[Sequence[Case]], Iterable[bool]]
) -> Case:
    """Return a case that fails while none of the cases a step smaller does, going down a step at a time.

    `failing` says of each case whether it fails; only the first that does is used, so it may answer one by one.
    """
    while steps := list(smaller(case)):
        step = next((one for one, fails in zip(steps, failing(steps), strict=False) if fails), None)
        if step is None:
            break
        case = step
    return case


def simpler_rows(row: Row) -> Iterator[Row]:
    """Yield a row with fewer or smaller numbers."""
    if any(row):
        yield (0.0,) * len(row)
    for part in halves(len(row)):
        if any(row[part]) and len(row[part]) < len(row):
            yield (*row[: part.start], *(0.0,) * len(row[part]), *row[part.stop :])
    for i, value in enumerate(row):
        yield from ((*row[:i], less, *row[i + 1 :]) for less in (1.0, -1.0) if value not in (0.0, 1.0, less))


def halves(width: int) -> Iterator[slice]:
    """Yield the halves of a row, their halves, and so on down to single numbers."""
    size = width
    while size > 1:
        size = (size + 1) // 2
        yield from (slice(first, min(first + size, width)) for first in range(0, width, size))


def shown(row: Sequence[float] | np.ndarray) -> str:
    """Return a row for people, shortened where it is long."""
    values = [f"{float(value):.6g}" for value in row]
    if len(values) > _SHOWN:
        values = [*values[:10], f"... {len(values)} in all"]
    return f"[{', '.join(values)}]"
