"""Kafka messages that are Arrow IPC streams: the table in one, or why it can't be taken."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.operators.parser.arrow.arrays import is_text, valid
from freshet.operators.parser.arrow.bounds import Bounds, PastBoundError, messages_of_stream

# How an Arrow IPC stream begins (the mark of an encapsulated message), and no JSON.
ARROW_STREAM = b"\xff\xff\xff\xff"
# Columns of nulls, run ends and empty lists take no bytes, however many they are: without a bound a message of 300
# bytes could ask for more memory than there is.
ROWS_MAX = 1 << 20
VALUES_MAX = 1 << 24  # of one column, or of one level of a nested one
# What a stream may become: by decompression, and by rows that share the texts of a dictionary.
BYTES_MAX = 64 << 20
_VIEWS = (pa.string_view(), pa.binary_view())


def read_arrow(value: bytes) -> pa.Table | str:
    """The table in a message, or why there is none."""
    try:
        bounds = Bounds(ROWS_MAX, VALUES_MAX, BYTES_MAX)
        for message in messages_of_stream(value):
            bounds.add(message)
        with pa.ipc.open_stream(value) as reader:
            table = reader.read_all()  # no array in it is longer than its bounds allowed
        table.validate(full=True)  # offsets that point outside would crash the process when they are followed
        _refuse_shared(table)
    except PastBoundError as error:
        return str(error)
    except Exception as error:  # foreign bytes fail in any way they like
        return f"not an Arrow IPC stream: {' '.join(str(error).split())[:200]}"
    return table


def _lengths(array: pa.Array) -> np.ndarray:
    """(n,) int64 bytes of each text, 0 where it is null."""
    if array.type not in _VIEWS:
        return pc.binary_length(array).fill_null(0).to_numpy().astype(np.int64)
    views = array.buffers()[1]  # each begins with its length
    lengths = np.frombuffer(views or b"", np.int32)[::4].astype(np.int64)
    return lengths[array.offset : array.offset + len(array)] * valid(array)


def _refuse_shared(table: pa.Table) -> None:
    """Check that rows of dictionaries and views can be expanded: each may be a large value that is stored once.

    Raises:
        PastBoundError: that would take too much memory.
    """
    size = 0
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if column.type in _VIEWS:
            size += sum(int(_lengths(chunk).sum()) for chunk in column.chunks)
        if not pa.types.is_dictionary(column.type):
            continue
        kind = column.type.value_type
        if pa.types.is_nested(kind):
            msg = f"column {name[:80]!r} of an Arrow IPC stream: expected plain values, got a dictionary of {kind}"
            raise PastBoundError(msg[:200])
        is_counted = kind in _VIEWS or is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        for chunk in column.chunks if is_counted else ():
            lengths = _lengths(chunk.dictionary)
            size += int(lengths[chunk.indices.drop_null().to_numpy()].sum()) if len(lengths) else 0
    if size > BYTES_MAX:
        most = f"{BYTES_MAX >> 20:,} MiB of texts by dictionaries and views"
        msg = f"too much in an Arrow IPC stream: expected at most {most}"
        raise PastBoundError(msg)
