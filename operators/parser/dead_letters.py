"""Rejected records and the JSON Lines file that they are set aside in."""

from __future__ import annotations

import base64
import fcntl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

FILES = 8  # the one that grows, and those that were put aside


class DeadLetter(NamedTuple):
    """A rejected record: why, where it stood (0-based line or row of a file, or Kafka's offset), and its bytes.

    `records`: how many it stands for; more than one are the rest of a message with very many bad records.
    """

    error: str
    source: str
    partition: int
    offset: int
    raw: bytes
    records: int = 1

    def to_json(self) -> bytes:
        """One JSON object without a line end."""
        return orjson.dumps(self.fields())

    def fields(self) -> dict[str, Any]:
        """Return the fields of that object; bytes that are not UTF-8 are in `raw_base64`."""
        record: dict[str, Any] = {
            # a file name may hold bytes that are no text
            "error": self.error.encode(errors="replace").decode(),
            "source": self.source.encode(errors="replace").decode(),
            "partition": self.partition,
            "offset": self.offset,
        }
        if self.records != 1:
            record["records"] = self.records
        try:
            record["raw"] = self.raw.decode()
        except UnicodeDecodeError:
            record["raw_base64"] = base64.b64encode(self.raw).decode()
        return record


class DeadLetterFile:
    """A JSON Lines file that rejected records are appended to, flushed after each batch; it is made at the first one.

    Past an eighth of `bytes_max` it is put aside as NAME.1.jsonl, what was that before as NAME.2.jsonl, and so on; the
    one that would be the eighth is dropped, and its letters are counted. Several operators may write to one file, each
    in a process of its own: a lock beside it (`.NAME.jsonl.lock`) lets one of them write or put aside at a time.

    Units: bytes_max bytes, 0: no limit.
    Invariant: the files have `bytes_max` together at most, save for a letter that is larger than an eighth of that.

    Raises:
        OSError: the file cannot be written; name another by `--dead-letters`.
    """

    def __init__(self, path: Path | str, bytes_max: int = 0) -> None:
        self.path = Path(path)
        self.dropped = 0  # letters
        self._file_bytes = bytes_max // FILES

    def write(self, letters: Iterable[DeadLetter]) -> None:
        """Append the letters; they are in the file (of the operating system) when this returns."""
        lines = [letter.to_json() + b"\n" for letter in letters]
        if not lines:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and not self.path.is_file():  # a pipe, or /dev/null
            self._append(b"".join(lines))
        else:
            with _locked(self.path.with_name(f".{self.path.name}.lock")):
                for block in self._blocks(lines):
                    self._append(block)

    def _append(self, block: bytes) -> None:
        # opened for each batch: rejects are rare, and a file that is moved away by hand is begun anew
        with self.path.open("ab") as file:
            file.write(block)

    def _blocks(self, lines: list[bytes]) -> Iterator[bytes]:
        """The lines in blocks, each for the file as it then is."""
        size = self.path.stat().st_size if self.path.exists() else 0
        block: list[bytes] = []
        for line in lines:
            if self._file_bytes and size and size + len(line) > self._file_bytes:
                if block:
                    yield b"".join(block)
                self._put_aside()
                block, size = [], 0
            block.append(line)
            size += len(line)
        yield b"".join(block)

    def _put_aside(self) -> None:
        names = [self.path, *(self.path.with_suffix(f".{k}{self.path.suffix}") for k in range(1, FILES))]
        if names[-1].exists():
            self.dropped += _lines_of(names[-1])
            names[-1].unlink()
        for k in range(FILES - 1, 0, -1):
            if names[k - 1].exists():
                names[k - 1].rename(names[k])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among all who lock this file; a process that is killed gives the lock back."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lines_of(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
