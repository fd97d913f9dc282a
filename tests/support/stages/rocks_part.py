"""One part's entries in a RocksDB folder, for tests that ask of every backend the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from freshet.state.rocks_backend import RocksStore
from freshet.state.sweep import Mutations
from tests.support.backend import Backend


class RocksPart(Backend):
    """Entries of one operator's part; each call that changes some is a commit of its own."""

    def __init__(self, store: RocksStore, name: str) -> None:
        self._store, self._name = store, name

    def apply(self, puts: Sequence[tuple[str, bytes]], deletes: Sequence[str]) -> None:
        """Set entries, then remove some."""
        self._store.commit({self._name: Mutations(list(puts), list(deletes))})

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Every entry."""
        return self._store.items(self._name)
