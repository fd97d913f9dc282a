"""The fields of events in many lines of JSON, as Arrow columns, by Arrow's JSON reader.

It parses with the interpreter lock released, and refuses values of other types than those given, instead of converting
them. Polars' reader takes a quarter of its time, but makes null, which is absent, of values of other types; simdjson
and msgspec make Python objects of each line under the lock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from freshet.operators.parser.arrow.arrays import one_array
from freshet.operators.parser.json_lines.guards import minus_zero_line, odd_lines
from freshet.operators.parser.json_lines.text import Text
from freshet.operators.parser.rules import INT64_MAX, INT64_MIN, Field, FieldKind, Rules
from freshet.partitioner.ids import INT

_NUMBER, _NUMBERS, _STRING = pa.float64(), pa.list_(pa.float64()), pa.string()
_TYPES = {
    FieldKind.TEXT: _STRING,
    FieldKind.NUMBER: _NUMBER,
    FieldKind.NUMBERS: _NUMBERS,
    FieldKind.FEATURES: _NUMBERS,
    FieldKind.TIME: pa.int64(),
}
_OF_BITS = FieldKind.NUMBER, FieldKind.FEATURES


class Shape(NamedTuple):
    """Columns to read of a line: `schema`, and how the fields of events follow from it."""

    schema: pa.Schema
    names: Mapping[str, str]  # by event field, the name in a line
    constants: Mapping[str, pa.Scalar]  # by event field
    floats: tuple[str, ...]  # the names in a line of fields whose bits come from a number

    def fields(self, read: Mapping[str, pa.Array], lines: int) -> dict[str, pa.Array]:
        """Return the columns by event fields, without those that have no value."""
        found = {field: read[name] for field, name in self.names.items()}
        columns = {field: array for field, array in found.items() if array.null_count < lines}
        return columns | {field: pa.repeat(value, lines) for field, value in self.constants.items()}


def shape_of(rules: Rules) -> Shape | None:
    """Return what is read for these rules, whose kind of ids is known; None: they need Python objects."""
    types = _TYPES | {FieldKind.ID: pa.int64() if rules.id_kind == INT else _STRING}
    types |= {FieldKind.KEY: pa.int64() if rules.keys.kind == INT else _STRING}
    if rules.plain_map is None:
        return None
    fields, names, constants = rules.fields, dict[str, str](), dict[str, pa.Scalar]()
    read: dict[str, pa.DataType] = {}
    for field, source in rules.plain_map.items():
        kind = types[fields[field]]
        if isinstance(source, Field):
            if read.setdefault(source.name, kind) != kind:
                return None
            names[field] = source.name
        elif source is None:
            continue  # null is absent
        elif (scalar := _constant(source, kind)) is None:
            return None
        else:
            constants[field] = scalar
    # lists of attributes that the graph does not keep are only counted
    of_bits = (*_OF_BITS, FieldKind.NUMBERS) if rules.features.given_edge_width else _OF_BITS
    floats = {name for field, name in names.items() if fields[field] in of_bits}
    return Shape(pa.schema(list(read.items())), names, constants, tuple(sorted(floats)))


def _constant(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """A value as one of that type; None where it is of another one."""
    fits = (
        (kind == _STRING and type(value) is str)
        or (kind == _NUMBER and type(value) in (int, float))
        or (kind == pa.int64() and type(value) is int and INT64_MIN <= value <= INT64_MAX)
    )
    if not fits:
        return None
    return pa.scalar(float(value) if kind == _NUMBER else value, kind)


_ROW = re.compile(r"in row (\d+)$")
_MINUS_ZERO = np.int64(-(2**63))  # the bits of -0.0


class OddLinesError(ValueError):
    """Lines that can't be read by columns.

    `rows` are lines that are odd, or seem so; None: at least one of all.
    """

    def __init__(self, rows: np.ndarray | None = None) -> None:
        super().__init__("odd lines")
        self.rows = rows


def read_columns(text: Text, shape: Shape) -> dict[str, pa.Array]:
    """Return the columns that lines have values in, by the fields of events.

    Raises:
        OddLinesError: some lines can't be read so.
    """
    odd = odd_lines(text)
    if len(odd):
        raise OddLinesError(odd)
    table = read_json(text, shape.schema)
    if table.num_rows != len(text):
        raise OddLinesError
    read = {name: one_array(column) for name, column in zip(table.schema.names, table.columns, strict=True)}
    if any(_has_minus_zero(read[name]) for name in shape.floats) and (line := minus_zero_line(text)) is not None:
        raise OddLinesError(np.array([line]))
    return shape.fields(read, len(text))


def read_json(text: Text, schema: pa.Schema) -> pa.Table:
    """Parse lines.

    Raises:
        OddLinesError: some lines are no JSON, or have values of other types.
    """
    try:
        return pj.read_json(
            pa.BufferReader(text.data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(text.data) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        found = _ROW.search(str(error))
        row = int(found[1]) if found else len(text)
        raise OddLinesError(np.array([row]) if row < len(text) else None) from None


def _has_minus_zero(array: pa.Array) -> bool:
    values = array.flatten() if pa.types.is_list(array.type) else array
    if values.null_count:
        values = values.drop_null()
    return bool((values.to_numpy().view(np.int64) == _MINUS_ZERO).any())
