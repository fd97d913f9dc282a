"""The events that wait for their epoch, by lane.

A lane is a sequence that comes back in the same order whenever it is read again: one partition of a Kafka topic, or
all files together, which one subtask reads one after the other. Between lanes there is no order but the one that the
cuts record: how many events of each lane an epoch takes. In an epoch the events apply by (source, partition, offset).

After a restore an epoch may wait for events of one partition that come long after those of the others: the source reads
each at its own pace, and none can be stopped alone. So any number of blocks may wait: in memory up to a bound, the
others in a file.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import takewhile
from typing import NamedTuple

from freshet.operators.epochs.config import WAITING_BYTES
from freshet.operators.epochs.cut import FILES, Cut, Lane, LostCutError, lane_of
from freshet.operators.epochs.event_time import EventTime, SavedTime
from freshet.operators.spill_file import Spilled, SpillFile
from freshet.operators.telemetry.level import Level
from freshet.partitioner.events import EventRange, Events


class _Block(NamedTuple):
    """A journaled block with its events, or where they stand in the file."""

    number: int  # in the order of arrival
    lane: Lane
    first: int  # number of its first event in the lane
    end: int  # number after its last one
    size: int  # bytes
    events: Events | Spilled


@dataclass(slots=True)
class _Lane:
    """Received and sealed events of one lane, and its blocks in between."""

    sealed: int = 0  # number of its first event that is not sealed
    accepted: int = 0  # number after its last event
    read_up_to: tuple[int, int] = (-1, -1)  # source, and position in it
    blocks: deque[_Block] = field(default_factory=deque)


class Lanes:
    """Events in the order of their lanes, withdrawn by number.

    Args:
        topics: the sources (by index) whose partitions are lanes of their own; all others are files.
        bound: bytes of blocks that wait in memory; what is more waits in a file.
        epoch_events: events that are an epoch, so that no more of them wait while nothing else decides.
        time: the open interval of event time; None: epochs do not end by it. Events of later ones wait, any number.

    Invariants: a lane's blocks follow one another without a gap, from the one with its first event that is not sealed.
    The blocks in memory have at most `bound` bytes, beside the first one of each lane.
    """

    def __init__(
        self,
        topics: frozenset[int] = frozenset(),
        bound: int = WAITING_BYTES,
        epoch_events: int = 0,
        time: EventTime | None = None,
    ) -> None:
        self._topics, self._bound, self._epoch_events, self.time = topics, bound, epoch_events, time
        self._lanes: dict[Lane, _Lane] = {}
        self.accepted = 0  # events that came, of all lanes
        self.sealed = 0  # events that were withdrawn
        self._events = Level(epoch_events if time is None else None)
        self._bytes = Level(bound)  # of the blocks in memory that hold events which were not
        self._file = SpillFile("events")  # the other ones
        self.levels = {
            "waiting_events": self._events,
            "waiting_bytes": self._bytes,
            "waiting_file_bytes": self._file.level,
        }
        self._largest_events = self._largest_bytes = 0  # of the largest block so far

    def restore(self, sealed: Mapping[Lane, int], times: Mapping[Lane, SavedTime] | None = None) -> None:
        """Begin after a cut, with these numbers of sealed events by lane, and the times of these."""
        self._lanes = {lane: _Lane(end, end) for lane, end in sealed.items()}
        if self.time is not None:
            self.time.restore(times or {})
        self.accepted = self.sealed = sum(sealed.values())

    def lane_of(self, events: Events) -> Lane:
        """The lane of a block."""
        return lane_of(events.end_source, events.end_partition, self._topics)

    def next_number(self, lane: Lane) -> int:
        """The number of a lane's next event."""
        return self._lanes[lane].accepted if lane in self._lanes else 0

    def add_block(self, number: int, first: int, events: Events, size: int = 0) -> None:
        """Add a block that arrived, or one of the journal; `size` is what it counts in the levels.

        Raises:
            LostCutError: the events before it are missing.
            OSError: the file can't be written.
        """
        lane = self.lane_of(events)
        one = self._lanes.setdefault(lane, _Lane())
        if not one.blocks and first > one.sealed:
            msg = f"the journal begins at event {first}, the cut to replay from is at {one.sealed}"
            raise LostCutError(msg)
        end = first + len(events)
        one.read_up_to = max(one.read_up_to, (events.end_source, events.end_position))
        if self.time is not None and end >= one.accepted:
            ts = None if events.ts is None else events.ts[one.accepted - first :]
            self.time.add(lane, one.accepted, ts, (events.end_source, events.end_position))
        self.accepted += max(0, end - one.accepted)
        one.accepted = max(one.accepted, end)
        self._largest_events = max(self._largest_events, len(events))
        if self.time is None:
            self._events.bound = self._epoch_events + self._largest_events
        self._events.set(self.waiting)
        if end > one.sealed:
            self._largest_bytes = max(self._largest_bytes, size)
            self._bytes.bound = self._bound + len(self._lanes) * self._largest_bytes
            held: Events | Spilled = events
            if one.blocks and self._bytes.now + size > self._bound:
                held = self._file.spill(events.encode())
            else:
                self._bytes.add(size)
            one.blocks.append(_Block(number, lane, first, end, size, held))

    @property
    def waiting(self) -> int:
        """Events that came and are not sealed."""
        return self.accepted - self.sealed

    @property
    def peak_bytes(self) -> int:
        """Bytes that have waited at most, in memory and in the file."""
        return self._bytes.peak + self._file.level.peak

    def forget_peaks(self) -> None:
        """Reset the peaks of the levels."""
        for level in self.levels.values():
            level.peak = level.now

    def sealed_by_lane(self) -> dict[Lane, int]:
        """Return the number of sealed events of each lane."""
        return {lane: one.sealed for lane, one in self._lanes.items()}

    def saved_times(self) -> dict[Lane, SavedTime]:
        """Return the times of the sealed events of each lane; none where epochs do not end by event time."""
        return {} if self.time is None else self.time.saved()

    def waiting_by_lane(self) -> Counter[Lane]:
        """Return the number of waiting events of each lane."""
        return Counter({lane: one.accepted - one.sealed for lane, one in self._lanes.items()})

    def read_up_to(self) -> dict[Lane, tuple[int, int]]:
        """The source, and the position in it, that each lane has been read up to."""
        return {lane: one.read_up_to for lane, one in self._lanes.items()}

    @property
    def open(self) -> int:
        """Events that wait and may be in the next epoch."""
        return self.waiting if self.time is None else self.open_by_lane().total()

    def open_by_lane(self) -> Counter[Lane]:
        """Return the number of events of each lane that may be in the next epoch."""
        return Counter({lane: end - self._lanes[lane].sealed for lane, end in self._open_ends().items()})

    def _open_ends(self) -> dict[Lane, int]:
        """The number after the last event of each lane that may be in the next epoch."""
        time, lanes = self.time, self._lanes.items()
        return {lane: one.accepted if time is None else time.open_end(lane, one.accepted) for lane, one in lanes}

    def counts_of_oldest(self, count: int) -> Mapping[Lane, int]:
        """Return the number of events of each lane among the next `count` open ones, in the order of arrival."""
        if len(self._lanes) == 1 and self.time is None:
            (lane,) = self._lanes
            return {lane: min(count, self.waiting)}
        counts: Counter[Lane] = Counter()
        ends = self._open_ends()
        for block in self._blocks_by_arrival(ends):
            start = max(block.first, self._lanes[block.lane].sealed)
            share = min(count, min(block.end, ends[block.lane]) - start)
            counts[block.lane] += share
            count -= share
            if count == 0:
                break
        return counts

    def _blocks_by_arrival(self, ends: Mapping[Lane, int]) -> Iterator[_Block]:
        """The blocks with events before these numbers; without event time all blocks."""
        lanes: list[Iterable[_Block]] = [one.blocks for one in self._lanes.values() if one.blocks]
        if self.time is not None:  # any number of later ones may wait
            lanes = [takewhile(lambda block: block.first < ends[block.lane], blocks) for blocks in lanes]
        return iter(lanes[0]) if len(lanes) == 1 else merge(*lanes)  # the number of a block decides

    def counts_of(self, cut: Cut) -> Counter[Lane]:
        """Return the number of events of each lane in the next epoch, by its cut.

        Raises:
            LostCutError: they don't lead to the number of events that the cut ends at.
        """
        counts: Counter[Lane] = Counter()
        for share in cut.shares:
            counts[lane_of(share.source, share.partition, self._topics)] += share.events
        rest = cut.end - self.sealed - counts.total()
        if cut.shares and rest:
            msg = (
                f"epoch {cut.epoch} ends at event {cut.end}, but the {counts.total()} events of its cut end at "
                f"{cut.end - rest}"
            )
            raise LostCutError(msg)
        if rest:
            counts[FILES] = rest
        return counts

    def lacking(self, counts: Mapping[Lane, int]) -> list[Lane]:
        """The lanes of which fewer events wait than that."""
        waiting = self.waiting_by_lane()
        return [lane for lane, count in counts.items() if count > waiting[lane]]

    def withdraw(self, counts: Mapping[Lane, int]) -> list[EventRange]:
        """Remove waiting events by lane, and return them as pieces in the order of (source, partition, offset).

        Raises:
            LostCutError: they have not all come.
        """
        pieces: list[EventRange] = []
        for lane, count in counts.items():
            if count > 0:
                pieces += self._withdraw_from(lane, count)
                if self.time is not None:
                    self.time.seal(lane, self._lanes[lane].sealed)
        if len(counts) > 1:
            pieces.sort(key=lambda piece: piece.end[:2])
        self._events.set(self.waiting)
        return pieces

    def _withdraw_from(self, lane: Lane, count: int) -> Iterator[EventRange]:
        one = self._lanes.setdefault(lane, _Lane())
        end = one.sealed + count
        while one.blocks and one.sealed < end:
            block = one.blocks[0]
            if block.first > one.sealed:
                break
            stop = min(end, block.end)
            piece = EventRange(self._load_first(one.blocks), one.sealed - block.first, stop - block.first)
            self.sealed += stop - one.sealed
            one.sealed = stop
            if one.sealed == block.end:
                one.blocks.popleft()
                self._bytes.take(block.size)
            if piece.size:  # a block of rejected records has none
                yield piece
        if one.sealed < end:
            begin = end - count
            msg = f"has events {begin} to {end}, the journal has {one.sealed - begin} of them"
            raise LostCutError(msg if lane == FILES else f"{msg} (source {lane[0]}, partition {lane[1]})")

    def _load_first(self, blocks: deque[_Block]) -> Events:
        """The events of a lane's first block, which is in memory from now on."""
        first = blocks[0]
        if isinstance(first.events, Events):
            return first.events
        events = Events.decode(self._file.fetch(first.events))
        self._bytes.add(first.size)
        blocks[0] = first._replace(events=events)
        return events

    def close(self) -> None:
        """Drop what waits in the file."""
        self._file.close()
