"""Files of events: how they are cut into chunks, always the same ones, and the bytes or rows of a chunk.

Files of lines may be compressed: places in them are those of the decompressed bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import orjson
import pyarrow as pa

from freshet.operators.parser.event_files import EventFile, EventFileError, list_files
from freshet.operators.parser.formats import JSONL, TABLES, TEXTS, TITLES
from freshet.operators.parser.partitions import as_integer, columns_of
from freshet.operators.parser.rules import FIELDS, KIND_FIELDS, FieldKind
from freshet.operators.parser.streams import LineReader, line_ends
from freshet.operators.parser.text_tables.header import TextHeader, read_header
from freshet.operators.parser.text_tables.rows import TextRows
from freshet.operators.parser.text_tables.scan import row_ends

CHUNK_LINES = 8000  # at most, in lines or rows: whole blocks of epochs of 1,000, 2,000, ... events,
CHUNK_BYTES = 1 << 20  # and in bytes, unless one line is longer,
CHUNK_TABLE_BYTES = 2 << 20  # or (by the file's mean) of a table
CHUNK_ROWS_MIN = 64  # rows are cut no finer than this, however wide they are


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines or rows `first` to `first + count` of a file (bytes `begin` to `end`, of lines and rows of text).

    `levels`: folders of the name that are `key=value`, of which each key is a column.
    """

    path: str
    name: str
    source: int
    format: str
    first: int
    count: int
    begin: int = 0
    end: int = 0
    levels: int = 0

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
            return list(_chunks_of(file, line_ends(file.path)))
        schema = schema_of(file)
        if both := [name for name in columns_of(file.name, file.levels) if name in schema.names]:
            msg = f"{file.name}: {both[0]} is a column of the file and in its path; leave it out of one of them"
            raise EventFileError(msg)
        if file.format in TEXTS:
            return list(_chunks_of(file, row_ends(file.path, file.name, TEXTS[file.format].delimiter)))
        rows, size = TABLES[file.format].reader().size(file.path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file.name, file.format, error) from error
    step = CHUNK_LINES
    if rows:
        step = min(CHUNK_LINES, max(CHUNK_ROWS_MIN, CHUNK_TABLE_BYTES * rows // max(size, 1)))
    return [
        Chunk(file.path, file.name, file.source, file.format, first, min(step, rows - first), levels=file.levels)
        for first in range(0, rows, step)
    ]


def schema_of(file: EventFile) -> pa.Schema:
    """Return the columns of a file, without those that its folders name; fields of rows of text are text.

    Raises: EventFileError for a file that can't be read.
    """
    try:
        if file.format in TEXTS:
            names = read_header(file.path, file.name, file.format).names
            schema = pa.schema([(name, pa.string()) for name in names if name])
        else:
            schema = TABLES[file.format].reader().schema(file.path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file.name, file.format, error) from error
    return schema


def _chunks_of(file: EventFile, every: Iterator[np.ndarray]) -> Iterator[Chunk]:
    """Cut a file where its lines or rows end; behind the first of `every`, where there is a header."""
    begin = first = 0
    ends = np.empty(0, np.int64)  # of lines that are in no chunk yet
    if file.format in TEXTS:
        begin = int(next(every)[0])
    for found in every:
        ends = np.concatenate([ends, found]) if len(ends) else found
        last = not len(found)
        while len(ends):
            fitting = int(np.searchsorted(ends, begin + CHUNK_BYTES, "right"))
            if fitting == len(ends) < CHUNK_LINES and not last:
                break  # the next line may fit as well
            count = min(max(fitting, 1), CHUNK_LINES)
            end = int(ends[count - 1])
            yield Chunk(file.path, file.name, file.source, file.format, first, count, begin, end, file.levels)
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
        self._header: tuple[str, TextHeader] | None = None  # of the newest file of rows of text
        self._whole: ChunkReader | None = None  # reads what this one leaves out

    def read(self, chunk: Chunk) -> bytes | pa.RecordBatch | TextRows:
        """The bytes of a chunk of JSON Lines, or the rows of a table or of text.

        Raises:
            EventFileError: the file cannot be read, or is shorter than when it was planned.
        """
        try:
            if chunk.format == JSONL:
                return self._read_lines(chunk)
            if chunk.format in TEXTS:
                return self._read_text(chunk)
            if (chunk.path, chunk.first) != (self._path, self._row):
                self._open(chunk)
            return _with_constants(self._take(chunk), columns_of(chunk.name, chunk.levels))
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

    def _read_text(self, chunk: Chunk) -> TextRows:
        if self._header is None or self._header[0] != chunk.path:
            self._header = chunk.path, read_header(chunk.path, chunk.name, chunk.format)
        names, delimiter = self._header[1].names, TEXTS[chunk.format].delimiter
        rows = TextRows(names, delimiter, self._read_lines(chunk), columns_of(chunk.name, chunk.levels))
        if len(rows) != chunk.count:
            msg = f"{chunk.name}: expected {chunk.count} rows from row {chunk.first} on: the file has changed"
            raise EventFileError(msg)
        return rows

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


def _with_constants(batch: pa.RecordBatch, constants: Mapping[str, str | None]) -> pa.RecordBatch:
    """Return a batch with more columns, of one value each: text, or an integer where it writes one."""
    for name, value in constants.items():
        read = (
            value if value is None or FIELDS.get(name) is FieldKind.TEXT or name in KIND_FIELDS else as_integer(value)
        )
        kind = pa.int64() if isinstance(read, int) else pa.string()
        batch = batch.append_column(name, pa.array([read] * batch.num_rows, kind))
    return batch


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
    data = None if chunk.format in TABLES else ChunkReader().read(chunk)
    if isinstance(data, TextRows):
        begin += int(data.ends[skipped - 1])
    elif isinstance(data, bytes):
        begin += int(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))[skipped - 1]) + 1
    return replace(chunk, first=chunk.first + skipped, count=chunk.count - skipped, begin=begin)
