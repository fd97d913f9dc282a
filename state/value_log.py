"""Large values in files of their own, beside a store that holds only pointers to them.

RocksDB writes a large value twice, to its log and to a blob file, the first time with Python's interpreter lock held.
Here it is written once, without the lock. A file is appended to, never changed, and removed when none of its values is
needed any more; so this is for values that are deleted about in the order in which they came, as a journal's are.
Source: WiscKey (Lu et al., FAST 2016), section 3.2, without the garbage collection of half-empty files.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from freshet.errors import InputError

FILE_BYTES = 64 << 20  # after which a new file begins
_SUFFIX = ".values"
_LAYOUT = struct.Struct("<QQQI")


class LostValueError(InputError):
    """A value is not, or not wholly, where the store says that it is."""


class Pointer(NamedTuple):
    """Position of a value, and its checksum."""

    file: int
    offset: int
    size: int
    crc32: int

    def encode(self) -> bytes:
        """Return the encoding in the store."""
        return _LAYOUT.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> Pointer:
        """The inverse of `encode`.

        Raises:
            LostValueError: `data` is no pointer.
        """
        if len(data) != _LAYOUT.size:
            msg = f"{len(data)} bytes are no pointer into a value log"
            raise LostValueError(msg)
        return cls(*_LAYOUT.unpack(data))


class ValueLog:
    """The files of one store.

    Invariant: a value that was appended and not released can be read, also after a SIGKILL at any moment.
    """

    def __init__(self, folder: Path, held: Iterable[Pointer] = (), file_bytes: int = FILE_BYTES) -> None:
        """`held` are the pointers that the store holds; a file that has none of their values is removed."""
        self.folder, self._file_bytes = folder, file_bytes
        self._held = Counter(pointer.file for pointer in held)
        there = [int(path.stem) for path in folder.glob(f"*{_SUFFIX}")]
        # A file that was left is never appended to: it may end with half a value, which no pointer knows.
        self._number = max(there, default=-1)
        self._file: FileIO | None = None
        for number in there:
            self._remove_if_unused(number)

    def append(self, value: bytes) -> Pointer:
        """Write the value; the operating system has all of it on return.

        Raises:
            OSError: it can't be written; nothing points to what came of it.
        """
        if self._file is None or self._file.tell() >= self._file_bytes:
            self._begin_file()
        assert self._file is not None
        pointer = Pointer(self._number, self._file.tell(), len(value), zlib.crc32(value))
        rest = memoryview(value)
        while rest:
            written = self._file.write(rest)
            if not written:
                msg = f"{self._path(self._number)}: {len(rest)} bytes could not be written"
                raise OSError(msg)
            rest = rest[written:]
        self._held[self._number] += 1
        return pointer

    def read(self, pointer: Pointer) -> bytes:
        """The value.

        Raises:
            LostValueError: the file is gone, too short or damaged.
        """
        path = self._path(pointer.file)
        try:
            with path.open("rb") as file:
                file.seek(pointer.offset)
                value = file.read(pointer.size)
        except OSError as error:
            raise LostValueError(str(error)) from error
        if len(value) != pointer.size or zlib.crc32(value) != pointer.crc32:
            msg = f"{path}: the value of {pointer.size} bytes at {pointer.offset} is damaged"
            raise LostValueError(msg)
        return value

    def release(self, pointer: Pointer) -> None:
        """Give up a value whose pointer the store has forgotten for good, also after a SIGKILL."""
        self._held[pointer.file] -= 1
        if self._file is None or pointer.file != self._number:
            self._remove_if_unused(pointer.file)

    def close(self) -> None:
        """Close the file that is written; `append` would begin another one."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._remove_if_unused(self._number)

    def _begin_file(self) -> None:
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        self._file = FileIO(self._path(self._number), "xb")

    def _remove_if_unused(self, number: int) -> None:
        if self._held[number] <= 0:
            del self._held[number]
            self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}{_SUFFIX}"
