"""Columns of Arrow tables, each as one array of a type that Arrow can compute with."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

_SPARK_VECTOR = {"type", "size", "indices", "values"}


def advice_on(kind: pa.DataType) -> str:
    """Return what to do about such a column, after a semicolon; empty where nothing is known."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_struct(kind):
        return advice_on_struct([kind.field(k).name for k in range(kind.num_fields)])
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return "; UUIDs are written as text: CAST(... AS VARCHAR) in SQL, str(...) in Python"
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "; bytes are written as text"
    return ""


def advice_on_struct(names: Collection[str]) -> str:
    """Return what to do about structs with these fields in the place of lists of numbers."""
    if set(names) == _SPARK_VECTOR:
        return "; a vector of Spark ML is written as a list by pyspark.ml.functions.vector_to_array"
    some = ", ".join([*names][:3]) + (", ..." if len(names) > 3 else "")
    return f"; a struct is written as a list of its fields: array({some}) in SQL"


def known_columns(table: pa.Table | pa.RecordBatch, fields: Collection[str]) -> dict[str, pa.Array]:
    """The fields of events, each as one array; columns without any value are left out."""
    columns: dict[str, pa.Array] = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if name not in fields or name in columns:
            continue
        array = usual_array(one_array(column))
        if array.null_count < len(array):
            columns[name] = array
    return columns


def all_columns(table: pa.Table | pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns of a table, each as one array; of equal names the last."""
    return {
        name: usual_array(one_array(column)) for name, column in zip(table.schema.names, table.columns, strict=True)
    }


def usual_array(array: pa.Array) -> pa.Array:
    """Return the same values in a form that Arrow computes with, without extensions, views, float16 and the like."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type == pa.string_view():  # polars writes them
        try:
            return pa.array(array.to_pylist(), pa.large_string())
        except UnicodeDecodeError:
            return array
    if pa.types.is_dictionary(array.type):
        array = pa.DictionaryArray.from_arrays(array.indices, usual_array(array.dictionary))
        array = array.dictionary_decode() if is_number(array.type.value_type) else array
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column of a batch or of a table as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def valid(array: pa.Array) -> np.ndarray:
    """Return where an array is not null."""
    if not array.null_count:
        return np.ones(len(array), bool)
    return array.is_valid().to_numpy(zero_copy_only=False)


def is_list(kind: pa.DataType) -> bool:
    """Lists of any form."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def is_text(kind: pa.DataType) -> bool:
    """Strings, plain or as a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_number(kind: pa.DataType) -> bool:
    """Integers, floats and decimals."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
