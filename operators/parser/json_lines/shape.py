"""The fields that are read of a line of JSON, and their types, for the rules of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from freshet.operators.parser.rules import INT64_MAX, INT64_MIN, Field, FieldKind, Rules
from freshet.partitioner.events import INT

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
    of_bits = (*_OF_BITS, FieldKind.NUMBERS) if rules.features.edge_width else _OF_BITS
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
