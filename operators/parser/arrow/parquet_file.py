"""Opens Parquet files, also those whose lists of a fixed size have nulls, which pyarrow 16 can't read as such."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC = b"PAR1"
# An entry of the footer's metadata: the Arrow schema, by which pyarrow makes lists of a fixed size of Parquet's lists,
# and fails at a null. Under another name nobody looks for it: they stay lists, of one length each.
_KEY, _NO_KEY = b"\x18\x0cARROW:schema", b"\x18\x0cARROW_schema"


def open_parquet(path: Path | str, **options: Any) -> pq.ParquetFile:
    """Open a file; lists of a fixed size become lists. Pages that have checksums are verified.

    Raises:
        OSError, pa.ArrowException: it can't be read as Parquet.
    """
    options = {"page_checksum_verification": True, **options}
    file = pq.ParquetFile(path, **options)
    if not any(_has_fixed_lists(field.type) for field in file.schema_arrow):
        return file
    file.close()
    return pq.ParquetFile(path, metadata=_without_arrow_schema(path), **options)


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
