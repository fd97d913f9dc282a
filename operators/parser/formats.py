"""The formats of event files: recognised by the suffix of the name, in any case, and by the first bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

BOM = b"\xef\xbb\xbf"  # Windows begins UTF-8 with it, and files that are put together have it anywhere
JSONL = "jsonl"
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # of lines and rows of text: tables are compressed inside


class TableFiles(Protocol):
    """Reader of the files of one format of tables. Its methods raise OSError or pa.ArrowException where they can't."""

    @property
    def skips_columns(self) -> bool:
        """True if columns that are not wanted stay unread."""

    def schema(self, path: str) -> pa.Schema:
        """The columns of a file."""

    def size(self, path: str) -> tuple[int, int]:
        """Rows and bytes of a file."""

    def batches(self, path: str, first: int, wanted: Collection[str] | None) -> tuple[Iterator[pa.RecordBatch], int]:
        """Batches of rows from a row not after `first` on, and that row; `wanted`: columns, None for every one."""


def _parquet() -> TableFiles:
    from freshet.operators.parser.tables.parquet import ParquetFiles

    return ParquetFiles()


def _arrow() -> TableFiles:
    from freshet.operators.parser.tables.arrow import ArrowFiles

    return ArrowFiles()


class TableFormat(NamedTuple):
    """A format of tables; its name is the suffix of its files."""

    title: str
    starts: tuple[bytes, ...]  # the first bytes of its files
    reader: Callable[[], TableFiles]  # loaded when it is used: command lines name formats without it


# The registry: a format of tables is a line here, and a module in operators/parser/tables/.
TABLES = {
    "parquet": TableFormat("Parquet", (b"PAR1",), _parquet),
    "arrow": TableFormat("Arrow IPC", (b"ARROW1", b"\xff\xff\xff\xff"), _arrow),  # a file, or a stream
}


class TextFormat(NamedTuple):
    """A format of rows of text behind a header; its name is the suffix of its files."""

    title: str
    delimiter: str


TEXTS = {"csv": TextFormat("CSV", ","), "tsv": TextFormat("TSV", "\t")}
TITLES = {JSONL: "JSON Lines"} | {name: one.title for name, one in TABLES.items()}
TITLES |= {name: one.title for name, one in TEXTS.items()}
SUFFIXES = (*(f".{name}" for name in TITLES), *(f".{name}{end}" for name in (JSONL, *TEXTS) for end in _COMPRESSIONS))
# What is no JSON.
_STARTS: dict[str, tuple[bytes, ...]] = {
    **{name: one.starts for name, one in TABLES.items()},
    "gzip": (b"\x1f\x8b",),
    "zstd": (b"\x28\xb5\x2f\xfd",),
    "UTF-16": (b"\xff\xfe", b"\xfe\xff"),
    "zip": (b"PK\x03\x04",),
    "bzip2": (b"BZh",),
    "xz": (b"\xfd7zXZ",),
}
_ADVICE = {
    **{name: f"name it .{name}" for name in TABLES},
    "gzip": "name it .jsonl.gz if it holds JSON Lines, .csv.gz or .tsv.gz if it holds rows, else decompress it",
    "zstd": "name it .jsonl.zst if it holds JSON Lines, .csv.zst or .tsv.zst if it holds rows, else decompress it",
    "UTF-16": "write it as UTF-8, by `iconv -f UTF-16 -t UTF-8`",
}


def format_of(path: Path) -> str | None:
    """Return the format that the name says; None where it says none."""
    name = path.name.lower()
    if compression_of(name) is not None:
        return _within(name)
    kind = Path(name).suffix.removeprefix(".")
    return kind if kind in TITLES else None


def format_by(start: bytes) -> str | None:
    """Return the format of tables that first bytes say, for a name without a suffix, as Hive gives its files."""
    return next((name for name, one in TABLES.items() if start.startswith(one.starts[0])), None)


def compression_of(name: str) -> str | None:
    """Return how a file of lines or rows of text is compressed, by its name; None where it is not."""
    return _COMPRESSIONS.get(Path(name).suffix.lower()) if _within(name) else None


def _within(name: str) -> str | None:
    """Return the format of the lines in a compressed file, by its name."""
    kind = Path(Path(name).stem).suffix.lower().removeprefix(".")
    return kind if kind == JSONL or kind in TEXTS else None


def begins_wrong(path: Path, start: bytes) -> str | None:
    """Say why a file can't be of the format in its name, and what to do, by its first bytes; None where it can be."""
    expected, found = compression_of(path.name) or format_of(path), _kind_of(start)
    if found == expected or (found is None and (expected == JSONL or expected in TEXTS)):
        return None
    if not start:
        return f"an empty file, which is no {expected} file; write it again, or leave it out"
    if found is None:
        return f"begins with {start!r}, which is no {expected} file; name it after its format"
    return f"begins with {start!r}, as {found} does, which is no {expected} file; {_advice(found)}"


def hint(start: bytes) -> str:
    """Advise on a file whose name has no known suffix, by its first bytes; empty if these are not known either."""
    if start.removeprefix(BOM).lstrip().startswith(b"{"):
        return "; if it has one JSON object a line, name it .jsonl"
    found = _kind_of(start)
    return "" if found is None else f"; it begins as {found} does: {_advice(found)}"


def _kind_of(start: bytes) -> str | None:
    return next((kind for kind, starts in _STARTS.items() if start.startswith(starts)), None)


def _advice(kind: str) -> str:
    return _ADVICE.get(kind, "decompress it")
