"""Entries of keyed state as a restore gets them: pairs, or a mapping whose values are read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

Entries = Mapping[str, bytes] | Iterable[tuple[str, bytes]]


def mapping_of(entries: Entries) -> Mapping[str, bytes]:
    """Return the entries by key."""
    return entries if isinstance(entries, Mapping) else dict(entries)


class SomeEntries(Mapping[str, bytes]):
    """Entries whose keys are wanted, of a mapping."""

    def __init__(self, entries: Mapping[str, bytes], is_wanted: Callable[[str], bool]) -> None:
        self._entries = entries
        self._keys = dict.fromkeys(filter(is_wanted, entries))

    def __getitem__(self, key: str) -> bytes:
        if key not in self._keys:
            raise KeyError(key)
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
