"""Rows of text (CSV, TSV) and columns that folders name, read a second time for `freshet check`."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from freshet.operators.parser.event_files import EventFile
from freshet.schema import WEIGHT

DELIMITERS = {"csv": ",", "tsv": "\t"}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_FIELD_CHARACTERS_MAX = 1 << 25
_SPACES = " \t\n\v\f\r"
_DIGITS_MAX = 400
_TEXTS = ("op", "type", "kind", "src_kind", "dst_kind")


class TextMoment(NamedTuple):
    """A time that a text says, in milliseconds since 1970."""

    ms: int


def opened(path: str) -> io.BufferedReader:
    """Open a file, perhaps a compressed one."""
    compression = COMPRESSIONS.get(PurePath(path).suffix.lower())
    return io.BufferedReader(
        gzip.open(path) if compression == "gzip" else pa.input_stream(path, compression=compression)
    )


def text_rows(file: EventFile, fields: Sequence[str] | None) -> Iterator[dict[str, Any] | None]:
    """The rows of a file as dicts of text, without what is empty; None for a row of another length than the header.

    `fields`: those of events, of which some may be in several columns; None: the columns as they are.
    """
    csv.field_size_limit(_FIELD_CHARACTERS_MAX)
    constants = folder_columns(file)
    with io.TextIOWrapper(opened(file.path), "utf-8-sig", "surrogateescape", newline="") as lines:
        rows = (row for row in csv.reader(lines, delimiter=DELIMITERS[file.format]) if row)
        names = [name.strip() for name in next(rows)]
        several = {} if fields is None else {name: of for name in fields if (of := _columns_of(name, names))}
        for row in rows:
            if len(row) != len(names):
                yield None
                continue
            found: dict[str, Any] = {name: text for name, text in zip(names, row, strict=True) if name and text}
            for name, of in several.items():
                if any(one in found for one in of):
                    found[name] = [found.get(one) for one in of]
            yield found | constants


def _columns_of(field: str, names: Sequence[str]) -> list[str]:
    """The columns x_0, x_1, ... (or x0, x.0, x[0]; from 1 on, too) of a field that has none itself."""
    numbers = {}
    for name in names:
        rest = name.removeprefix(field).removeprefix("_" if name.startswith(field + "_") else ".")
        rest = rest[1 if rest.startswith("[") else 0 : -1 if rest.endswith("]") else None]
        if name.startswith(field) and rest.isascii() and rest.isdigit() and len(rest) < 7:
            numbers[int(rest)] = name
    found = [numbers[number] for number in sorted(numbers)]
    begins = [list(range(begin, begin + len(found))) for begin in (0, 1)]
    return found if field not in names and sorted(numbers) in begins else []


def folder_columns(file: EventFile) -> dict[str, str]:
    """The columns that the folders of a file's name say; those that are null are left out."""
    path, found = PurePath(file.name), {}
    for _ in range(file.levels):
        path = path.parent
        key, _, value = path.name.partition("=")
        if value not in ("", "__HIVE_DEFAULT_PARTITION__"):
            found[unquote(key)] = unquote(value)
    return found


def folder_values(file: EventFile) -> dict[str, Any]:
    """`folder_columns` beside tables: integers where they are written as such, but in fields of text."""
    found: dict[str, Any] = folder_columns(file)
    for name, text in found.items():
        number = _integer(text)
        if name not in _TEXTS and number is not None and _is_small(number):
            found[name] = number
    return found


def from_text(record: Mapping[str, Any], id_type: type | None, key_name: str, edge_keys: str) -> dict[str, Any]:
    """The fields of an event with the values that their text says; what says none stays text."""
    found = dict(record)
    for name in ("x", "attr"):
        found[name] = _numbers(found.get(name))
    found[WEIGHT] = _number(found.get(WEIGHT))
    found["ts"] = _time(found.get("ts"))
    ids: dict[str, Any] = {name: _whole(found[name]) for name in ("id", "src", "dst") if name in found}
    used = ("src", "dst") if str(found.get("op")).endswith("_edge") else ("id",)
    small = all(type(ids.get(name)) is not str and _is_small(ids.get(name)) for name in used)
    if id_type is int or (id_type is None and small):
        found |= ids
    if edge_keys == "int" and found.get(key_name) != "*":
        found[key_name] = _whole(found.get(key_name))
    return {name: value for name, value in found.items() if value is not None}


def _is_small(value: Any) -> bool:
    return type(value) is not int or -(2**63) <= value < 2**63


def _integer(text: str) -> int | None:
    """An integer that is written in the one usual way."""
    try:
        number = int(text) if len(text) <= _DIGITS_MAX else None
    except ValueError:
        return None
    return number if str(number) == text else None


def _whole(value: Any) -> Any:
    if type(value) is not str:
        return value
    head, point, zeros = value.strip(_SPACES).partition(".")
    number = _integer(head)
    if number is None or (point and (set(zeros) != {"0"} or abs(number) > 2**53)):
        return value
    return number


def _number(value: Any) -> Any:
    text = value.strip(_SPACES) if type(value) is str else ""
    try:
        return float(text) if text and set(text) <= set("0123456789+-.eE") else value
    except ValueError:
        return value


def _numbers(value: Any) -> Any:
    if type(value) is str:
        text = value.strip(_SPACES)
        if text[:1] == "[" and text[-1:] == "]" and len(text) > 1:
            text = text[1:-1]
        for space in _SPACES:
            text = text.replace(space, " ")
        pieces = [[one for one in piece.split(" ") if one] for piece in text.replace(";", ",").split(",")]
        if len(pieces) > 1 and not all(pieces):
            return value
        value = [one for piece in pieces for one in piece]
    if type(value) is not list or (value and all(one is None for one in value)):
        return None if type(value) is list else value
    return [_number(one) for one in value]


def _time(value: Any) -> Any:
    found = _whole(value)
    if type(found) is not str:
        return found
    text = found.strip(_SPACES)
    shape = "".join("0" if one in "0123456789" else one for one in text)
    clock, zone = shape[10:], ""
    for one in ("Z", "+00:00", "-00:00", "+0000", "-0000"):
        if clock.endswith(one) and shape[10:] != one:
            clock, zone = clock[: -len(one)], text[len(shape) - len(one) :]
    clocks = [
        "",
        *(f"{at}00:00{rest}" for at in "T " for rest in ("", ":00", *(f":00.{'0' * k}" for k in range(1, 10)))),
    ]
    if shape[:10] != "0000-00-00" or text[0] == "0" or clock not in clocks:
        return value
    places = [text[0:4], text[5:7], text[8:10], text[11:13], text[14:16], text[17:19] if len(clock) > 6 else ""]
    ahead = int(zone[0] + "1") if zone and zone != "Z" else 0
    digits = zone[1:].replace(":", "").rjust(4, "0") if ahead else "0000"
    try:
        at = datetime(*(int(one or 0) for one in places), tzinfo=UTC)  # type: ignore[arg-type,misc]
    except ValueError:
        return value
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        return value
    ms = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    ms -= ahead * (hours * 60 + minutes) * 60_000
    return TextMoment(ms + int(text[20 : 10 + len(clock)].ljust(3, "0")[:3] if len(clock) > 9 else 0))
