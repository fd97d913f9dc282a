"""The newest rejected records of a job, from the end of its file of dead letters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from freshet.errors import FreshetError
from freshet.files.json_file import read_json
from freshet.job.folder import layout
from freshet.job.kafka.address import is_kafka
from freshet.job.serving.view.job_here import NoJobError
from freshet.operators.parser.letter_box import FILES, read_dropped, read_reasons, reason_of

READ_BYTES = 1 << 20  # from the ends of the files, for one answer
SHOWN = 2000  # characters of a record or an error
_BLOCK = 64 << 10
_ADVICE = "no other file has all of it: put it back from a copy"


@dataclass(frozen=True)
class _Letters:
    target: str = ""


@dataclass(frozen=True)
class _Settings:
    letters: _Letters = _Letters()


@dataclass(frozen=True)
class _Saved:
    settings: _Settings


def newest_rejected(out: Path, limit: int) -> dict[str, Any]:
    """Return the counts by reason, and the newest records with their reasons, the newest first.

    `truncated`: the bound of what is read came before the limit.

    Raises: NoJobError where there is no job, or its rejected records are in no file here; DamagedFileError.
    """
    path, reasons = letters_of(out), read_reasons(out)
    letters, truncated = newest_in(path, limit)
    counts = {"rejected": sum(reasons.values()), "reasons": reasons, "dropped": read_dropped(out)}
    return {**counts, "file": str(path), "letters": letters, "truncated": truncated}


def has_letters(out: Path) -> bool:
    """Return whether the rejected records of a job can be read here."""
    try:
        letters_of(out)
    except FreshetError:
        return False
    return True


def letters_of(out: Path) -> Path:
    """Return the file of a job's rejected records.

    Raises: NoJobError where there is none here; DamagedFileError.
    """
    saved = read_json(out / layout.SAVED_JOB, _Saved, _ADVICE)
    if saved is None:
        msg = f"no rejected records: {out} is not the folder of a job on this machine"
        raise NoJobError(msg)
    target = saved.settings.letters.target or layout.dead_letters_to(None, out)
    if is_kafka(target):
        msg = f"rejected records are in the topic {target}, not in a file: read them there"
        raise NoJobError(msg)
    path = Path(target)
    if path.exists() and not path.is_file():
        msg = f"rejected records go to {path}, which is no file that can be read again"
        raise NoJobError(msg)
    return path


def newest_in(path: Path, limit: int, bytes_max: int = READ_BYTES) -> tuple[list[dict[str, Any]], bool]:
    """Return the last letters of a file and of those put aside before it, the newest first, and whether it is cut.

    At most `bytes_max` bytes are read. A line that is not whole yet, or no letter, is left out.
    """
    found: list[dict[str, Any]] = []
    reading = _Backwards(bytes_max)
    for number in range(FILES):
        one = path if number == 0 else path.with_suffix(f".{number}{path.suffix}")
        try:
            with one.open("rb") as file:
                for line in reading.lines(file.fileno()):
                    letter = _letter(line)
                    if letter is not None:
                        found.append(letter)
                    if len(found) == limit:
                        return found, False
        except FileNotFoundError:
            break
        if reading.is_cut:
            break
    return found, reading.is_cut


class _Backwards:
    """Lines of files from the last one on, until `left` bytes are read."""

    def __init__(self, left: int) -> None:
        self.left, self.is_cut = left, False

    def lines(self, fd: int) -> Iterator[bytes]:
        """Yield the lines of a file; what follows its last line end is being written, and left out."""
        at, rest, has_end = os.fstat(fd).st_size, b"", False
        while at > 0 and self.left > 0:
            size = min(_BLOCK, at, self.left)
            at, self.left = at - size, self.left - size
            rest, *lines = (os.pread(fd, size, at) + rest).split(b"\n")
            if lines and not has_end:
                lines.pop()
                has_end = True
            yield from reversed(lines)
            if not has_end:
                rest = b""
        self.is_cut = at > 0
        if at == 0 and has_end:
            yield rest


def _letter(line: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("error"), str):
        return None
    letter = {"reason": reason_of(found["error"]), **found}
    for name in ("error", "raw", "raw_base64"):
        text = letter.get(name)
        if isinstance(text, str) and len(text) > SHOWN:
            letter[name] = text[:SHOWN]
            letter[f"{name}_length"] = len(text)
    return letter
