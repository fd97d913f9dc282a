"""The events that wait for their epoch, by lane.

A lane is a sequence that comes back in the same order whenever it is read again: one partition of a Kafka topic, or
all files together, which one subtask reads one after the other. Between lanes there is no order but the one that the
cuts record: how many events of each lane an epoch takes. In an epoch the events apply by (source, partition, offset).

After a restore an epoch may wait for events of one partition that come long after those of the others: the source reads
each at its own pace, and none can be stopped alone. So the blocks that wait have no bound in number, but in memory.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from typing import NamedTuple

from operators.epochs.cut import FILES, Cut, Lane, LostCutError
from operators.spill_file import Aside, AsideFile
from operators.telemetry.level import Level
from partitioner.events import Events

WAITING_BYTES = 32 << 20


class _Block(NamedTuple):
    """A journaled block: its number in the order of arrival, lane, its events' numbers in the lane, bytes, events."""

    number: int
    lane: Lane
    first: int
    end: int
    size: int
    events: Events | Aside


@dataclass(slots=True)
class _Waiting:
    """One lane."""

    start: int = 0  # number of its first event that is not sealed
    accepted: int = 0  # number after its last event
    passed: tuple[int, int] = (-1, -1)  # source, and position in it, that it has been read up to
    blocks: deque[_Block] = field(default_factory=deque)


