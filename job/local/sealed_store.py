"""The durable state of a job of the local runtime: a RocksDB folder whose entries have checksums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from freshet.files.json_file import DamagedFileError
from freshet.operators.dataflow import PARTITIONER
from freshet.operators.epochs.journal import JOURNAL_KEYS
from freshet.state.checksums.entries import SealedEntries
from freshet.state.rocks_backend import LostValueError, RocksStore
from freshet.state.sweep import Mutations

_WAY = "begin again in a new folder, from the job's snapshot or the beginning of its events"


class SealedStore:
    """The entries of all operators of a job; a commit is atomic."""

    def __init__(self, folder: Path) -> None:
        """Open the folder, or make it.

        Raises: DamagedFileError naming the folder; so do the others.
        """
        self._folder = folder
        with self._named():
            self._store = RocksStore(folder, logged=(PARTITIONER, JOURNAL_KEYS))
        self._sealed: dict[str, SealedEntries] = {}

    def items(self, name: str) -> Iterator[tuple[str, bytes]]:
        """Every entry of one operator's part; to be read to its end before any of it is changed."""
        sealed = self._sealed[name] = SealedEntries(name)
        with self._named():
            yield from sealed.opened(self._store.items(name))

    def commit(self, mutations: Mapping[str, Mutations]) -> None:
        """Apply the mutations of several operators, all or nothing."""
        with self._named():
            self._store.commit({name: self._sealed[name].seal(changes) for name, changes in mutations.items()})

    def close(self) -> None:
        """Close the folder; another process may open it then."""
        self._store.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Say which folder is damaged, and what to do."""
        try:
            yield
        except (DamagedFileError, LostValueError) as error:
            msg = f"the state in {self._folder} is damaged: {error}; {_WAY}"
            raise DamagedFileError(msg) from error
        except Exception as error:  # RocksDB's have no type of their own
            if type(error) is not Exception:
                raise
            msg = f"the state in {self._folder} can't be used: RocksDB says: {error}; if it is damaged, {_WAY}"
            raise DamagedFileError(msg) from error
