"""Units of `ts`, and values that say a time by their type, whatever the job's unit is."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, get_args

if TYPE_CHECKING:
    import numpy as np

TsUnit = Literal["s", "ms", "us", "ns"]
UNITS: tuple[str, ...] = get_args(TsUnit)
MS: TsUnit = "ms"
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_TIMES = {"s": 1000, "ms": 1, "us": 1, "ns": 1}
_PARTS = {"s": 1, "ms": 1, "us": 1000, "ns": 1_000_000}
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
