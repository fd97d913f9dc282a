"""Which blocks of events keyed state holds: all from the marker before last on, as many bytes as markers allow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from operators.cut_log import Lane
from operators.levels import Level

JOURNAL_KEYS = "journal/"  # what the keys of its blocks begin with
# The journal may come to as much without a marker on its account. Below that, a marker (which has every changed page
# written once) would cost more than it saves.
JOURNAL_BYTES = 64 << 20


def journal_key(block: int, first: int) -> str:
    """The key of a block: its number, and that of its first event in its lane."""
    return f"{JOURNAL_KEYS}{block:012}/{first}"


def journaled(entries: Mapping[str, bytes]) -> Iterator[tuple[int, int, bytes]]:
    """The journal among the entries of keyed state, in the order of arrival: block number, first event, block."""
    for key in sorted(key for key in entries if key.startswith(JOURNAL_KEYS)):
        block, first = key.removeprefix(JOURNAL_KEYS).split("/")
        yield int(block), int(first), entries[key]


class _Entry(NamedTuple):
    """A block: its key in keyed state, its lane, the number after its last event there, its bytes."""

    key: str
    lane: Lane
    end: int
    size: int


class Journal:
    """Keeps account of the journaled blocks, and says which of them a marker makes needless.

    Units: `level` and `since_marker` bytes, of the blocks as they are encoded.
    Invariant: `since_marker` counts the blocks with events behind the last marker; `level` those behind the one before.
    """

    def __init__(self) -> None:
        self.level = Level()
        self.since_marker = 0
        self._blocks: deque[_Entry] = deque()
        self._markers: list[Mapping[Lane, int]] = [{}]  # where the lanes stood at the last two

    def restore(self, ends: Mapping[Lane, int]) -> None:
        """Begin at a marker, after which each lane has so many events behind it; `add` what was kept."""
        self._markers = [ends]

    def add(self, key: str, lane: Lane, end: int, size: int) -> None:
        """A block is in keyed state."""
        self._blocks.append(_Entry(key, lane, end, size))
        self.since_marker += size
        self.level.add(size)

    def pass_marker(self, ends: Mapping[Lane, int]) -> list[str]:
        """At a marker with the lanes so far: the keys of the blocks that end before the marker before it."""
        keep = self._markers[-1]
        self._markers = [keep, ends]
        gone, kept = [], deque[_Entry]()
        self.since_marker = 0
        for entry in self._blocks:
            if entry.end <= keep.get(entry.lane, 0):
                gone.append(entry.key)
                self.level.take(entry.size)
                continue
            kept.append(entry)
            if entry.end > ends.get(entry.lane, 0):
                self.since_marker += entry.size
        self._blocks = kept
        return gone
