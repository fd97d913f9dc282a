"""Kafka messages that are Arrow IPC streams: the table in one, or why it can't be taken."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

# How an Arrow IPC stream begins (the mark of an encapsulated message), and no JSON.
ARROW_STREAM = b"\xff\xff\xff\xff"
# Columns of nulls, run ends and empty lists take no bytes, however many they are: without a bound a message of 300
# bytes could ask for more memory than there is.
ROWS_MAX = 1 << 20
VALUES_MAX = 1 << 24  # of one column, or of one level of a nested one


def read_arrow(value: bytes) -> pa.Table | str:
    """The table in a message, or why there is none."""
    try:
        with pa.ipc.open_stream(value) as reader:
            batches, rows = [], 0
            for batch in reader:
                rows += batch.num_rows
                if rows > ROWS_MAX:
                    return f"too many rows in an Arrow IPC stream: expected at most {ROWS_MAX:,}"
                if any(length > VALUES_MAX for column in batch.columns for length in _lengths(column)):
                    return f"too many values in an Arrow IPC stream: expected at most {VALUES_MAX:,} in a column"
                batches.append(batch)
            table = pa.Table.from_batches(batches, reader.schema)
        table.validate(full=True)  # offsets that point outside would crash the process when they are followed
    except Exception as error:  # foreign bytes fail in any way they like
        return f"not an Arrow IPC stream: {' '.join(str(error).split())[:200]}"
    return table


def _lengths(array: pa.Array) -> Iterator[int]:
    """How long an array and all arrays inside it are; nothing in them is looked at."""
    yield len(array)
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from _lengths(array.storage)
    elif pa.types.is_dictionary(kind):
        yield from _lengths(array.dictionary)
    elif pa.types.is_struct(kind) or pa.types.is_union(kind):
        for k in range(kind.num_fields):
            yield from _lengths(array.field(k))
    elif pa.types.is_map(kind):
        yield from _lengths(array.keys)
        yield from _lengths(array.items)
    elif hasattr(array, "values"):  # lists of all kinds, run ends
        yield from _lengths(array.values)
