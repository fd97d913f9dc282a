"""Durations (`10s`, `500ms`, `1m`) and sizes (`2GiB`) as people write them."""

from __future__ import annotations

import math
import re

from freshet.partitioner.config import duration_in_words

OFF = "off"
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTES = {"b": 1}
_BYTES |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*", re.ASCII)
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.ASCII | re.IGNORECASE)


def parse_duration(text: str) -> float:
    """Return the duration in seconds, more than zero.

    Raises: ValueError for anything but a number with one of the units ms, s, m, h, d.
    """
    seconds = _parse(text, _SECONDS, "a duration such as 10s, 500ms or 1m")
    if seconds <= 0:
        msg = f"got {text!r}, expected a duration longer than zero, such as 10s"
        raise ValueError(msg)
    return seconds


def parse_size(text: str) -> int:
    """Return the size in bytes, at least one.

    Raises: ValueError for anything but a number with a unit such as MiB or GiB (powers of 1024), MB or GB (of 1000).
    """
    size = int(_parse(text, _BYTES, "a size such as 2GiB or 512MiB"))
    if size < 1:
        msg = f"got {text!r}, expected a size of at least one byte, such as 2GiB"
        raise ValueError(msg)
    return size


def format_duration_or_off(seconds: float) -> str:
    """Return the duration as text, or `off` for none."""
    return format_duration(seconds) if seconds else OFF


def format_duration(seconds: float) -> str:
    """Return the duration as `parse_duration` reads it: `10s`, `500ms`, `2m`."""
    for unit in ("h", "m", "s"):
        amount = seconds / _SECONDS[unit]
        if amount >= 1 and amount == math.floor(amount):
            return f"{int(amount)}{unit}"
    return f"{seconds * 1e3:g}ms"


def format_milliseconds_or_off(duration_ms: int | None) -> str:
    """Return the duration as `milliseconds_or_off` reads it: `30d`, `36h`, or `off` for none."""
    return duration_in_words(duration_ms) if duration_ms else OFF


def format_size(size: int) -> str:
    """Return the size as `parse_size` reads it: `1GiB`, `1536MiB`, `5B`."""
    for unit in ("gib", "mib", "kib"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit[0].upper()}iB"
    return f"{size}B"


def readable(count: int) -> str:
    """Bytes as people read them."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def _parse(text: str, units: dict[str, float] | dict[str, int], expected: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2].lower() not in units:
        msg = f"got {text!r}, expected {expected}"
        raise ValueError(msg)
    return float(match[1]) * units[match[2].lower()]


def seconds(value: object) -> float:
    """Seconds of an option with a unit; a bare number could mean anything and is refused."""
    return parse_duration(value if isinstance(value, str) else f"{value}")


def seconds_or_off(value: object) -> float | None:
    """Seconds of an option with a unit, 0 for `off` (which YAML reads as false), None where it was not given."""
    if value is None:
        return None
    return 0.0 if value is False or value == OFF else seconds(value)


def milliseconds_or_off(value: object) -> int | None:
    """Whole milliseconds of an option with a unit, 0 for `off`, None where it was not given."""
    found = seconds_or_off(value)
    if not found:
        return None if found is None else 0
    duration_ms = round(found * 1000)
    if not 1 <= duration_ms < 2**63:
        msg = f"got {value!r}, expected a duration of at least a millisecond and at most 100,000,000d"
        raise ValueError(msg)
    return duration_ms


def share_or_off(value: object) -> float | None:
    """A share from 0 to 1 of an option in percent, None for `off` (which YAML reads as false)."""
    if value is None or value is False or value == OFF:
        return None
    match = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if match is None or float(match[1]) > 100:
        msg = f"got {value!r}, expected a share such as 5%, or off"
        raise ValueError(msg)
    return float(match[1]) / 100


def format_share_or_off(share: float | None) -> str:
    """Return the share as `share_or_off` reads it: `5%`, or `off` for none."""
    return OFF if share is None else f"{share * 100:.6g}%"


def counts(value: object) -> tuple[int, ...]:
    """Whole numbers of an option, at least 1 each: a list, or text such as 1,2,4."""
    found = value if isinstance(value, list | tuple) else f"{value}".split(",")
    try:
        numbers = tuple(_count(one) for one in found)
    except ValueError:
        numbers = ()
    if not numbers:
        msg = f"got {value!r}, expected whole numbers from 1 on, such as 1,2,4"
        raise ValueError(msg)
    return numbers


def _count(one: object) -> int:
    text = f"{one}".strip()
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(text)
    return int(text)


def format_counts(numbers: tuple[int, ...]) -> str:
    """Return the numbers as `counts` reads them: `1,2,4`."""
    return ",".join(map(str, numbers))


def size_in_bytes(value: object) -> int:
    """Bytes of an option with a unit; a bare number could mean anything and is refused."""
    return parse_size(value if isinstance(value, str) else f"{value}")
