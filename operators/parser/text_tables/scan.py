"""Bounds of rows of text: a quoted field may have line ends in it, so they are found field by field.

A field is quoted if it begins with a quote; within it, two quotes are one. Elsewhere a quote is a character. A row ends
at LF, CR LF or CR. Lines without a character are no rows. Python's csv and Arrow's reader do the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.operators.parser.formats import BOM
from freshet.operators.parser.partitions import EventFileError
from freshet.operators.parser.streams import open_stream

ROW_BYTES_MAX = 16 << 20  # more are a quote that is never closed
WINDOW_BYTES = 1 << 20

_ROW, _FIELD, _PLAIN, _QUOTED, _QUOTE, _CR = range(6)  # before a row, before a field, in it; behind a quote, or CR
_N, _R, _Q = np.frombuffer(b'\n\r"', np.uint8).tolist()


class RowScanner:
    """Finds where rows end, window by window."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = ord(delimiter)
        self._state = np.zeros(2, np.int64)  # what the next byte is in, and the fields of the open row
        self._at = 0

    def add(self, data: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Return where the rows end that end in these bytes, counted from the first byte of all, and their fields.

        Shapes: ends (n,) int64, fields (n,) int32
        """
        window = np.frombuffer(data, np.uint8)
        ends, fields = np.empty(len(window) // 2 + 2, np.int64), np.empty(len(window) // 2 + 2, np.int32)
        found = _scan(window, self._delimiter, self._state, ends, fields)
        begin, self._at = self._at, self._at + len(data)
        return ends[:found] + begin, fields[:found]

    @property
    def size(self) -> int:
        """Number of bytes so far."""
        return self._at

    @property
    def is_open(self) -> bool:
        """True if the bytes so far end within a row."""
        return int(self._state[0]) != _ROW

    @property
    def is_quoted(self) -> bool:
        """True if the bytes so far end within a quoted field."""
        return int(self._state[0]) == _QUOTED

    @property
    def fields(self) -> int:
        """The number of fields of the open row."""
        return int(self._state[1]) + 1


def warm_up() -> None:
    """Compile the kernel, or load it."""
    RowScanner(",").add(b"a\n")


def blank_bom(data: bytes) -> bytes:
    """Return the first bytes of a file with lines that are no rows in place of a byte order mark."""
    return b"\n" * len(BOM) + data[len(BOM) :] if data.startswith(BOM) else data


def row_ends(path: str, name: str, delimiter: str) -> Iterator[np.ndarray]:
    """Offsets of the bytes that follow each row, by windows of the file: first that of the header alone, at last none.

    Raises:
        EventFileError: a row that does not end; `name` is that of the file.
        OSError, pa.ArrowException: the file can't be read, or was cut off.
    """
    scanner, last, rows = RowScanner(delimiter), 0, -1
    with closing(open_stream(path)) as stream:
        while data := stream.read(WINDOW_BYTES):
            ends, _ = scanner.add(data if scanner.size else blank_bom(data))
            if len(ends):
                last, rows = int(ends[-1]), rows + len(ends)
                if rows == len(ends) - 1:
                    yield ends[:1]
                    ends = ends[1:]
                yield from [ends] if len(ends) else ()
            elif scanner.size - last > ROW_BYTES_MAX:
                break
    if scanner.is_quoted or (scanner.is_open and scanner.size - last > ROW_BYTES_MAX):
        what = "has a quoted field that does not end" if scanner.is_quoted else "does not end"
        most = f" within {ROW_BYTES_MAX >> 20} MiB" if scanner.size - last > ROW_BYTES_MAX else ""
        row = f"row {rows} (of byte {last:,} on)" if rows >= 0 else "the header"
        msg = f"{name}: {row} {what}{most}; expected a quote at its end, and two for one within it"
        raise EventFileError(msg)
    if scanner.is_open:
        yield np.array([scanner.size])
    yield np.empty(0, np.int64)


@kernel
def _scan(data: np.ndarray, delimiter: int, state: np.ndarray, ends: np.ndarray, fields: np.ndarray) -> int:
    """Note the ends of rows, and how many fields each has; return how many rows ended."""
    inside, delimiters, found, k = state[0], state[1], 0, 0
    while k < len(data):
        byte = data[k]
        k += 1
        if inside == _CR:  # the row has ended: with this byte, or before it
            k -= byte != _N
            ends[found], fields[found] = k, delimiters + 1
            inside, delimiters, found = _ROW, 0, found + 1
        elif inside == _QUOTED:
            if byte == _Q:
                inside = _QUOTE
        elif byte == delimiter:
            inside, delimiters = _FIELD, delimiters + 1
        elif byte == _N or byte == _R:
            if inside != _ROW and byte == _N:
                ends[found], fields[found] = k, delimiters + 1
                inside, delimiters, found = _ROW, 0, found + 1
            elif inside != _ROW:
                inside = _CR
        elif byte == _Q and (inside == _ROW or inside == _FIELD or inside == _QUOTE):
            inside = _QUOTED
        else:
            inside = _PLAIN
    state[0], state[1] = inside, delimiters
    return found