class Lanes:
    """Events in the order of their lanes, as many of each as an epoch asks for.

    Args:
        streams: the sources (by index) whose partitions are lanes of their own; all others are files.
        bound: bytes of blocks that wait in memory; what is more waits in a file.

    Invariants: a lane's blocks follow one another without a gap, from the one that event `start` is in. The blocks in
    memory have at most `bound` bytes, beside the first one of each lane.
    """

    def __init__(self, streams: frozenset[int] = frozenset(), bound: int = WAITING_BYTES) -> None:
        self._streams, self._bound = streams, bound
        self._lanes: dict[Lane, _Waiting] = {}
        self.accepted = 0  # events that came, of all lanes
        self.sealed = 0  # events that were taken
        self._bytes = Level(bound)  # of the blocks in memory that hold events which were not
        self._file = AsideFile("events")  # the other ones
        self.levels = {"waiting_bytes": self._bytes, "waiting_file_bytes": self._file.level}
        self._largest = 0  # bytes of the largest block so far

    def restore(self, ends: Mapping[Lane, int]) -> None:
        """Begin where a cut ended: so many events of each lane are sealed."""
        self._lanes = {lane: _Waiting(end, end) for lane, end in ends.items()}
        self.accepted = self.sealed = sum(ends.values())

    def lane_of(self, events: Events) -> Lane:
        """The lane of a block."""
        return (events.end_source, events.end_partition) if events.end_source in self._streams else FILES

    def next_number(self, lane: Lane) -> int:
        """The number of a lane's next event."""
        return self._lanes[lane].accepted if lane in self._lanes else 0

    def add(self, number: int, first: int, events: Events, size: int = 0) -> None:
        """Take a block that arrived, or one of the journal; `size` is what it counts in the levels.

        Raises:
            LostCutError: the events before it are missing.
            OSError: the file can't be written.
        """
        lane = self.lane_of(events)
        waiting = self._lanes.setdefault(lane, _Waiting())
        if not waiting.blocks and first > waiting.start:
            message = f"the journal begins at event {first}, the cut to replay from is at {waiting.start}"
            raise LostCutError(message)
        end = first + len(events)
        waiting.passed = max(waiting.passed, (events.end_source, events.end_position))
        self.accepted += max(0, end - waiting.accepted)
        waiting.accepted = max(waiting.accepted, end)
        if end > waiting.start:
            self._largest = max(self._largest, size)
            self._bytes.bound = self._bound + len(self._lanes) * self._largest
            held: Events | Aside = events
            if waiting.blocks and self._bytes.now + size > self._bound:
                held = self._file.put(events.encode())
            else:
                self._bytes.add(size)
            waiting.blocks.append(_Block(number, lane, first, end, size, held))

    @property
    def waiting(self) -> int:
        """Events that came and are not sealed."""
        return self.accepted - self.sealed

    def ends(self) -> dict[Lane, int]:
        """How many events of each lane are sealed."""
        return {lane: waiting.start for lane, waiting in self._lanes.items()}

    def oldest(self, count: int) -> Counter[Lane]:
        """How many of the next `count` events, in the order of arrival, each lane has."""
        counts: Counter[Lane] = Counter()
        for block in self._arrived():
            start = max(block.first, self._lanes[block.lane].start)
            taken = min(count, block.end - start)
            counts[block.lane] += taken
            count -= taken
            if count == 0:
                break
        return counts

    def _arrived(self) -> Iterator[_Block]:
        lanes = [waiting.blocks for waiting in self._lanes.values() if waiting.blocks]
        return iter(lanes[0]) if len(lanes) == 1 else merge(*lanes)  # the number of a block decides

    def all(self) -> Counter[Lane]:
        """How many events of each lane wait."""
        return Counter({lane: one.accepted - one.start for lane, one in self._lanes.items()})

    def passed(self) -> dict[Lane, tuple[int, int]]:
        """The source, and the position in it, that each lane has been read up to."""
        return {lane: one.passed for lane, one in self._lanes.items()}

    def counts_of(self, cut: Cut) -> Counter[Lane]:
        """How many events of each lane the next epoch has, by its cut.

        Raises:
            LostCutError: they don't lead to the number of events that the cut ends at.
        """
        counts: Counter[Lane] = Counter()
        for share in cut.shares:
            counts[(share.source, share.partition) if share.source in self._streams else FILES] += share.events
        rest = cut.end - self.sealed - counts.total()
        if cut.shares and rest:
            message = f"ends at event {cut.end}, but {counts.total()} more than {self.sealed} are {cut.end - rest}"
            raise LostCutError(message)
        if rest:
            counts[FILES] = rest
        return counts

    def missing(self, counts: Mapping[Lane, int]) -> list[Lane]:
        """The lanes whose events have not all come."""
        waiting = self.all()
        return [lane for lane, count in counts.items() if count > waiting[lane]]

    def take(self, counts: Mapping[Lane, int]) -> list[Events]:
        """The next events of each lane, as pieces in the order of (source, partition, offset)."""
        pieces: list[Events] = []
        for lane, count in counts.items():
            if count > 0:
                pieces += self._take(lane, count)
        if len(counts) > 1:
            pieces.sort(key=lambda piece: (piece.end_source, piece.end_partition))
        return pieces

    def _take(self, lane: Lane, count: int) -> Iterator[Events]:
        waiting = self._lanes.setdefault(lane, _Waiting())
        end = waiting.start + count
        while waiting.blocks and waiting.start < end:
            block = waiting.blocks[0]
            if block.first > waiting.start:
                break
            events = self._fetch(waiting.blocks)
            piece = events.slice(waiting.start - block.first, min(end, block.end) - block.first)
            waiting.start += len(piece)
            self.sealed += len(piece)
            if waiting.start == block.end:
                waiting.blocks.popleft()
                self._bytes.take(block.size)
            if len(piece):  # a block of rejected records has none
                yield piece
        if waiting.start < end:
            begin = end - count
            message = f"has events {begin} to {end}, the journal has {waiting.start - begin} of them"
            raise LostCutError(message if lane == FILES else f"{message} (source {lane[0]}, partition {lane[1]})")

    def _fetch(self, blocks: deque[_Block]) -> Events:
        """The events of a lane's first block, which is in memory from now on."""
        first = blocks[0]
        if isinstance(first.events, Events):
            return first.events
        events = Events.decode(self._file.take(first.events))
        self._bytes.add(first.size)
        blocks[0] = first._replace(events=events)
        return events

    def close(self) -> None:
        """Drop what waits in the file."""
        self._file.close()
