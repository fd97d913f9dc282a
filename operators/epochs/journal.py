"""The journal: all blocks of events since the marker before last, in keyed state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import orjson

from freshet.operators.epochs.cut import Lane
from freshet.operators.epochs.event_time import SavedTime
from freshet.operators.telemetry.level import Level
from freshet.state.codec import UnknownFormatError
from freshet.state.sweep import Mutations

JOURNAL_KEYS = "journal/"  # what the keys of its blocks begin with
MARKERS_KEY = "markers"  # of the entry that says where the lanes stood at the last two


def journaled_blocks(entries: Mapping[str, bytes]) -> Iterator[tuple[int, int, bytes]]:
    """The journal among the entries of keyed state, in the order of arrival: block number, first event, block."""
    for key in sorted(key for key in entries if key.startswith(JOURNAL_KEYS)):
        number, first = key.removeprefix(JOURNAL_KEYS).split("/")
        yield int(number), int(first), entries[key]


class _Entry(NamedTuple):
    """A block in keyed state."""

    key: str
    lane: Lane
    end: int  # the number after its last event in the lane
    size: int  # bytes


class _Marker(NamedTuple):
    """An epoch, and how many events of each lane it and those before it hold; `times` where event time ends epochs."""

    epoch: int
    ends: Mapping[Lane, int]
    times: Mapping[Lane, SavedTime] = MappingProxyType({})

    def entry(self) -> tuple[int, list[tuple[int, ...]]]:
        """The marker as plain data: each lane with its events, and its time if there is one."""
        lanes = {**dict.fromkeys(self.times, 0), **self.ends}
        return self.epoch, [(*lane, end, *self.times.get(lane, ())) for lane, end in lanes.items()]

    @staticmethod
    def of(epoch: int, lanes: Iterable[Sequence[int]]) -> _Marker:
        """The inverse of `entry`."""
        found = [((source, partition), end, time) for source, partition, end, *time in lanes]
        times = {lane: SavedTime(*time) for lane, _, time in found if time}
        return _Marker(epoch, {lane: end for lane, end, _ in found}, times)


class Journal:
    """Keeps account of the journaled blocks, and says which of them a marker makes needless.

    Units: `level` and `since_marker` bytes, of the blocks as they are encoded.
    Invariant: `since_marker` counts the blocks with events behind the last marker; `level` those behind the one before.
    """

    def __init__(self) -> None:
        self.level = Level()
        self.since_marker = 0
        self.next_number = 0  # of the block that comes next
        self._blocks: deque[_Entry] = deque()
        self._markers: list[_Marker] = [_Marker(0, {})]  # the last two

    def restore(self, epoch: int, markers: bytes | None) -> Mapping[Lane, int]:
        """Begin at the marker `epoch`, one of `markers`; every kept block is then added.

        Returns: Number of events of each lane before it.

        Raises:
            UnknownFormatError: the state does not have it.
        """
        found = {0: _Marker(0, {})}
        for at, lanes in orjson.loads(markers) if markers is not None else ():
            found[at] = _Marker.of(at, lanes)
        if epoch not in found:
            msg = f"the state does not say where the input stood at epoch {epoch}: another version wrote it"
            raise UnknownFormatError(msg)
        self._markers = [found[epoch]]
        return found[epoch].ends

    @property
    def restored_times(self) -> Mapping[Lane, SavedTime]:
        """The times of lanes at the epoch that a state saved now is restored to."""
        return self._markers[0].times

    @property
    def restored_to(self) -> int:
        """The epoch that a state saved now is restored to."""
        return self._markers[0].epoch

    def add_block(self, number: int, first: int, lane: Lane, end: int, size: int) -> str:
        """Count a block with the events `first` to `end` of a lane; returns its key in keyed state."""
        key = f"{JOURNAL_KEYS}{number:012}/{first}"
        self._blocks.append(_Entry(key, lane, end, size))
        self.next_number = number + 1
        self.since_marker += size
        self.level.add(size)
        return key

    def trim(self, epoch: int, ends: Mapping[Lane, int], times: Mapping[Lane, SavedTime] | None = None) -> Mutations:
        """A marker is sealed, and with it the lanes up to `ends`: drop the blocks that end before the previous one."""
        before = self._markers[-1]
        self._markers = [before, _Marker(epoch, ends, times or {})]
        keep = before.ends
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
        # the last two markers, one of which a restore begins at: each with the events of the lanes behind it
        return Mutations([(MARKERS_KEY, orjson.dumps([one.entry() for one in self._markers]))], gone)
