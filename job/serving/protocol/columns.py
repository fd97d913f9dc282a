"""Ids and rows as Arrow columns, and back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa

from freshet.state.served.ids import Ids, Texts, frozen, slice_of

# What a message holds. Clients in Go, Rust, C#, Java and JavaScript refuse messages past 4 MiB, with all that stands
# around the rows, unless otherwise set.
PIECE_BYTES = 3 << 20
_TEXT_AT_ONCE = 1 << 20
TEXT_BYTES = 1 << 30  # of one column of string ids: its offsets have 32 bits
# Types are compared and kept: looking one up by its hash, or making it, takes longer than a column of a few rows.
_INT64, _FLOAT32 = pa.int64(), pa.float32()
_TYPES = {np.dtype(np.int64): _INT64, np.dtype(np.float32): _FLOAT32}


def whole(batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Return what another process has sent, once its lengths and offsets fit its buffers: Arrow's reader asks neither.

    Raises: pa.ArrowInvalid.
    """
    batch.validate(full=True)
    return batch


def ids_of_column(column: pa.ChunkedArray | pa.Array) -> Ids:
    """The ids of an Arrow column of int64 or strings, without nulls."""
    if column.type == _INT64 and isinstance(column, pa.Array):
        return values_of(column)
    array = column
    if isinstance(column, pa.ChunkedArray):
        several = column.num_chunks > 1 and pa.types.is_string(column.type)  # together past 32-bit offsets, perhaps
        array = (column.cast(pa.large_string()) if several else column).combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # of no chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return values_of(array if array.type == _INT64 else array.cast(_INT64))
    _, offsets, data = array.buffers()
    n = len(array)
    if n == 0 or offsets is None:
        return Texts.encode([])
    kind = np.int64 if pa.types.is_large_string(array.type) else np.int32
    ends = np.frombuffer(offsets, kind)[array.offset : array.offset + n + 1]
    return Texts.of(ends, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8))


def spans_of(ids: Ids) -> list[tuple[int, int]]:
    """Return the bounds of groups of ids with at most `TEXT_BYTES` of text each, the maximum of a column."""
    if not isinstance(ids, Texts) or ids.data.nbytes <= TEXT_BYTES:
        return [(0, len(ids))]
    ends = [0]
    while ends[-1] < len(ids):
        most = int(np.searchsorted(ids.offsets, ids.offsets[ends[-1]] + TEXT_BYTES, "right")) - 1
        ends.append(max(most, ends[-1] + 1))
    return list(pairwise(ends))


def column_of_ids(ids: Ids) -> pa.Array:
    """The inverse, of a span of ids (`spans_of`), without a copy of the text."""
    if not isinstance(ids, Texts):
        return numbers(ids)
    offsets = pa.py_buffer(ids.offsets.astype(np.int32))
    return pa.StringArray.from_buffers(len(ids), offsets, pa.py_buffer(ids.data))


def pieces_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in batches of at most `PIECE_BYTES`, in order and without a copy; a row that is larger stands alone."""
    left = [batch]
    while left:
        one = left.pop()
        parts = min(one.num_rows, -(-one.nbytes // PIECE_BYTES))
        if parts <= 1:
            yield one
        else:  # of texts a part may be too large again
            rows = -(-one.num_rows // parts)
            left += [one.slice(at, rows) for at in range(0, one.num_rows, rows)][::-1]


def vectors(rows: np.ndarray) -> pa.Array:
    """Rows as a column of lists of one length."""
    flat = numbers(np.asarray(rows, np.float32).reshape(-1))
    return pa.Array.from_buffers(_lists(rows.shape[1]), len(rows), [None], 0, children=[flat])


def row_columns(count: int, width: int) -> tuple[np.ndarray, np.ndarray, list[pa.Array]]:
    """Epochs and rows to fill, and the columns that they are; Arrow owns the memory.

    What numpy owns is let go under the interpreter's lock, for which a thread that has just sent it would have to wait.
    Shapes: (count,) int64; (count, width) float32
    """
    memory = pa.allocate_buffer(8 * count + 4 * count * width)
    own = np.frombuffer(memory, np.int64, count)
    rows = np.frombuffer(memory, np.float32, count * width, 8 * count).reshape(count, width)
    flat = pa.Array.from_buffers(_FLOAT32, count * width, [None, memory.slice(8 * count)], 0)
    lists = pa.Array.from_buffers(_lists(width), count, [None], 0, children=[flat])
    return own, rows, [pa.Array.from_buffers(_INT64, count, [None, memory], 0), lists]


@lru_cache(16)
def _lists(width: int) -> pa.DataType:
    return pa.list_(_FLOAT32, width)


def values_of(column: pa.Array) -> np.ndarray:
    """The numbers of a column of int64 or float32 without nulls, read-only; `to_numpy` would load pandas as well."""
    dtype = np.int64 if column.type == _INT64 else np.float32
    if not len(column):
        return frozen(np.empty(0, dtype))
    found = np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * column.type.byte_width)
    return frozen(found) if found.flags.writeable else found


def rows_of(column: pa.Array) -> np.ndarray:
    """The inverse of `vectors`."""
    return values_of(column.flatten()).reshape(-1, column.type.list_size)


def numbers(values: np.ndarray) -> pa.Array:
    """Numbers as a column, without a copy; `pa.array` would load pandas first, for a second, to look for its types."""
    if not values.flags.c_contiguous:
        values = np.ascontiguousarray(values)
    type_ = _TYPES.get(values.dtype) or pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)], 0)


def taken(ids: Ids, at: np.ndarray) -> Ids:
    """The ids at these places."""
    if not isinstance(ids, Texts):
        return frozen(ids[at])
    if len(at) == 0:
        return slice_of(ids, 0, 0)
    lengths = np.diff(ids.offsets)[at]
    offsets = np.zeros(len(at) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    begins, first = ids.offsets[:-1][at] - offsets[:-1], 0
    while first < len(at):  # a place takes eight times as much as the character there
        end = int(np.searchsorted(offsets, offsets[first] + _TEXT_AT_ONCE, "right")) - 1
        end = min(max(end, first + 1), len(at))
        places = np.arange(offsets[first], offsets[end]) + np.repeat(begins[first:end], lengths[first:end])
        data[offsets[first] : offsets[end]] = ids.data[places]
        first = end
    return Texts(frozen(offsets), frozen(data))
