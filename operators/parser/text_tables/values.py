"""Values that text says in fields of events, one record at a time; what is none stays text, and the rules refuse it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from freshet.operators.parser.rules import (
    ID_FIELDS,
    INT64_MAX,
    INT64_MIN,
    WHOLE_MAX,
    FieldKind,
    Prepare,
    Rules,
    with_integers,
)
from freshet.partitioner.events import ALL_KEYS
from freshet.partitioner.ids import INT, STRING
from freshet.partitioner.times.units import Timed

_DIGITS_MAX = 400  # of an integer; longer ones are none
_WHOLE = re.compile(r"(0|-?[1-9][0-9]*)(\.0+)?")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LIST = re.compile(r"\[(.*)\]", re.DOTALL)
_BETWEEN = re.compile(r"[ \t\n\v\f\r]*[,;][ \t\n\v\f\r]*|[ \t\n\v\f\r]+")
_INSTANT = re.compile(
    r"([1-9][0-9]{3}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_SPACES = " \t\n\v\f\r"
_VERTEX_IDS, _EDGE_IDS = ("id",), ("src", "dst")


class TextTime(Timed):
    """A time that a text says."""

    def __init__(self, text: str, ms: int) -> None:
        self._text, self._ms = text, ms

    @property
    def ms(self) -> int:
        """Milliseconds since 1970, rounded down."""
        return self._ms

    def __str__(self) -> str:
        return f"the string {self._text!r}"


def whole(text: str) -> int | str:
    """The integer that a text says, without zeros before it; a point may be followed by zeros, as in a float."""
    found = _WHOLE.fullmatch(text.strip(_SPACES))
    if found is None or len(found[1]) > _DIGITS_MAX:
        return text
    number = int(found[1])
    return text if found[2] and abs(number) > WHOLE_MAX else number


def number(text: str) -> float | str:
    """The number that a text says."""
    text = text.strip(_SPACES)
    return float(text) if _NUMBER.fullmatch(text) else text


def numbers(value: Any) -> Any:
    """The numbers of a list of texts, or of a text that has them between commas, semicolons or spaces."""
    if isinstance(value, str):
        text = value.strip(_SPACES)
        inner = _LIST.fullmatch(text)
        text = inner[1].strip(_SPACES) if inner else text
        found = _BETWEEN.split(text) if text else []
        if inner is None and not all(map(_NUMBER.fullmatch, found)):
            return value
        value = found
    if not isinstance(value, list):
        return value
    if value and all(one is None for one in value):  # of several columns, none of which has any
        return None
    return [number(one) if isinstance(one, str) else one for one in value]


def time(text: str) -> int | Timed | str:
    """The integer or the time (of ISO 8601, in UTC where it names no zone) that a text says."""
    found = whole(text)
    if not isinstance(found, str):
        return found
    parts = _INSTANT.fullmatch(text.strip(_SPACES))
    if parts is None:
        return text
    day, clock, second, fraction, zone = parts.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{clock or '00:00'}:{second or '00'}{zone or 'Z'}")
    except ValueError:
        return text
    past = int((fraction or "0").ljust(9, "0")) // 10**6
    return TextTime(text, (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + past)


def preparing(rules: Rules) -> Prepare:
    """Return what makes values of the text in the fields of an event, for a job of these rules."""
    readers = {name: _OF_TEXT[kind] for name, kind in rules.fields.items() if kind in _OF_TEXT}

    def prepare(record: dict[str, Any], key_field: str) -> dict[str, Any]:
        for name, read in readers.items():
            value = record.get(name)
            if isinstance(value, str | list):
                record[name] = read(value)
        if rules.id_kind != STRING:
            _read_ids(record, rules.id_kind)
        key = record.get(key_field)
        if isinstance(key, str) and key != ALL_KEYS and rules.keys.kind in (INT, None):
            record[key_field] = within_int64(key) if rules.keys.kind is None else whole(key)
        return with_integers(record, key_field)

    return prepare


def _time_of(value: Any) -> Any:
    return time(value) if isinstance(value, str) else value


def _number_of(value: Any) -> Any:
    return number(value) if isinstance(value, str) else value


_OF_TEXT: Mapping[FieldKind | None, Any] = {
    FieldKind.NUMBER: _number_of,
    FieldKind.NUMBERS: numbers,
    FieldKind.FEATURES: numbers,
    FieldKind.TIME: _time_of,
}


def within_int64(text: str) -> int | str:
    """The integer of 64 bits that a text says."""
    found = whole(text)
    return found if isinstance(found, int) and INT64_MIN <= found <= INT64_MAX else text


def _read_ids(record: dict[str, Any], kind: str | None) -> None:
    """Read ids as integers; while their kind is open, if all of the event's are."""
    used = _EDGE_IDS if str(record.get("op")).endswith("_edge") else _VERTEX_IDS
    found = {name: record[name] for name in ID_FIELDS if isinstance(record.get(name), str)}
    read = {name: whole(text) if kind == INT else within_int64(text) for name, text in found.items()}
    if kind == INT or not any(isinstance(read.get(name), str) for name in used):
        record.update(read)
