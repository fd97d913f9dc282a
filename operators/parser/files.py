"""Files of events: how they are cut into chunks, always the same ones, and the bytes or rows of a chunk.

Files of lines may be compressed: places in them are those of the decompressed bytes.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from freshet.operators.parser.event_files import EventFile, EventFileError, list_files
from freshet.operators.parser.formats import JSONL, TABLES, TITLES, compression_of
from freshet.operators.parser.rules import FIELDS

WINDOW_BYTES = 4 << 20  # of a file, searched for line ends at a time


def line_ends(path: str) -> Iterator[np.ndarray]:
    """Offsets of the bytes that follow each line, by windows of the file; at last an empty array.

    Raises:
        OSError, pa.ArrowException: the file can't be read, or was cut off.
    """
    size = last = 0
    with closing(_open(path)) as stream:
        while data := stream.read(WINDOW_BYTES):
            ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + (size + 1)
            size += len(data)
            if len(ends):
                last = int(ends[-1])
                yield ends
    if last < size:
        yield np.array([size])
    yield np.empty(0, np.int64)


class LineReader:
    """Reads bytes of one file after another; of a compressed one, it costs least to go on where the last ones ended."""

    def __init__(self) -> None:
        self._path = ""
        self._at = 0  # in the stream, once it is open
        self._stream: Any = None

    def read(self, path: str, begin: int, end: int) -> bytes:
        """The bytes from `begin` to `end`; fewer where the file ends before.

        Raises:
            OSError, pa.ArrowException: as `line_ends`.
        """
        if self._stream is None or path != self._path or begin < self._at:
            self.close()
            self._stream, self._path, self._at = _open(path), path, 0
        if compression_of(path) is None:
            self._stream.seek(begin)
            self._at = begin
        while self._at < begin and self._take(min(begin - self._at, WINDOW_BYTES)):
            pass
        pieces = []
        while self._at < end and (piece := self._take(end - self._at)):
            pieces.append(piece)
        return b"".join(pieces)

    def _take(self, size: int) -> bytes:
        data: bytes = self._stream.read(size)
        self._at += len(data)
        return data

    def close(self) -> None:
        """Close the file that is open."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None


class _Zstd:
    """A stream that zstd decompresses; for a window past its bound it says what to do."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        """At most this many bytes.

        Raises: OSError, pa.ArrowException.
        """
        try:
            data: bytes = self._stream.read(size)
        except OSError as error:
            if "too much memory" not in str(error):
                raise
            msg = (
                "its window is longer than the 128 MiB (2^27 bytes) that are taken (zstd --long=28 to 31); compress it "
                "again with --long=27 or less: `zstd -dc --long=31 FILE | zstd -o OTHER.jsonl.zst`"
            )
            raise OSError(msg) from error
        return data

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class _Gzip(gzip.GzipFile):
    """Members of gzip one after another, with zeros behind them as on tapes, which Arrow's reader refuses."""

    def read(self, size: int | None = -1) -> bytes:
        """At most this many bytes.

        Raises: OSError.
        """
        try:
            return super().read(size)
        except gzip.BadGzipFile as error:
            msg = f"behind a compressed part stand bytes that are none: {error}; cut them off"
            raise OSError(msg if "Not a gzipped file" in str(error) else str(error)) from error
        except (EOFError, zlib.error) as error:
            raise OSError(str(error)) from error


def _open(path: str) -> Any:
    kind = compression_of(path)
    if kind == "gzip":
        return _Gzip(path)
    file = open(path, "rb")  # closed with the stream
    return file if kind is None else _Zstd(pa.CompressedInputStream(pa.PythonFile(file), kind))


