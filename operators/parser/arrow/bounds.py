"""Arrow IPC streams within bounds: decoded sizes, from metadata before anything is decoded, and tables of messages.

A few bytes of metadata can announce any number of rows (columns of nulls take none), and a few kilobytes of ZSTD any
number of bytes. pyarrow shows neither before it decodes, so the metadata tables are read here: `RecordBatch` has the
lengths of the batch and of every array in it, and the positions of its buffers; a compressed buffer begins with its
decompressed size (int64, -1: it is not compressed). Arrow decompresses into that size exactly, or fails.

pyarrow has verified the metadata before it returns a message; offsets are followed within it.
Source: the Arrow columnar format, Message.fbs and File.fbs.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.operators.parser.arrow.arrays import is_text, valid

_DICTIONARY, _RECORDS = 2, 3  # of Message.header
_MAGIC = b"ARROW1"


class PastBoundError(ValueError):
    """A message announces more than is taken."""


class _Table:
    """A flatbuffer table: its fields by number."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._read("<i", at)
        self._size = self._read("<H", self._fields)

    @staticmethod
    def root(data: bytes) -> _Table:
        """The table that a buffer holds."""
        return _Table(data, struct.unpack_from("<I", data, 0)[0])

    def _read(self, form: str, at: int) -> int:
        if at < 0:
            msg = f"metadata points outside of itself, to {at}"
            raise ValueError(msg)
        return int(struct.unpack_from(form, self._data, at)[0])

    def _place(self, number: int) -> int:
        """Return the position of a field, 0 if it is absent."""
        entry = 4 + 2 * number
        offset = self._read("<H", self._fields + entry) if entry < self._size else 0
        return self._at + offset if offset else 0

    def integer(self, number: int, form: str) -> int:
        """A number, 0 where it is left out."""
        at = self._place(number)
        return self._read(form, at) if at else 0

    def table(self, number: int) -> _Table | None:
        """A table, if it is there."""
        at = self._place(number)
        return _Table(self._data, at + self._read("<I", at)) if at else None

    def int64s(self, number: int, columns: int) -> np.ndarray:
        """(n, columns) int64: a vector of structs of int64s."""
        at = self._place(number)
        if not at:
            return np.empty((0, columns), np.int64)
        at += self._read("<I", at)
        count = self._read("<I", at)
        return np.frombuffer(self._data, "<i8", count * columns, at + 4).reshape(-1, columns)


class Bounds:
    """Adds up the sizes that the messages of a stream announce, and refuses excessive ones.

    Units: bytes_max bytes after decompression, of the stream or (`by_batch`) of each batch.
    """

    def __init__(self, rows_max: int, values_max: int, bytes_max: int, by_batch: bool = False) -> None:
        self._rows_max, self._values_max, self._bytes_max, self._by_batch = rows_max, values_max, bytes_max, by_batch
        self._rows = self._bytes = 0
        self._values: Counter[tuple[int, int]] = Counter()  # by dictionary (-1: none) and number of the array

    def add(self, message: pa.ipc.Message) -> None:
        """Take a message into account.

        Raises:
            PastBoundError: it announces too much.
            ValueError, struct.error: it lies about where its parts are.
        """
        head = _Table.root(message.metadata.to_pybytes())
        kind, batch, dictionary = head.integer(1, "<B"), head.table(2), -1
        if kind not in (_DICTIONARY, _RECORDS) or batch is None:
            return
        if kind == _DICTIONARY:
            dictionary, inner = batch.integer(0, "<q"), batch.table(1)
            if inner is None:
                return
            batch = inner
        else:
            self._rows += batch.integer(0, "<q")
        if self._rows > self._rows_max:
            text = f"too many rows in an Arrow IPC stream: expected at most {self._rows_max:,}"
            raise PastBoundError(text)
        for number, length in enumerate(batch.int64s(1, 2)[:, 0].tolist()):
            self._values[dictionary, number] += length
            if self._values[dictionary, number] > self._values_max:
                text = f"too many values in an Arrow IPC stream: expected at most {self._values_max:,} in a column"
                raise PastBoundError(text)
        if batch.table(3) is not None:
            self._decompressed(batch, message.body)

    def _decompressed(self, batch: _Table, body: pa.Buffer) -> None:
        if self._by_batch:
            self._bytes = 0
        for offset, length in batch.int64s(2, 2).tolist():
            if length < 8:
                continue
            if offset < 0 or offset + length > body.size:
                msg = f"a buffer of {length} bytes at {offset} in a body of {body.size}"
                raise ValueError(msg)
            size = int(struct.unpack("<q", body.slice(offset, 8).to_pybytes())[0])
            if size < -1:
                msg = f"a buffer of {size} bytes"
                raise ValueError(msg)
            self._bytes += size if size >= 0 else length
        if self._bytes > self._bytes_max:
            what = "a record batch" if self._by_batch else "an Arrow IPC stream"
            text = f"too much in {what}: expected at most {self._bytes_max >> 20:,} MiB once it is decompressed"
            raise PastBoundError(text)


