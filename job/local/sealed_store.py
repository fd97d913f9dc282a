"""The durable state of a job of the local runtime: a RocksDB folder whose entries have checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from freshet.files.json_file import DamagedFileError
from freshet.operators.dataflow import PARTITIONER
from freshet.operators.epochs.journal import JOURNAL_KEYS
from freshet.state.checksums.entries import SealedEntries
from freshet.state.rocks_backend import BUFFER_BYTES, LostValueError, RocksStore
from freshet.state.sweep import Mutations

_KEPT_BYTES = 64 << 20  # of a part's values, from the first reading to the second
_WAY = "begin again in a new folder, from the job's snapshot or the beginning of its events"


class _StoredEntries(Mapping[str, bytes]):
    """The entries of one part, all of which were checked: a state that is larger than memory is read piece by piece."""

    def __init__(
        self, sealed: SealedEntries, items: Iterable[tuple[str, bytes]], value_of: Callable[[str], bytes]
    ) -> None:
        """`items` are read to their end; `value_of` returns the value of a stored key again."""
        self._sealed, self._value_of = sealed, value_of
        self._kept = dict[str, bytes | None]()
        room = _KEPT_BYTES
        for key, value in sealed.opened(items):
            room -= len(value)
            self._kept[key] = value if room >= 0 else None

    def __getitem__(self, key: str) -> bytes:
        value = self._kept[key]
        return self._sealed.read(key, self._value_of) if value is None else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


class SealedStore:
    """The entries of all operators of a job; a commit is atomic."""

    def __init__(self, folder: Path, budget_bytes: int = 0) -> None:
        """Open the folder, or make it; of a `budget_bytes` of memory it takes a small share.

        Raises: DamagedFileError naming the folder; so do the others.
        """
        self._folder = folder
        with self._named():
            buffer = max(BUFFER_BYTES // 16, min(BUFFER_BYTES, budget_bytes // 32)) if budget_bytes else BUFFER_BYTES
            self._store = RocksStore(folder, (PARTITIONER, JOURNAL_KEYS), buffer)
        self._sealed: dict[str, SealedEntries] = {}

    def entries(self, name: str) -> Mapping[str, bytes]:
        """Every entry of one operator's part; to be read before any of it is changed."""
        sealed = self._sealed[name] = SealedEntries(name)
        with self._named():
            return _StoredEntries(sealed, self._store.items(name), self._value_of(name))

    def _value_of(self, name: str) -> Callable[[str], bytes]:
        def value(stored: str) -> bytes:
            with self._named():
                return self._store.value(name, stored)

        return value

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