CHUNK_LINES = 8000  # at most, in lines or rows: whole blocks of epochs of 1,000, 2,000, ... events,
CHUNK_BYTES = 1 << 20  # and in bytes, unless one line is longer,
CHUNK_TABLE_BYTES = 2 << 20  # or (by the file's mean) of a table
CHUNK_ROWS_MIN = 64  # rows are cut no finer than this, however wide they are


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines or rows `first` to `first + count` of a file (bytes `begin` to `end`, of JSON Lines)."""

    path: str
    name: str
    source: int
    format: str
    first: int
    count: int
    begin: int = 0
    end: int = 0

    def encode(self) -> bytes:
        """The chunk as JSON, to travel through the engine."""
        return orjson.dumps(asdict(self))

    @staticmethod
    def decode(data: bytes) -> Chunk:
        """The inverse of `encode`."""
        return Chunk(**orjson.loads(data))


def plan_chunks(paths: Sequence[str]) -> list[Chunk]:
    """All chunks of the files that the paths name, in reading order; the same files give the same chunks.

    Raises:
        EventFileError: a file that cannot be read or is not of the format that its suffix says.
    """
    return [chunk for file in list_files(paths) for chunk in plan_file(file)]


def plan_file(file: EventFile) -> list[Chunk]:
    """The chunks of one file; none for a file without lines or rows.

    Raises:
        EventFileError: as `plan_chunks`.
    """
    try:
        if file.format == JSONL:
            return list(_jsonl_chunks(file))
        rows, size = TABLES[file.format].reader().size(file.path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file.name, file.format, error) from error
    step = CHUNK_LINES
    if rows:
        step = min(CHUNK_LINES, max(CHUNK_ROWS_MIN, CHUNK_TABLE_BYTES * rows // max(size, 1)))
    return [
        Chunk(file.path, file.name, file.source, file.format, first, min(step, rows - first))
        for first in range(0, rows, step)
    ]


def _jsonl_chunks(file: EventFile) -> Iterator[Chunk]:
    begin = first = 0
    ends = np.empty(0, np.int64)  # of lines that are in no chunk yet
    for found in line_ends(file.path):
        ends = np.concatenate([ends, found]) if len(ends) else found
        last = not len(found)
        while len(ends):
            fitting = int(np.searchsorted(ends, begin + CHUNK_BYTES, "right"))
            if fitting == len(ends) < CHUNK_LINES and not last:
                break  # the next line may fit as well
            count = min(max(fitting, 1), CHUNK_LINES)
            end = int(ends[count - 1])
            yield Chunk(file.path, file.name, file.source, JSONL, first, count, begin, end)
            begin, first, ends = end, first + count, ends[count:]


def _unreadable(name: str, kind: str, error: Exception) -> EventFileError:
    return EventFileError(f"{name}: cannot be read as {TITLES[kind]}: {error}")


class ChunkReader:
    """Reads chunks; in order costs least, since each table file keeps the place where its last chunk ended.

    Args:
        every_column: also columns that are no event fields (for `events_map`).
        fields: those of events.
    """

    def __init__(self, every_column: bool = False, fields: Collection[str] = FIELDS) -> None:
        self._every_column, self._fields = every_column, fields
        self._path = ""
        self._row = 0
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None
        self._lines = LineReader()
        self._whole: ChunkReader | None = None  # reads what this one leaves out

    def read(self, chunk: Chunk) -> bytes | pa.RecordBatch:
        """The bytes of a chunk of JSON Lines, or the rows of a table.

        Raises:
            EventFileError: the file cannot be read, or is shorter than when it was planned.
        """
        try:
            if chunk.format == JSONL:
                return self._read_lines(chunk)
            if (chunk.path, chunk.first) != (self._path, self._row):
                self._open(chunk)
            return self._take(chunk)
        except (OSError, pa.ArrowException) as error:
            self._path = ""
            raise _unreadable(chunk.name, chunk.format, error) from error

    def whole(self, chunk: Chunk) -> pa.RecordBatch:
        """The rows of a table with all columns that can be read.

        Raises:
            EventFileError: as `read`.
        """
        if TABLES[chunk.format].reader().skips_columns and not self._every_column:
            self._whole = self._whole or ChunkReader(every_column=True)
            try:
                return self._whole.rows(chunk)
            except EventFileError:  # a column that events don't have
                self._whole = None
        return ChunkReader(self._every_column, self._fields).rows(chunk)

    def rows(self, chunk: Chunk) -> pa.RecordBatch:
        """The rows of a table.

        Raises:
            EventFileError: as `read`.
        """
        data = self.read(chunk)
        assert isinstance(data, pa.RecordBatch)
        return data

    def _read_lines(self, chunk: Chunk) -> bytes:
        data = self._lines.read(chunk.path, chunk.begin, chunk.end)
        if len(data) < chunk.end - chunk.begin:
            msg = f"{chunk.name}: expected {chunk.end} bytes, got {chunk.begin + len(data)}: the file has changed"
            raise EventFileError(msg)
        return data

    def _open(self, chunk: Chunk) -> None:
        self._path, self._row, self._rest = chunk.path, 0, None
        wanted = None if self._every_column else self._fields
        self._batches, self._row = TABLES[chunk.format].reader().batches(chunk.path, chunk.first, wanted)
        while self._row < chunk.first:
            self._next(chunk, chunk.first - self._row)

    def _next(self, chunk: Chunk, rows: int) -> pa.RecordBatch:
        """Read at most this many rows after the last ones."""
        batch = self._rest if self._rest is not None else next(self._batches, None)
        if batch is None:
            self._path = ""
            msg = f"{chunk.name}: expected {chunk.first + chunk.count} rows, got {self._row}: the file has changed"
            raise EventFileError(msg)
        self._rest = batch.slice(rows) if batch.num_rows > rows else None
        taken = batch.slice(0, rows)
        self._row += taken.num_rows
        return taken

    def _take(self, chunk: Chunk) -> pa.RecordBatch:
        batches = [self._next(chunk, chunk.count)]
        end = chunk.first + chunk.count
        while self._row < end:
            batches.append(self._next(chunk, end - self._row))
        if len(batches) == 1:
            return batches[0]
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def plan_from(file: EventFile, first: int) -> list[Chunk]:
    """The chunks of a file from line or row `first` (from 0) on; none where it has no more.

    Raises:
        EventFileError: the file can't be read, or has fewer records than that.
    """
    chunks = plan_file(file)
    records = records_of(chunks)
    if first > records:
        msg = f"{file.name}: has {records:,} records, but {first:,} are recorded as read: it is another file"
        raise EventFileError(msg)
    left = [chunk for chunk in chunks if chunk.first + chunk.count > first]
    return [_from(left[0], first - left[0].first), *left[1:]] if left else []


def records_of(chunks: Sequence[Chunk]) -> int:
    """The number of a file's records, from its chunks."""
    return chunks[-1].first + chunks[-1].count if chunks else 0


def _from(chunk: Chunk, skipped: int) -> Chunk:
    if not skipped:
        return chunk
    begin = chunk.begin
    if chunk.format == JSONL:
        data = ChunkReader().read(chunk)
        assert isinstance(data, bytes)
        begin += int(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))[skipped - 1]) + 1
    return replace(chunk, first=chunk.first + skipped, count=chunk.count - skipped, begin=begin)