def messages_of_stream(source: pa.NativeFile | bytes) -> Iterator[pa.ipc.Message]:
    """The messages of a stream, nothing in them decoded."""
    yield from pa.ipc.MessageReader.open_stream(source)


def messages_of_file(data: pa.Buffer) -> Iterator[pa.ipc.Message]:
    """The dictionaries and batches that the footer of an IPC file names."""
    tail = data.slice(max(0, data.size - 10)).to_pybytes().rjust(10)
    size = struct.unpack("<i", tail[:4])[0]
    if tail[4:] != _MAGIC or not 0 < size <= data.size - 10:
        msg = "not an Arrow IPC file: it has no footer"
        raise ValueError(msg)
    footer = _Table.root(data.slice(data.size - 10 - size, size).to_pybytes())
    for number in (2, 3):
        for offset, head, body in footer.int64s(number, 3).tolist():
            head &= 0xFFFFFFFF  # an int32 and padding
            if offset < 0 or body < 0 or offset + head + body > data.size:
                msg = f"not an Arrow IPC file: a batch of {body} bytes at {offset} in {data.size}"
                raise ValueError(msg)
            yield pa.ipc.read_message(data.slice(offset, head + body))


# How an Arrow IPC stream begins (the mark of an encapsulated message), and no JSON.
ARROW_STREAM = b"\xff\xff\xff\xff"
# Columns of nulls, run ends and empty lists take no bytes, however many they are: without a bound a message of 300
# bytes could ask for more memory than there is.
ROWS_MAX = 1 << 20
VALUES_MAX = 1 << 24  # of one column, or of one level of a nested one
# What a stream may become: by decompression, and by rows that share the texts of a dictionary.
BYTES_MAX = 64 << 20
_VIEWS = (pa.string_view(), pa.binary_view())


def read_arrow(value: bytes) -> pa.Table | str:
    """The table in a message, or why there is none."""
    try:
        bounds = Bounds(ROWS_MAX, VALUES_MAX, BYTES_MAX)
        for message in messages_of_stream(value):
            bounds.add(message)
        with pa.ipc.open_stream(value) as reader:
            table = reader.read_all()  # no array in it is longer than its bounds allowed
        table.validate(full=True)  # offsets that point outside would crash the process when they are followed
        _refuse_shared(table)
    except PastBoundError as error:
        return str(error)
    except Exception as error:  # foreign bytes fail in any way they like
        return f"not an Arrow IPC stream: {' '.join(str(error).split())[:200]}"
    return table


def _lengths(array: pa.Array) -> np.ndarray:
    """(n,) int64 bytes of each text, 0 where it is null."""
    if array.type not in _VIEWS:
        return pc.binary_length(array).fill_null(0).to_numpy().astype(np.int64)
    views = array.buffers()[1]  # each begins with its length
    lengths = np.frombuffer(views or b"", np.int32)[::4].astype(np.int64)
    return lengths[array.offset : array.offset + len(array)] * valid(array)


def _refuse_shared(table: pa.Table) -> None:
    """Check that rows of dictionaries and views can be expanded: each may be a large value that is stored once.

    Raises:
        PastBoundError: that would take too much memory.
    """
    size = 0
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if column.type in _VIEWS:
            size += sum(int(_lengths(chunk).sum()) for chunk in column.chunks)
        if not pa.types.is_dictionary(column.type):
            continue
        kind = column.type.value_type
        if pa.types.is_nested(kind):
            msg = f"column {name[:80]!r} of an Arrow IPC stream: expected plain values, got a dictionary of {kind}"
            raise PastBoundError(msg[:200])
        is_counted = kind in _VIEWS or is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        for chunk in column.chunks if is_counted else ():
            lengths = _lengths(chunk.dictionary)
            size += int(lengths[chunk.indices.drop_null().to_numpy()].sum()) if len(lengths) else 0
    if size > BYTES_MAX:
        most = f"{BYTES_MAX >> 20:,} MiB of texts by dictionaries and views"
        msg = f"too much in an Arrow IPC stream: expected at most {most}"
        raise PastBoundError(msg)
