"""Where entries of durable state live: one contract, three bodies (a dict, RocksDB by rocksdict, Flink keyed state).

Contract:
    put(key, value)   the entry holds `value` from now on
    delete(key)       the entry is gone; deleting what is not there is no error
    items()           every entry once, in any order
The Flink body is in `state/flink_backend.py`. `tests/unit/state/backend_contract.py` is run against all three.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from rocksdict import AccessType, DBCompressionType, Options, Rdict, WriteBatch

from state.sweep import Mutations


class Backend(Protocol):
    """Entries of one operator's part."""

    def put(self, key: str, value: bytes) -> None:
        """Set an entry."""

    def delete(self, key: str) -> None:
        """Remove an entry."""

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Every entry."""


class DictBackend:
    """Entries in memory, for tests and the simulator."""

    def __init__(self, entries: dict[str, bytes] | None = None) -> None:
        self.entries = dict(entries or {})

    def put(self, key: str, value: bytes) -> None:
        """Set an entry."""
        self.entries[key] = value

    def delete(self, key: str) -> None:
        """Remove an entry."""
        self.entries.pop(key, None)

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Every entry."""
        return iter(list(self.entries.items()))


class RocksStore:
    """A RocksDB folder shared by all operators of the local runtime; a commit is atomic and survives SIGKILL."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(64 << 20)
        # pages and journal blocks are large and numeric: written once to blob files, not squeezed and moved about
        options.set_compression_type(DBCompressionType.none())
        options.set_enable_blob_files(True)
        options.set_min_blob_size(4096)
        options.set_enable_blob_gc(True)
        self._db = Rdict(str(folder), options, access_type=AccessType.read_write())

    def commit(self, mutations: dict[str, Mutations]) -> None:
        """Apply the mutations of several operators, all or nothing."""
        batch = WriteBatch(raw_mode=True)
        for name, changes in mutations.items():
            for key, value in changes.puts:
                batch.put(f"{name}|{key}".encode(), value)
            for key in changes.deletes:
                batch.delete(f"{name}|{key}".encode())
        self._db.write(batch)

    def part(self, name: str) -> RocksBackend:
        """The entries of one operator's part."""
        return RocksBackend(self._db, name)

    def close(self) -> None:
        """Close the folder; another process may open it then."""
        self._db.close()


class RocksBackend:
    """Entries of one operator's part in a RocksDB folder, under the prefix `name|`."""

    def __init__(self, db: Rdict, name: str) -> None:
        self._db, self._prefix = db, f"{name}|".encode()

    def put(self, key: str, value: bytes) -> None:
        """Set an entry."""
        self._db[self._prefix + key.encode()] = value

    def delete(self, key: str) -> None:
        """Remove an entry."""
        del self._db[self._prefix + key.encode()]

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Every entry."""
        for key, value in self._db.items(from_key=self._prefix):
            assert isinstance(key, bytes)  # raw mode
            assert isinstance(value, bytes)
            if not key.startswith(self._prefix):
                break
            yield key[len(self._prefix) :].decode(), value
