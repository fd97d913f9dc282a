"""Bytes of files of lines and of rows of text; of compressed ones, the decompressed bytes, at their places in these."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.operators.parser.formats import compression_of

WINDOW_BYTES = 4 << 20  # of a file, searched for line ends at a time


def line_ends(path: str) -> Iterator[np.ndarray]:
    """Offsets of the bytes that follow each line, by windows of the file; at last an empty array.

    Raises:
        OSError, pa.ArrowException: the file can't be read, or was cut off.
    """
    size = last = 0
    with closing(open_stream(path)) as stream:
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
            self._stream, self._path, self._at = open_stream(path), path, 0
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


def open_stream(path: str) -> Any:
    """Open a file whose `read` gives the bytes that it has when it is decompressed.

    Raises: OSError.
    """
    kind = compression_of(path)
    if kind == "gzip":
        return _Gzip(path)
    file = open(path, "rb")  # closed with the stream
    return file if kind is None else _Zstd(pa.CompressedInputStream(pa.PythonFile(file), kind))
