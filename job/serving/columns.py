"""Ids and rows as Arrow columns, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from state.served.ids import Ids, Texts, frozen, slice_of

_DTYPES = {pa.int64(): np.int64, pa.float32(): np.float32}


def ids_of_column(column: pa.ChunkedArray | pa.Array) -> Ids:
    """The ids of an Arrow column of int64 or strings, without nulls."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of no chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return frozen(values_of(array if array.type == pa.int64() else array.cast(pa.int64())))
    array = array if pa.types.is_string(array.type) else array.cast(pa.string())
    _, offsets, data = array.buffers()
    n = len(array)
    if n == 0 or offsets is None:
        return Texts.encode([])
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + n + 1]
    return Texts.of(ends, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8))


def column_of_ids(ids: Ids) -> pa.Array:
    """The inverse, without a copy of the text."""
    if not isinstance(ids, Texts):
        return numbers(ids)
    offsets = pa.py_buffer(ids.offsets.astype(np.int32))
    return pa.StringArray.from_buffers(len(ids), offsets, pa.py_buffer(ids.data))


def vectors(rows: np.ndarray) -> pa.Array:
    """Rows as a column of lists of one length."""
    flat = numbers(np.asarray(rows, np.float32).reshape(-1))
    return pa.Array.from_buffers(pa.list_(pa.float32(), rows.shape[1]), len(rows), [None], children=[flat])


def values_of(column: pa.Array) -> np.ndarray:
    """The numbers of a column of int64 or float32 without nulls; `to_numpy` would load pandas as well."""
    dtype = _DTYPES[column.type]
    if not len(column):
        return np.empty(0, dtype)
    return np.frombuffer(column.buffers()[1], dtype)[column.offset : column.offset + len(column)]


def rows_of(column: pa.Array) -> np.ndarray:
    """The inverse of `vectors`."""
    return values_of(column.flatten()).reshape(-1, column.type.list_size)


def numbers(values: np.ndarray) -> pa.Array:
    """Numbers as a column, without a copy; `pa.array` would load pandas first, for a second, to look for its types."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def taken(ids: Ids, at: np.ndarray) -> Ids:
    """The ids at these places."""
    if not isinstance(ids, Texts):
        return frozen(ids[at])
    if len(at) == 0:
        return slice_of(ids, 0, 0)
    lengths = np.diff(ids.offsets)[at]
    offsets = np.zeros(len(at) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    starts = np.repeat(ids.offsets[:-1][at] - offsets[:-1], lengths)
    return Texts(frozen(offsets), frozen(ids.data[np.arange(int(offsets[-1])) + starts]))
