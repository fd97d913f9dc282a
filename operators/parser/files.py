"""Files of events: which there are, how they are cut into chunks, and the bytes or rows of a chunk."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from gnn.errors import InputError
from operators.parser.arrow_bounds import Bounds, messages_of_file, messages_of_stream
from operators.parser.formats import ARROW, JSONL, PARQUET, SUFFIXES, format_of
from operators.parser.rules import FIELDS

CHUNK_LINES = 8000  # at most, in lines or rows: whole blocks of epochs of 1,000, 2,000, ... events,
CHUNK_BYTES = 1 << 20  # and in bytes, unless one line is longer,
CHUNK_TABLE_BYTES = 2 << 20  # or (by the file's mean) of a table
IPC_BATCH_BYTES = 2 << 30  # of a compressed batch of an Arrow file, which comes into memory whole
CHUNK_ROWS_MIN = 64  # rows are cut no finer than this, however wide they are

_WINDOW = 4 << 20  # bytes of a file searched for line ends at a time
_FORMAT_NAMES = {PARQUET: "Parquet", ARROW: "Arrow IPC"}
_SOURCES_MAX = 32_767  # the source of an event is an int16


class EventFileError(InputError):
    """A file or folder of events cannot be read; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class EventFile:
    """One file of events; `name` is the path as the user wrote it, `source` its place in the order of reading."""

    path: str
    name: str
    source: int
    format: str


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


def list_files(paths: Sequence[str]) -> list[EventFile]:
    """The files that the paths name, in order; those of a folder by name, without hidden and unfinished ones.

    Raises:
        EventFileError: a path that is not there, a suffix that is no format, a folder in a folder, an empty folder.
    """
    found: list[EventFile] = []
    for given in paths:
        path = Path(given)
        if path.is_dir():
            inside = sorted(entry for entry in path.iterdir() if entry.name[0] not in "._")
            if not inside:
                msg = f"{given}: the folder has no event files"
                raise EventFileError(msg)
            found += [
                _event_file(entry, str(Path(given) / entry.name), len(found) + k) for k, entry in enumerate(inside)
            ]
        else:
            found.append(_event_file(path, given, len(found)))
    if len(found) > _SOURCES_MAX:
        msg = f"at most {_SOURCES_MAX} event files are taken, got {len(found)}"
        raise EventFileError(msg)
    return found


def _event_file(path: Path, name: str, source: int) -> EventFile:
    if not path.exists():
        msg = f"{name}: no such file or folder"
        raise EventFileError(msg)
    if path.is_dir():
        msg = f"{name}: a folder within a folder of events; name it on its own"
        raise EventFileError(msg)
    kind = format_of(path)
    if kind is None:
        msg = f"{name}: expected a name that ends in {', '.join(SUFFIXES)}, got {path.suffix or 'none of them'!r}"
        raise EventFileError(msg)
    return EventFile(str(path.resolve()), name, source, kind)


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
    if file.format == JSONL:
        return list(_jsonl_chunks(file))
    rows, size = _table_size(file)
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
    for found in _line_ends(file):
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


def _line_ends(file: EventFile) -> Iterator[np.ndarray]:
    """Offsets of the bytes that follow each line, by windows of the file; at last an empty array."""
    try:
        size = Path(file.path).stat().st_size
        with open(file.path, "rb") as stream:
            last = 0
            for begin in range(0, size, _WINDOW):
                window = np.frombuffer(stream.read(min(_WINDOW, size - begin)), np.uint8)
                ends = np.flatnonzero(window == ord("\n")) + (begin + 1)
                if len(ends):
                    last = int(ends[-1])
                    yield ends
            if last < size:
                yield np.array([size])
    except OSError as error:
        msg = f"{file.name}: cannot be read: {error.strerror or error}"
        raise EventFileError(msg) from error
    yield np.empty(0, np.int64)


def _table_size(file: EventFile) -> tuple[int, int]:
    """Rows and bytes of a table file."""
    try:
        if file.format == PARQUET:
            metadata = pq.read_metadata(file.path)
            groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
            return metadata.num_rows, sum(group.total_byte_size for group in groups)
        rows = size = 0
        for batch in _ipc_batches(file.path):
            rows += batch.num_rows
            size += batch.nbytes
        return rows, size
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file.name, file.format, error) from error


def _unreadable(name: str, kind: str, error: Exception) -> EventFileError:
    return EventFileError(f"{name}: cannot be read as {_FORMAT_NAMES[kind]}: {error}")


def _ipc_batches(path: str) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow IPC file or stream, as views of the mapped file.

    Raises:
        pa.ArrowInvalid: a batch that announces more than is taken, before anything of the file is decompressed.
    """
    source = pa.memory_map(path)
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    bounds = Bounds(2**63, 2**63, IPC_BATCH_BYTES, by_batch=True)
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


def _parquet_batches(path: str, first: int, every_column: bool) -> tuple[Iterator[pa.RecordBatch], int]:
    """Batches from the row group that row `first` is in, and the row that they begin at."""
    file = pq.ParquetFile(path, memory_map=True)
    sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
    starts = np.cumsum([0, *sizes])
    group = int(np.searchsorted(starts, first, "right")) - 1
    names = file.schema_arrow.names
    columns = names if every_column else [name for name in FIELDS if name in names]
    groups = list(range(group, len(sizes)))
    # one thread: the job has its own, and every process of it reads
    return file.iter_batches(CHUNK_LINES, row_groups=groups, columns=columns, use_threads=False), int(starts[group])


class ChunkReader:
    """Reads chunks; in order costs least, since each table file keeps the place where its last chunk ended.

    Args:
        every_column: also columns that are no event fields (for `events_map`).
    """

    def __init__(self, every_column: bool = False) -> None:
        self._every_column = every_column
        self._path = ""
        self._row = 0
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None

    def read(self, chunk: Chunk) -> bytes | pa.RecordBatch:
        """The bytes of a chunk of JSON Lines, or the rows of a table.

        Raises:
            EventFileError: the file cannot be read, or is shorter than when it was planned.
        """
        if chunk.format == JSONL:
            return _read_bytes(chunk)
        try:
            if (chunk.path, chunk.first) != (self._path, self._row):
                self._open(chunk)
            return self._take(chunk)
        except (OSError, pa.ArrowException) as error:
            self._path = ""
            raise _unreadable(chunk.name, chunk.format, error) from error

    def _open(self, chunk: Chunk) -> None:
        self._path, self._row, self._rest = chunk.path, 0, None
        if chunk.format == PARQUET:
            self._batches, self._row = _parquet_batches(chunk.path, chunk.first, self._every_column)
        else:
            self._batches = _ipc_batches(chunk.path)
        while self._row < chunk.first:
            self._next(chunk, chunk.first - self._row)

    def _next(self, chunk: Chunk, rows: int) -> pa.RecordBatch:
        """At most that many rows from where the last ones ended."""
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


def _read_bytes(chunk: Chunk) -> bytes:
    try:
        with open(chunk.path, "rb") as stream:
            stream.seek(chunk.begin)
            data = stream.read(chunk.end - chunk.begin)
    except OSError as error:
        msg = f"{chunk.name}: cannot be read: {error.strerror or error}"
        raise EventFileError(msg) from error
    if len(data) < chunk.end - chunk.begin:
        msg = f"{chunk.name}: expected {chunk.end} bytes, got {chunk.begin + len(data)}: the file has changed"
        raise EventFileError(msg)
    return data
