"""Checksums within a Parquet file: every byte of it that is read is what was written.

Between the rows and the footer, where Parquet readers look at nothing, stands the seal: the CRC-32C of each step of
what comes before it, and of the footer. It costs 40 ms for each GB; the checksums that Parquet has for
its pages leave out their headers and the footer, with the statistics in it, and polars writes none.

Layout:
    rows, SEAL, footer, length of the footer (4 bytes), PAR1
    SEAL: CRC-32C of each step uint32[], bytes of rows uint64, CRC-32C of all behind SEAL uint32, CRC-32C of SEAL so
    far uint32, MARK; little-endian
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
from crc32c import crc32c

STEP_BYTES = 256 << 10  # with its copy it fits into the cache of one core
MARK = bytes.fromhex("f5e5e7a10d2c4b8e93c6710fb2a8d46b")
END_BYTES = 8  # behind the footer: its length and PAR1
_KEEPS_LOCK = 0  # what `crc32c` takes for it
_FIXED = struct.Struct("<QII16s")
_TAIL_BYTES = 64 << 10  # read at first; most footers are shorter
_SEARCHED_BYTES = 1 << 20  # for the mark of a file where it is not in its place


class SealError(ValueError):
    """A file is not what was written."""


def sums_of(data: np.ndarray) -> list[int]:
    """The CRC-32C of each step of the data, (bytes,) uint8."""
    # The interpreter lock is kept: a step takes 10 us, and getting it back beside busy threads much longer.
    return [int(crc32c(data[at : at + STEP_BYTES].data, 0, _KEEPS_LOCK)) for at in range(0, len(data), STEP_BYTES)]


def seal_of(sums: list[int], size: int, footer: bytes) -> bytes:
    """Return the bytes between `size` bytes of data with these sums and the footer (all bytes after the seal)."""
    begin = np.array(sums, "<u4").tobytes() + struct.pack("<QI", size, crc32c(footer))
    return begin + struct.pack("<I", crc32c(begin)) + MARK


def footer_bytes(end: bytes) -> int:
    """Return the length of the footer and all bytes after it, from the last bytes of a Parquet file."""
    return int.from_bytes(end[-END_BYTES:-4], "little") + END_BYTES


class SealedFile:
    """A file object for `pyarrow` that compares every byte with the seal before it returns it.

    A file without a seal (of an earlier version, or of another writer) is read as it is.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises: SealError; OSError.
        """
        self._file = os.open(path, os.O_RDONLY)
        self.name = str(path)
        self.closed = False
        self._at = 0
        self._kept: tuple[int, np.ndarray] = (0, np.empty(0, np.uint8))  # the step read last: columns share it
        try:
            self._size = os.fstat(self._file).st_size
            self._find_seal()
        except BaseException:
            self.close()
            raise

    def _find_seal(self) -> None:
        """Read and check what comes behind the rows."""
        self._sums = np.empty(0, np.uint32)
        self._rows, self._behind = self._size, np.empty(0, np.uint8)  # bytes of rows, and what follows them
        tail = self._tail(_TAIL_BYTES)
        footer = footer_bytes(tail) if len(tail) >= END_BYTES else 0
        if len(tail) < footer + _FIXED.size <= self._size:
            tail = self._tail(footer + _FIXED.size)
        at = len(tail) - footer - _FIXED.size
        if at < 0 or tail[at : at + _FIXED.size][-len(MARK) :] != MARK:
            if MARK in self._tail(_SEARCHED_BYTES):
                msg = "the length of its footer is not what was written"
                raise SealError(msg)
            return
        size, of_footer, of_seal, _ = _FIXED.unpack_from(tail, at)
        count = -(-size // STEP_BYTES)
        behind = 4 * count + _FIXED.size + footer
        if size + behind != self._size:
            msg = "its length is not what was written"
            raise SealError(msg)
        tail = self._tail(behind)
        summed = 4 * count + _FIXED.size - 4 - len(MARK)
        if crc32c(tail[:summed]) != of_seal or crc32c(tail[-footer:]) != of_footer:
            msg = "the checksum of its footer does not match"
            raise SealError(msg)
        self._sums = np.frombuffer(tail, "<u4", count)
        self._rows, self._behind = size, np.frombuffer(tail, np.uint8)

    def _tail(self, count: int) -> bytes:
        count = min(count, self._size)
        return self._bytes(self._size - count, count).tobytes()

    def _bytes(self, begin: int, count: int) -> np.ndarray:
        """Bytes as they are in the file, fewer where it ends."""
        data = np.empty(count, np.uint8)
        done = 0
        while done < count and (got := os.preadv(self._file, [data[done:].data], begin + done)):
            done += got
        return data[:done]

    def read(self, count: int = -1) -> memoryview:
        """The next bytes.

        Raises: SealError where they are not what was written.
        """
        begin = min(self._at, self._size)
        end = self._size if count < 0 else min(begin + count, self._size)
        self._at = end
        if not len(self._behind):
            return self._bytes(begin, end - begin).data
        if begin >= self._rows:
            return self._behind[begin - self._rows : end - self._rows].data
        found = self._checked(begin, min(end, self._rows))
        if end > self._rows:
            found = np.concatenate([found, self._behind[: end - self._rows]])
        return found.data

    def _checked(self, begin: int, end: int) -> np.ndarray:
        """Bytes of the rows, in whole steps read and checked."""
        first, last = begin // STEP_BYTES, -(-end // STEP_BYTES)
        start = first * STEP_BYTES
        at, data = self._kept
        if at != start or len(data) < end - start:
            data = self._bytes(start, min(last * STEP_BYTES, self._rows) - start)
            if sums_of(data) != self._sums[first:last].tolist():
                msg = "a checksum of its rows does not match"
                raise SealError(msg)
            if last - first == 1:
                self._kept = (start, data)
        return data[begin - start : end - start]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """The place of the next byte."""
        return self._at

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return True."""
        return True

    def flush(self) -> None:
        """Nothing is written."""

    def close(self) -> None:
        """Let go of the file."""
        if not self.closed:
            self.closed = True
            os.close(self._file)

    def __enter__(self) -> SealedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
