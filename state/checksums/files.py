"""Checksums of whole files, kept in one file beside them: what lies there is what was written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from crc32c import crc32c

from gnn.errors import InputError

FORMAT = 1
_STEP_BYTES = 1 << 20
_THREADS_MAX = 4


class DamagedFileError(InputError):
    """A file is not what Freshet wrote."""


def file_crc32c(path: Path) -> int:
    """The CRC-32C of a file, which is read in steps through one buffer.

    Raises: OSError.
    """
    buffer, crc32 = bytearray(_STEP_BYTES), 0
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(view):
            crc32 = crc32c(view[:size], crc32)
    return crc32


def crc32c_of(data: bytes) -> int:
    """The CRC-32C of bytes."""
    return int(crc32c(data))


def sealed_json(content: Mapping[str, Any]) -> bytes:
    """A JSON object with its own checksum, for people to read; `opened_json` is the inverse."""
    return orjson.dumps({**content, "crc32c": _crc32c_of(content)}, option=orjson.OPT_INDENT_2) + b"\n"


def opened_json(data: bytes) -> dict[str, Any]:
    """A JSON object as it was before `sealed_json`; one without a checksum is of an earlier version.

    Raises: ValueError in words, for what is damaged or no object.
    """
    content = orjson.loads(data)
    if not isinstance(content, dict):
        msg = "is no JSON object"
        raise ValueError(msg)  # of the data, not of a type
    found = content.pop("crc32c", None)
    if found is not None and found != _crc32c_of(content):
        msg = "does not match its checksum"
        raise ValueError(msg)
    return content


def _crc32c_of(content: Mapping[str, Any]) -> str:
    # By values, not by bytes: a file that was only laid out otherwise is the same.
    return f"{crc32c(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)):08x}"


@dataclass(frozen=True)
class FileChecksums:
    """Sizes and CRC-32Cs of files, by their names below a folder; `told` is what else is to be kept with them."""

    files: Mapping[str, tuple[int, int]]
    told: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(
        folder: Path, names: Iterable[str], known: Mapping[str, tuple[int, int]] | None = None, **told: Any
    ) -> FileChecksums:
        """Those of the files with these names, which are read side by side but for those `known`.

        Raises: OSError where one can't be read.
        """
        files = dict.fromkeys(names, (0, 0))
        new = [name for name in files if name not in (known or {})]
        found = dict(known or {}) | dict(zip(new, _side_by_side([folder / name for name in new]), strict=True))
        return FileChecksums({name: found[name] for name in files}, told)

    @staticmethod
    def read(path: Path) -> FileChecksums | None:
        """What a file says; None where there is none.

        Raises: DamagedFileError when it is not what was written.
        """
        try:
            content = opened_json(path.read_bytes())
            if content.pop("format") != FORMAT:
                msg = "was written by another version of Freshet"
                raise ValueError(msg)
            files = {name: (int(size), int(crc32, 16)) for name, (size, crc32) in content.pop("files").items()}
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            how = "can't be read" if isinstance(error, (OSError, KeyError)) else str(error)
            msg = f"{path}: {how}"
            raise DamagedFileError(msg) from None
        return FileChecksums(files, content)

    def write(self, path: Path) -> None:
        """Write them, in one step, and sync the file."""
        files = {name: [size, f"{crc32:08x}"] for name, (size, crc32) in sorted(self.files.items())}
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        with aside.open("wb") as file:
            file.write(sealed_json({"format": FORMAT, **self.told, "files": files}))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)

    def damage(self, folder: Path) -> str | None:
        """The first file that is not what it was, in words; None where all are."""
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
        return path.stat().st_size, file_crc32c(path)

    threads = min(_THREADS_MAX, len(os.sched_getaffinity(0)), len(paths))
    if threads <= 1:
        return [look(path) for path in paths]
    with ThreadPoolExecutor(threads, "checksums") as pool:
        return list(pool.map(look, paths))
