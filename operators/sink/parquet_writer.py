"""Writes a table as Parquet, by polars: pyarrow takes 2.5 times as long for the levels of lists of floats."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa

# polars reads it once, when it is first imported: freed memory is kept, in huge pages where there are any, since pages
# fresh from the kernel cost more than what is written to them. What one file took serves the next.
os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always")

import polars as pl

ROW_GROUP_ROWS = 250_000
_STATISTICS = {"min": True, "max": True, "distinct_count": False, "null_count": False}


def write_parquet(table: pa.Table, sink: Any) -> None:
    """Write the table, uncompressed (compression costs more time than it saves), to a file object with `write`."""
    frame = pl.from_arrow(table, rechunk=False)
    frame.write_parquet(  # type: ignore[union-attr]  # a frame, of a table
        sink, compression="uncompressed", statistics=_STATISTICS, row_group_size=ROW_GROUP_ROWS
    )
