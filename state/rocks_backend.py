"""Durable state in RocksDB: one folder for all operators of the local runtime."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rocksdict import AccessType, DBCompressionType, DBRecoveryMode, Options, Rdict, WriteBatch

from freshet.files.json_file import DamagedFileError
from freshet.state.sweep import Mutations
from freshet.state.value_log import Pointer, ValueLog

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

    def __init__(self, folder: Path, logged: tuple[str, str] | None = None) -> None:
        """`logged`: that operator, and what the keys of those entries begin with; the same each time.

        Raises:
            LostValueError: RocksDB has something else where a pointer must be.
        """
        folder.mkdir(parents=True, exist_ok=True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_keep_log_file_num(8)  # of what it says about itself: one at each start
        options.set_write_buffer_size(64 << 20)
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
