"""Rows of Arrow tables as Python records, for the rows that are looked at one by one, and as JSON for dead letters.

Also how a value is shown in a reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.operators.parser.arrow.arrays import is_list, is_number, is_text
from freshet.partitioner.times.units import Timed, to_ms

_TYPE_LENGTH = 100  # that of a struct names all of its fields

_NAMES = {
    bool: "a boolean",
    int: "the integer",
    float: "the number",
    str: "the string",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


class Foreign:
    """A value that no event field can be, shown by its Arrow type in reasons and as text in dead letters."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text

    def __str__(self) -> str:
        return self.kind


class ForeignTime(Timed, Foreign):
    """A timestamp, which `ts` alone can be."""

    def __init__(self, kind: str, text: str, ms: int) -> None:
        super().__init__(kind, text)
        self._ms = ms

    @property
    def ms(self) -> int:
        """Milliseconds since 1970, rounded down."""
        return self._ms


def show(value: Any) -> str:
    """A value for an error message: its type and, where that is short, itself."""
    name = _NAMES.get(type(value))
    if name is None:
        return str(value)
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int | float):
        return f"{name} {value!r}"
    if isinstance(value, str):
        return f"{name} {value if len(value) <= 40 else value[:40] + '…'!r}"
    return name


def records(columns: Mapping[str, pa.Array], rows: np.ndarray) -> list[dict[str, Any]]:
    """The given rows as dicts without their nulls; decimals are integers where they are whole, else floats."""
    values = {name: _to_python(array, rows) for name, array in columns.items()}
    return [
        {name: value for name, value in zip(values, row, strict=True) if value is not None}
        for row in zip(*values.values(), strict=True)
    ] or [{} for _ in rows]


def to_json(record: Mapping[str, Any]) -> bytes:
    """A record as compact JSON (with NaN and Infinity as JavaScript writes them)."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=lambda value: value.text)
    return text.encode(errors="replace")


def _to_python(array: pa.Array, rows: np.ndarray) -> list[Any]:
    try:
        taken = array.take(pa.array(rows, pa.int64()))
        if pa.types.is_dictionary(taken.type):
            taken = taken.dictionary_decode()
    except pa.ArrowException:  # Arrow can't take from views, unions and run ends
        return [_foreign(array[row]) for row in rows.tolist()]
    if is_text(taken.type):
        binary = taken.cast(pa.large_string()).cast(pa.large_binary())
        return [None if text is None else _text(text) for text in binary.to_pylist()]
    if _is_json(taken.type):
        try:
            values = taken.to_pylist()
            return [_as_json(value) for value in values] if _has_other_numbers(taken.type) else values
        except ValueError:  # text that is not UTF-8; a struct with two fields of one name
            pass
    return [_foreign(scalar) for scalar in taken]


def _foreign(scalar: pa.Scalar) -> Foreign | None:
    if not scalar.is_valid:
        return None
    try:
        text = str(scalar)
    except Exception:  # a date in the year 275,000, a time zone that nobody knows, ...
        text = "(Python can't show it)"
    kind = f"a value of type {str(scalar.type)[:_TYPE_LENGTH]}"
    if pa.types.is_timestamp(scalar.type):
        return ForeignTime(kind, text, to_ms(scalar.value, scalar.type.unit))
    return Foreign(kind, text)


def _is_json(kind: pa.DataType) -> bool:
    """Types whose Python values are what JSON would give."""
    if is_list(kind):
        return _is_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_json(kind.field(k).type) for k in range(kind.num_fields))
    return is_number(kind) or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)


def _has_other_numbers(kind: pa.DataType) -> bool:
    """Return whether numbers in it are represented otherwise than those of JSON."""
    if pa.types.is_nested(kind):
        return any(_has_other_numbers(kind.field(k).type) for k in range(kind.num_fields))
    return pa.types.is_decimal(kind) or pa.types.is_float16(kind)


def _as_json(value: Any) -> Any:
    """A value with numbers of Python in place of others."""
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, list):
        return [_as_json(one) for one in value]
    return {name: _as_json(one) for name, one in value.items()} if isinstance(value, dict) else value


def _text(text: bytes) -> str | Foreign:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return Foreign("bytes that are not UTF-8", text.decode(errors="backslashreplace"))
