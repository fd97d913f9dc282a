"""Level of a queue: its size now, its peak, and its bound.

Everything in a job that holds data back on its way (an inbox, a buffer, the journal) keeps a `Level`. The levels of an
operator go to its profile file and to Flink's metrics, and from there to `run.json` (see docs/reference/memory.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Level:
    """An amount that rises and falls, counted as it does.

    Units: bytes where the level's name ends in `_bytes`, else what the name says.
    Invariant: peak >= now at every moment between two calls. One thread may `add` while another one calls `take`.
    """

    bound: int | None = None  # None: nothing here sets one
    peak: int = 0
    _entered: int = 0
    _left: int = 0

    @property
    def now(self) -> int:
        """Current size."""
        return self._entered - self._left

    def add(self, amount: int) -> None:
        """Add to the size."""
        self._entered += amount
        now = self._entered - self._left
        if now > self.peak:
            self.peak = now

    def take(self, amount: int) -> None:
        """Subtract from the size."""
        self._left += amount

    def set(self, now: int) -> None:
        """Set the size; for levels of one thread."""
        self._entered, self._left = now, 0
        if now > self.peak:
            self.peak = now

    def as_dict(self) -> dict[str, int | None]:
        """The level as plain data."""
        return {"now": self.now, "peak": self.peak, "bound": self.bound}


@dataclass(frozen=True, slots=True)
class JointLevel:
    """The levels of one name of several parts, as one; see `together`."""

    of: tuple[AnyLevel, ...]

    @property
    def now(self) -> int:
        """Current size."""
        return sum(one.now for one in self.of)

    @property
    def peak(self) -> int:
        """No less than ever waited."""
        return sum(one.peak for one in self.of)

    def as_dict(self) -> LevelValues:
        """The level as plain data."""
        return together(one.as_dict() for one in self.of)


AnyLevel = Level | JointLevel


def joint(many: Iterable[Mapping[str, AnyLevel]]) -> dict[str, AnyLevel]:
    """Return the levels of several as one each, by name; those of one alone as they are."""
    found: dict[str, list[AnyLevel]] = {}
    for levels in many:
        for name, level in levels.items():
            found.setdefault(name, []).append(level)
    return {name: one[0] if len(one) == 1 else JointLevel(tuple(one)) for name, one in found.items()}


LevelValues = dict[str, int | None]


def together(levels: Iterable[Mapping[str, Any]]) -> LevelValues:
    """Combine several levels of one name, as in `as_dict`, into one.

    The peaks are added: together they never exceeded the sum. Without a bound of each there is none.
    """
    found = list(levels)
    bounds = [one["bound"] for one in found]
    bound = None if None in bounds else sum(bounds)
    return {"now": sum(one["now"] for one in found), "peak": sum(one["peak"] for one in found), "bound": bound}
