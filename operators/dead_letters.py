"""Rejected records and the JSON Lines file that they are set aside in."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import orjson


class DeadLetter(NamedTuple):
    """A rejected record: why, where it stood (0-based line or row of a file, or Kafka's offset), and its bytes."""

    error: str
    source: str
    partition: int
    offset: int
    raw: bytes

    def to_json(self) -> bytes:
        """One JSON object without a line end; bytes that are not UTF-8 stand in `raw_base64`."""
        record: dict[str, object] = {
            # a file name may hold bytes that are no text
            "error": self.error.encode(errors="replace").decode(),
            "source": self.source.encode(errors="replace").decode(),
            "partition": self.partition,
            "offset": self.offset,
        }
        try:
            record["raw"] = self.raw.decode()
        except UnicodeDecodeError:
            record["raw_base64"] = base64.b64encode(self.raw).decode()
        return orjson.dumps(record)


class DeadLetterFile:
    """A JSON Lines file that rejected records are appended to, flushed after each batch; it is made at the first one.

    Raises:
        OSError: the file cannot be written; name another by `--dead-letters`.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.written = 0

    def write(self, letters: Iterable[DeadLetter]) -> None:
        """Append the letters; they are in the file (of the operating system) when this returns."""
        lines = [letter.to_json() + b"\n" for letter in letters]
        if not lines:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # opened for each batch: rejects are rare, and a file that is moved away by hand is begun anew
        with self.path.open("ab") as file:
            file.write(b"".join(lines))
        self.written += len(lines)

    def __enter__(self) -> DeadLetterFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Nothing is left open."""
