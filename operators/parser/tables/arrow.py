"""Arrow IPC files and streams of events, as views of the mapped file."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator

import pyarrow as pa

from freshet.operators.parser.arrow.bounds import Bounds, messages_of_file, messages_of_stream

BATCH_BYTES = 2 << 30  # of a compressed batch, which comes into memory whole


class ArrowFiles:
    """The `TableFiles` of Arrow IPC files."""

    skips_columns = False

    def schema(self, path: str) -> pa.Schema:
        """The columns of a file."""
        with pa.memory_map(path) as source:
            return (pa.ipc.open_file if _is_file(source) else pa.ipc.open_stream)(source).schema

    def size(self, path: str) -> tuple[int, int]:
        """Rows and bytes of a file."""
        rows = size = 0
        for batch in _batches(path):
            rows += batch.num_rows
            size += _bytes_of(batch)
        return rows, size

    def batches(self, path: str, first: int, wanted: Collection[str] | None) -> tuple[Iterator[pa.RecordBatch], int]:
        """All batches with all columns, from row 0 on."""
        del first, wanted
        return _batches(path), 0


def _is_file(source: pa.MemoryMappedFile) -> bool:
    """Return whether it is a file of IPC, else it is a stream."""
    is_file: bool = source.read(6) == b"ARROW1"
    source.seek(0)
    return is_file


def _batches(path: str) -> Iterator[pa.RecordBatch]:
    """The batches of a file.

    Raises:
        pa.ArrowInvalid: a batch that announces more than is taken, before anything of the file is decompressed.
    """
    source = pa.memory_map(path)
    is_file = _is_file(source)
    bounds = Bounds(2**63, 2**63, BATCH_BYTES, by_batch=True)
    try:
        for message in messages_of_file(source.read_buffer()) if is_file else messages_of_stream(source):
            bounds.add(message)
    except (ValueError, struct.error) as error:
        raise pa.ArrowInvalid(str(error)) from error
    source.seek(0)
    if is_file:
        reader = pa.ipc.open_file(source)
        for k in range(reader.num_record_batches):
            yield reader.get_batch(k)
    else:
        yield from pa.ipc.open_stream(source)


def _bytes_of(batch: pa.RecordBatch) -> int:
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:  # views of text
        return sum(one.size for column in batch.columns for one in column.buffers() if one is not None)
