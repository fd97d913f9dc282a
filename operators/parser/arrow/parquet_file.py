"""Opens Parquet files, also those whose lists of a fixed size have nulls, which pyarrow can't read as such."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC = b"PAR1"
# An entry of the footer's metadata: the Arrow schema, by which pyarrow makes lists of a fixed size of Parquet's lists,
# and fails at a null. Under another name nobody looks for it: they stay lists, of one length each.
_KEY, _NO_KEY = b"\x18\x0cARROW:schema", b"\x18\x0cARROW_schema"


_DUCKDB = "DuckDB"


def open_parquet(path: Path | str, **options: Any) -> pq.ParquetFile | ListsOfDuckDB:
    """Open a file; lists of a fixed size become lists. Pages that have checksums are verified.

    Raises:
        OSError, pa.ArrowException: it can't be read as Parquet.
    """
    options = {"page_checksum_verification": True, **options}
    file = pq.ParquetFile(path, **options)
    if (file.metadata.created_by or "").startswith(_DUCKDB) and any(map(pa.types.is_nested, file.schema_arrow.types)):
        return ListsOfDuckDB(path, file)
    if not any(_has_fixed_lists(field.type) for field in file.schema_arrow):
        return file
    file.close()
    return pq.ParquetFile(path, metadata=_without_arrow_schema(path), **options)


class ListsOfDuckDB:
    """A file of DuckDB with lists: for a null in an array of N it writes N levels, which pyarrow refuses.

    It has the part of `pq.ParquetFile` that is used here. Polars reads the rows.
    """

    def __init__(self, path: Path | str, file: pq.ParquetFile) -> None:
        """`file`: the same one, of which only the metadata is read."""
        self._path, self._file = path, file
        self.metadata, self.schema_arrow = file.metadata, file.schema_arrow

    def iter_batches(
        self,
        batch_size: int,
        row_groups: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some row groups, which stand together; one group at a time is in memory.

        Raises: OSError when it can't be read.
        """
        del use_threads  # polars has its own
        import polars as pl

        sizes = [self.metadata.row_group(k).num_rows for k in range(self.metadata.num_row_groups)]
        names = self.schema_arrow.names if columns is None else list(columns)
        if not names:  # of no columns, polars has no rows
            yield from self._file.iter_batches(batch_size, row_groups=row_groups, columns=[])
            return
        for group in range(len(sizes)) if row_groups is None else row_groups:
            try:
                rows = pl.scan_parquet(self._path).select(names).slice(sum(sizes[:group]), sizes[group]).collect()
            except pl.exceptions.PolarsError as error:
                raise OSError(str(error)) from error
            yield from rows.to_arrow().to_batches(batch_size)

    def __enter__(self) -> ListsOfDuckDB:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _has_fixed_lists(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_fixed_size_list(kind):
        return True
    return bool(pa.types.is_nested(kind)) and any(_has_fixed_lists(kind.field(k).type) for k in range(kind.num_fields))


def _without_arrow_schema(path: Path | str) -> pq.FileMetaData:
    with open(path, "rb") as file:
        file.seek(-8, 2)
        size = file.read(4)
        length = struct.unpack("<I", size)[0]
        file.seek(-8 - length, 2)
        footer = file.read(length).replace(_KEY, _NO_KEY)
    return pq.read_metadata(pa.BufferReader(_MAGIC + footer + size + _MAGIC))
