"""The header of a file of rows: the names of its columns, which the first row has."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from contextlib import closing
from typing import NamedTuple

from freshet.operators.parser.formats import TEXTS
from freshet.operators.parser.partitions import EventFileError
from freshet.operators.parser.streams import LineReader
from freshet.operators.parser.text_tables.scan import RowScanner, blank_bom
from freshet.partitioner.events import OP_NAMES

_BYTES_MAX = 1 << 20
_COLUMNS_MAX = 1 << 16
_NAMES_SHOWN = 12
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


class TextHeader(NamedTuple):
    """Names of columns, spaces around them removed; empty for one without a name. `end`: where the rows begin."""

    names: tuple[str, ...]
    end: int


def read_header(path: str, name: str, kind: str) -> TextHeader:
    """Read the header of a file of this format; `name` is for messages.

    Raises: EventFileError for a first row that is none; OSError, pa.ArrowException.
    """
    with closing(LineReader()) as lines:
        data = blank_bom(lines.read(path, 0, _BYTES_MAX))
    delimiter = TEXTS[kind].delimiter
    scanner = RowScanner(delimiter)
    ends, _ = scanner.add(data)
    if len(ends) == 0 and (not scanner.is_open or len(data) == _BYTES_MAX or scanner.is_quoted):
        what = "it has no row" if not scanner.is_open else f"its first row does not end within {len(data):,} bytes"
        msg = f"{name}: no header: {what}; expected the names of the columns in the first row"
        raise EventFileError(msg)
    end = int(ends[0]) if len(ends) else len(data)
    try:
        text = data[:end].decode()
    except UnicodeDecodeError as error:
        msg = f"{name}: no header: its first row is not UTF-8 ({error.reason}); write the file as UTF-8"
        raise EventFileError(msg) from None
    row = next(row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row)
    header = TextHeader(tuple(one.strip() for one in row), end)
    if why := _why_none(header.names, kind):
        msg = f"{name}: {why}"
        raise EventFileError(msg)
    return header


def _why_none(names: tuple[str, ...], kind: str) -> str | None:
    """Describe why names are no header."""
    shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
    if len(names) > _COLUMNS_MAX:
        return f"expected at most {_COLUMNS_MAX:,} columns, got {len(names):,}"
    data = [one for one in names if one in OP_NAMES]
    if data or all(not one or _NUMBER.fullmatch(one) for one in names):
        return (
            f"no header: its first row is data ({shown}); expected the names of the columns there, such as "
            f"{TEXTS[kind].delimiter.join(('op', 'src', 'dst'))}"
        )
    if len(names) == 1 and (found := next((one for one in "\t;|," if one in names[0]), None)):
        delimiters = " or ".join(f"{format.delimiter!r} (.{name})" for name, format in TEXTS.items())
        return (
            f"its first row has one column, {names[0]!r}, with {found!r} in it; expected columns between {delimiters}"
        )
    repeated = [one for one, count in Counter(names).items() if one and count > 1]
    return f"two columns are named {repeated[0]}: expected a name for each" if repeated else None
