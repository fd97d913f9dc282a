"""Checksums of whole files, kept in one file beside them: what lies there is what was written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crc32c import crc32c
from typing_extensions import TypedDict

from freshet.files.json_file import DamagedFileError, read_json, write_json

FORMAT = 1
_ADVICE = "put it back from a copy"
_STEP_BYTES = 256 << 10  # what stays in a core's cache between reading and checking
_THREADS_MAX = 4


def checksum_of(path: Path, update: Callable[[memoryview, int], int] = crc32c) -> int:
    """The checksum of a file, CRC-32C by default, which is read in steps through one small buffer.

    Raises: OSError.
    """
    buffer, checksum = bytearray(_STEP_BYTES), 0
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(view):
            checksum = update(view[:size], checksum)
    return checksum


def crc32c_of(data: bytes) -> int:
    """The CRC-32C of bytes."""
    return int(crc32c(data))


class _Content(TypedDict):
    format: int
    files: dict[str, tuple[int, str]]
    told: dict[str, Any]


@dataclass(frozen=True)
class FileChecksums:
    """Sizes and CRC-32Cs of files, by their names below a folder; `extra` is what else is to be kept with them."""

    files: Mapping[str, tuple[int, int]]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(
        folder: Path, names: Iterable[str], known: Mapping[str, tuple[int, int]] | None = None, **extra: Any
    ) -> FileChecksums:
        """Compute those of the files with these names, in parallel, except those `known`.

        Raises: OSError where one can't be read.
        """
        files = dict.fromkeys(names, (0, 0))
        new = [name for name in files if name not in (known or {})]
        found = dict(known or {}) | dict(zip(new, _side_by_side([folder / name for name in new]), strict=True))
        return FileChecksums({name: found[name] for name in files}, extra)

    @staticmethod
    def read(path: Path) -> FileChecksums | None:
        """Read such a file; None if it does not exist.

        Raises: DamagedFileError when it is not what was written.
        """
        content: _Content | None = read_json(path, _Content, _ADVICE)
        if content is None:
            return None
        if content["format"] != FORMAT:
            msg = f"{path}: of format {content['format']}, this Freshet reads {FORMAT}; {_ADVICE}"
            raise DamagedFileError(msg)
        return replace(FileChecksums.from_dict(content["files"]), extra=content["told"])

    @staticmethod
    def from_dict(files: Mapping[str, Sequence[Any]]) -> FileChecksums:
        """The inverse of `as_dict`.

        Raises: ValueError, TypeError for other contents.
        """
        return FileChecksums({name: (int(size), int(crc32, 16)) for name, (size, crc32) in files.items()})

    def as_dict(self) -> dict[str, list[Any]]:
        """Sizes and checksums by name, as they stand in JSON."""
        return {name: [size, f"{crc32:08x}"] for name, (size, crc32) in sorted(self.files.items())}

    def write(self, path: Path) -> None:
        """Write them, in one step, and sync the file."""
        write_json(path, {"format": FORMAT, "files": self.as_dict(), "told": dict(self.extra)})

    def damage(self, folder: Path, everything_in: Iterable[str] = ()) -> str | None:
        """The first file that is not what it was, in words; None where all are.

        Of the folders `everything_in` no other file is taken for one of theirs (hidden ones are).
        """
        below = [path for name in everything_in for path in sorted((folder / name).rglob("[!._]*")) if path.is_file()]
        for path in below:
            if path.relative_to(folder).as_posix() not in self.files:
                return f"{path} is not one of its files"
        wrong = (self._size_of(folder / name, size) for name, (size, _) in self.files.items())
        if first := next((text for text in wrong if text), None):
            return first  # before anything large is read
        paths = [folder / name for name in self.files]
        try:
            found = _side_by_side(paths)
        except OSError as error:
            return f"{error.filename or folder} can't be read: {error.strerror}"
        for path, now, was in zip(paths, found, self.files.values(), strict=True):
            if now != was:
                return f"{path} does not match its checksum"
        return None

    @staticmethod
    def _size_of(path: Path, expected: int) -> str | None:
        try:
            size = path.stat().st_size
        except OSError:
            return f"{path} is missing"
        return None if size == expected else f"{path} has {size:,} bytes, expected {expected:,}"


def _side_by_side(paths: list[Path]) -> list[tuple[int, int]]:
    """Size and checksum of each file; reading lets other threads run."""

    def look(path: Path) -> tuple[int, int]:
        return path.stat().st_size, checksum_of(path)

    threads = min(_THREADS_MAX, len(os.sched_getaffinity(0)), len(paths))
    if threads <= 1:
        return [look(path) for path in paths]
    with ThreadPoolExecutor(threads, "checksums") as pool:
        return list(pool.map(look, paths))
