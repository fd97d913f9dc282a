"""Advice on columns of types that people's tables have and no field of an event: UUIDs, structs of numbers."""

from __future__ import annotations

from collections.abc import Collection

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
