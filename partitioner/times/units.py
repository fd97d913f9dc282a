"""Units of `ts`, and values that say a time by their type, whatever the job's unit is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

if TYPE_CHECKING:
    import numpy as np

TsUnit = Literal["s", "ms", "us", "ns"]
UNITS: tuple[str, ...] = get_args(TsUnit)
MS: TsUnit = "ms"
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_TIMES = {"s": 1000, "ms": 1, "us": 1, "ns": 1}
_PARTS = {"s": 1, "ms": 1, "us": 1000, "ns": 1_000_000}
# Times before 2000 and from 2100 on are more often of another unit than right.
USUAL_MS = range(946_684_800_000, 4_102_444_800_000)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class Timed:
    """A value that says a time by its type."""

    __slots__ = ()

    @property
    def ms(self) -> int:
        """Milliseconds since 1970, rounded down."""
        raise NotImplementedError


class Instant(Timed, int):
    """A number that its schema calls a time; elsewhere than in `ts` it is that number."""

    unit: ClassVar[str] = MS

    @property
    def ms(self) -> int:
        """Milliseconds since 1970, rounded down."""
        return to_ms(int(self), self.unit)


INSTANTS: dict[str, type[Instant]] = {unit: type(f"Instant_{unit}", (Instant,), {"unit": unit}) for unit in UNITS}


def to_ms(number: int, unit: str) -> int:
    """Return a time in milliseconds, rounded down; it may be past int64."""
    return number * _TIMES[unit] // _PARTS[unit]


def all_to_ms(numbers: np.ndarray, unit: str) -> tuple[np.ndarray, np.ndarray]:
    """Return times in milliseconds, rounded down, and where they are within int64.

    Shapes: numbers and times (n,) int64, fit (n,) bool
    """
    import numpy as np  # the command reads its options, which have units, without it

    times, parts = _TIMES[unit], _PARTS[unit]
    if times == 1:
        return (numbers if parts == 1 else numbers // parts), np.ones(len(numbers), bool)
    fit = (numbers >= -(-_INT64_MIN // times)) & (numbers <= _INT64_MAX // times)
    return np.where(fit, numbers, 0) * times, fit


def of_ms(ms: int, unit: str) -> int:
    """Return the number of a time of milliseconds in another unit, rounded down."""
    return ms * _PARTS[unit] // _TIMES[unit]


def unit_that_fits(number: int) -> str | None:
    """Return the unit in which a number is a usual time; None where it is in none."""
    return next((unit for unit in UNITS if to_ms(number, unit) in USUAL_MS), None)


def day_of(ms: int) -> str:
    """Return the day of a time, for people."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).date().isoformat()
    except OverflowError:
        return "no day of the years 1 to 9999"


def first_unusual(ts: np.ndarray | None, none: int) -> int | None:
    """Return the first time that is not usual, in milliseconds; None without one. `none` stands where there is none.

    Shapes: ts (n,) int64
    """
    if ts is None:
        return None
    odd = ((ts < USUAL_MS.start) | (ts >= USUAL_MS.stop)) & (ts != none)
    return int(ts[odd.argmax()]) if odd.any() else None


def unusual_in_words(ms: int, unit: str) -> str:
    """Describe a time that is not usual, which came as an integer of that unit, and the unit that would fit."""
    number = of_ms(ms, unit)
    fits = unit_that_fits(number)
    if fits is None:
        return f"{number}, {day_of(ms)} in {UNIT_NAMES[unit]}, and in no other unit from 2000 to 2100 either"
    return (
        f"{number}, {day_of(ms)} in {UNIT_NAMES[unit]}; in {UNIT_NAMES[fits]} it is {day_of(to_ms(number, fits))}: "
        f"--ts-unit {fits}"
    )
