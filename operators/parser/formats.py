"""The formats of event files: told by the suffix of a name, in capitals or not, and by how a file begins."""

from __future__ import annotations

from pathlib import Path

JSONL, PARQUET, ARROW = "jsonl", "parquet", "arrow"
SUFFIXES = tuple(f".{name}" for name in (JSONL, PARQUET, ARROW))
# JSON Lines begin with anything, Arrow IPC as a file or as a stream.
_STARTS: dict[str, tuple[bytes, ...]] = {PARQUET: (b"PAR1",), ARROW: (b"ARROW1", b"\xff\xff\xff\xff")}


def format_of(path: Path) -> str | None:
    """Return the format that the name says; None where it says none."""
    suffix = path.suffix.lower()
    return suffix[1:] if suffix in SUFFIXES else None


def begins_as(kind: str, start: bytes) -> bool:
    """Say whether a file of the format may begin with these bytes."""
    return kind not in _STARTS or start.startswith(_STARTS[kind])
