"""Rows of Arrow tables as Python records, for the rows that are looked at one by one, and as JSON for dead letters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from operators.event_columns import is_number, is_text


class Foreign:
    """A value that no event field can be, shown by its Arrow type in reasons and as text in dead letters."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text

    def __str__(self) -> str:
        return self.kind


def records(columns: Mapping[str, pa.Array], rows: np.ndarray) -> list[dict[str, Any]]:
    """The given rows as dicts without their nulls."""
    taken = pa.array(rows, pa.int64())
    values = {name: _to_python(array.take(taken)) for name, array in columns.items()}
    return [
        {name: value for name, value in zip(values, row, strict=True) if value is not None}
        for row in zip(*values.values(), strict=True)
    ] or [{} for _ in rows]


def to_json(record: Mapping[str, Any]) -> bytes:
    """A record as compact JSON (with NaN and Infinity as JavaScript writes them)."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=lambda value: value.text)
    return text.encode(errors="replace")


def _to_python(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if is_text(kind):
        binary = array.cast(pa.large_string()).cast(pa.large_binary())
        return [None if text is None else _text(text) for text in binary.to_pylist()]
    if _is_json(kind):
        try:
            return array.to_pylist()
        except UnicodeDecodeError:
            pass
    return [Foreign(f"a value of type {kind}", str(scalar)) if scalar.is_valid else None for scalar in array]


def _is_json(kind: pa.DataType) -> bool:
    """Types whose Python values are what JSON would give."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _is_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_json(kind.field(k).type) for k in range(kind.num_fields))
    return is_number(kind) or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)


def _text(text: bytes) -> str | Foreign:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return Foreign("bytes that are not UTF-8", text.decode(errors="backslashreplace"))
