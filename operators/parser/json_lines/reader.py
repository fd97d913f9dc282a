"""The fields of events in many lines of JSON, as Arrow columns, by Arrow's JSON reader.

It parses with the interpreter lock released, and refuses values of other types than those given, instead of converting
them. Polars' reader takes a quarter of its time, but makes null, which is absent, of values of other types; simdjson
and msgspec make Python objects of each line under the lock.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from freshet.operators.parser.arrow.arrays import one_array
from freshet.operators.parser.json_lines.guards import minus_zero_line, odd_lines
from freshet.operators.parser.json_lines.shape import Shape
from freshet.operators.parser.json_lines.text import Text

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
