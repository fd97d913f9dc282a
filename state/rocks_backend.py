"""Durable state in RocksDB: one folder for all operators of the local runtime."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from rocksdict import AccessType, DBCompressionType, DBRecoveryMode, Options, Rdict, WriteBatch

from freshet.errors import InputError
from freshet.files.json_file import DamagedFileError
from freshet.state.sweep import Mutations

FILE_BYTES = 64 << 20  # after which a new file begins
BUFFER_BYTES = 64 << 20
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
    """Large values in files of their own, beside a store that holds only pointers to them.

    RocksDB writes a large value twice, to its log and to a blob file, the first time with Python's interpreter lock
    held. Here it is written once, without the lock. A file is appended to, never changed, and removed when none of its
    values is needed any more; so this is for values that are deleted about in the order in which they came, as a
    journal's are.
    Source: WiscKey (Lu et al., FAST 2016), section 3.2, without the garbage collection of half-empty files.

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


_CURRENT, _BINDING = "CURRENT", "rocksdict-config.json"
_ADVICE = "put the folder back from a copy, or start the job again in a new --out"


def _full_key(operator: str, key: str) -> bytes:
    return f"{operator}|{key}".encode()


def _refuse_torn(folder: Path) -> None:
    """Refuse a folder of which RocksDB would make an empty one.

    Raises: DamagedFileError.
    """
    config = folder / _BINDING
    with suppress(FileNotFoundError):
        if not config.read_bytes().strip(b"\0"):
            config.unlink()  # says how keys are encoded: `options` does, too
    if not (folder / _CURRENT).exists() and any(folder.glob("MANIFEST-*")):
        msg = f"{folder / _CURRENT}: is missing, and the files beside it mean nothing without it; {_ADVICE}"
        raise DamagedFileError(msg)


class RocksStore:
    """A RocksDB folder shared by all operators of the local runtime; a commit is atomic and survives SIGKILL.

    Where one operator has large entries that come and go in order, RocksDB has pointers to their values, which are in a
    value log in the same folder.
    """

    def __init__(self, folder: Path, logged: tuple[str, str] | None = None, buffer_bytes: int = BUFFER_BYTES) -> None:
        """`logged`: that operator, and what the keys of those entries begin with; the same each time.

        RocksDB has two buffers of `buffer_bytes`, or of a commit if that is larger.

        Raises:
            LostValueError: RocksDB has something else where a pointer must be.
        """
        folder.mkdir(parents=True, exist_ok=True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_keep_log_file_num(8)  # of what it says about itself: one at each start
        options.set_write_buffer_size(buffer_bytes)
        # pages are large and numeric: written once to blob files, not squeezed and moved about
        options.set_compression_type(DBCompressionType.none())
        options.set_enable_blob_files(True)
        options.set_min_blob_size(4096)
        options.set_enable_blob_gc(True)
        # A log that is damaged before its end is refused; by default what comes after the damage would be dropped.
        options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
        _refuse_torn(folder)
        try:
            self._db = Rdict(str(folder), options, access_type=AccessType.read_write())
        except Exception as error:  # it has no class of its own
            msg = f"{folder}: RocksDB can't open it ({' '.join(str(error).split())}); {_ADVICE}"
            raise DamagedFileError(msg) from None
        self._logged = _full_key(*logged) if logged else None
        found = self._from(self._logged) if self._logged else ()
        self._pointers = {key: Pointer.decode(data) for key, data in found}
        self._log = ValueLog(folder / "values", self._pointers.values())

    def commit(self, mutations: dict[str, Mutations]) -> None:
        """Apply the mutations of several operators, all or nothing."""
        batch, released = WriteBatch(raw_mode=True), list[Pointer]()
        for name, changes in mutations.items():
            for entry, value in changes.puts:
                key, data = _full_key(name, entry), value
                if self._logged and key.startswith(self._logged):
                    released += self._forget(key)
                    pointer = self._pointers[key] = self._log.append(value)
                    data = pointer.encode()
                batch.put(key, data)
            for entry in changes.deletes:
                key = _full_key(name, entry)
                batch.delete(key)
                released += self._forget(key)
        self._db.write(batch)
        for pointer in released:  # not before RocksDB has forgotten them
            self._log.release(pointer)

    def items(self, name: str) -> Iterator[tuple[str, bytes]]:
        """Every entry of one operator's part.

        Raises:
            LostValueError: the value log has lost the value of one.
        """
        prefix = _full_key(name, "")
        for key, data in self._from(prefix):
            pointer = self._pointers.get(key)
            yield key[len(prefix) :].decode(), data if pointer is None else self._log.read(pointer)

    def value(self, name: str, key: str) -> bytes:
        """The value of an entry of one operator's part.

        Raises:
            LostValueError: it is gone.
        """
        full = _full_key(name, key)
        pointer = self._pointers.get(full)
        data = self._db.get(full) if pointer is None else self._log.read(pointer)
        if not isinstance(data, bytes):
            msg = f"{name}: the entry {key!r} is gone"
            raise LostValueError(msg)
        return data

    def close(self) -> None:
        """Close the folder; another process may open it then."""
        self._log.close()
        self._db.close()

    def _from(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return RocksDB's entries whose keys begin with `prefix`."""
        for key, data in self._db.items(from_key=prefix):
            assert isinstance(key, bytes)  # raw mode
            assert isinstance(data, bytes)
            if not key.startswith(prefix):
                break
            yield key, data

    def _forget(self, key: bytes) -> list[Pointer]:
        """The pointer that the entry has, if it has one."""
        pointer = self._pointers.pop(key, None)
        return [] if pointer is None else [pointer]
