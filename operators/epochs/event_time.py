"""Ends of epochs by the `ts` of events: intervals of event time, by lane and for the job.

The interval of an event is floor(largest `ts` of its lane so far / length): late events, and events without a `ts`, are
in that of the events before them. So it depends on the order of the lane alone, and not on what other lanes do.

Contract:
    - an epoch holds no event of an interval after the job's; such an event waits, and what follows it in its lane;
    - the job's interval ends when every lane that counts has an event of a later one, is at its end, or is idle; one
      at least has such an event. What is open becomes an epoch, and the earliest interval that waits is the next one;
    - a lane counts from the begin where it is expected, else from its first event.

Without an idle lane, the events before an end are therefore a function of the lanes, whatever order they arrive in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from freshet.operators.epochs.cut import Lane
from freshet.partitioner.events import NO_TS

NEVER = NO_TS  # the interval of events before the first `ts`
NO_END = -1  # position where a source that is read for ever ends
# Most of the time between two calls that counts as idle: a process that stands still makes no lane idle.
_STEP_MS = 2000.0


class Mark(NamedTuple):
    """The first event of an interval in its lane, by number."""

    number: int
    interval: int


class Doubt(NamedTuple):
    """An event whose `ts` is far ahead, by number: the next `ts` of the lane decides whether it counts."""

    number: int
    ts: int


class LaneTime(NamedTuple):
    """Interval of a lane after an event; `doubt`: of an event since."""

    interval: int = NEVER
    doubt: Doubt | None = None


class SavedTime(NamedTuple):
    """Saved time of a lane: the begin of its sealed events' interval, and the source and position it was read up to.

    Units: begin_ms milliseconds, since the next run may have intervals of another length.
    """

    begin_ms: int
    source: int
    position: int


class IntervalRule:
    """The rule by which `ts` become intervals.

    A `ts` that is more than `jump_ms` past the end of the lane's interval ends it only if the next `ts` is, too: a
    wrong time does not put all later events into a far interval. 0: any does.
    """

    def __init__(self, length_ms: int, jump_ms: int = 0) -> None:
        self._length_ms, self._jump_ms = length_ms, jump_ms

    def marks(self, time: LaneTime, ts: np.ndarray, first: int) -> tuple[list[Mark], LaneTime]:
        """Return the marks of a lane's next events, numbered from `first` on, and its time after them.

        Shapes: ts (n,) int64, NO_TS without
        """
        own = np.where(ts == NO_TS, NEVER, ts // self._length_ms)
        so_far = np.maximum.accumulate(np.append(time.interval, own))
        if self._jump_ms:
            is_far = (ts - self._jump_ms) // self._length_ms > so_far[:-1]
            if time.doubt is not None or (is_far & (ts != NO_TS) & (so_far[:-1] != NEVER)).any():
                return self._marks_by_event(time, ts, first)
        rows = np.flatnonzero(so_far[1:] != so_far[:-1])
        marks = [Mark(first + row, so_far.item(row + 1)) for row in rows.tolist()]
        return marks, LaneTime(so_far.item(-1))

    def begin_ms(self, interval: int) -> int:
        """Return the begin of an interval; of the one before all times that time itself."""
        return NEVER if interval == NEVER else max(interval * self._length_ms, NEVER + 1)

    def interval_of(self, ts: int) -> int:
        """Return the interval of a time."""
        return NEVER if ts == NEVER else ts // self._length_ms

    def _marks_by_event(self, time: LaneTime, ts: np.ndarray, first: int) -> tuple[list[Mark], LaneTime]:
        """The same, event by event, where some `ts` are far ahead."""
        marks, (interval, doubt) = list[Mark](), time
        for number, one in enumerate(ts.tolist(), first):
            if one == NO_TS:
                continue
            if doubt is not None and self._is_far(one, interval):
                interval = min(doubt.ts, one) // self._length_ms
                marks.append(Mark(doubt.number, interval))
            doubt = Doubt(number, one) if self._is_far(one, interval) else None
            if doubt is None and one // self._length_ms > interval:
                interval = one // self._length_ms
                marks.append(Mark(number, interval))
        return marks, LaneTime(interval, doubt)

    def _is_far(self, ts: int, interval: int) -> bool:
        return interval != NEVER and (ts - self._jump_ms) // self._length_ms > interval


@dataclass(slots=True)
class _Lane:
    """Time of a lane after its accepted events, the interval of its sealed ones, and the marks in between."""

    sealed: int = NEVER
    time: LaneTime = field(default_factory=LaneTime)
    marks: deque[Mark] = field(default_factory=deque)
    read_up_to: tuple[int, int] = (-1, -1)  # source, and position in it
    heard_ms: float = 0.0  # when its last event with a `ts` came, by the clock of `EventTime`


class EventTime:
    """The open interval of a job, and which events of each lane are in it.

    Args:
        rule: makes intervals of `ts`.
        idle_ms: a lane without an event with a `ts` for so long is passed over; 0: none is.
        ends: the expected lanes, and the source and position at which each ends (NO_END: nowhere).
    """

    def __init__(self, rule: IntervalRule, idle_ms: float, ends: Mapping[Lane, tuple[int, int]] | None = None) -> None:
        self._rule, self._idle_ms, self._ends = rule, idle_ms or float("inf"), ends or {}
        self._lanes: dict[Lane, _Lane] = {lane: _Lane() for lane in self._ends}
        self.has_ts = False  # whether any event had a `ts`
        self._interval = NEVER
        self._is_over = False  # the whole input has ended
        self._clock_ms, self._last_ms = 0.0, float("inf")
        self._awaited: Lane | None = None  # one that keeps the interval open, as of the last look

    # -- lanes --------------------------------------------------------------------------------------------------

    def restore(self, saved: Mapping[Lane, SavedTime]) -> None:
        """Begin with the lanes of a state."""
        for lane, one in saved.items():
            interval, read_up_to = self._rule.interval_of(one.begin_ms), (one.source, one.position)
            self._lanes[lane] = _Lane(interval, LaneTime(interval), read_up_to=read_up_to)
            self._interval = max(self._interval, interval)
        self.has_ts = self.has_begun

    def saved(self) -> dict[Lane, SavedTime]:
        """Return what a state that is saved now says of each lane."""
        begin_ms = self._rule.begin_ms
        return {lane: SavedTime(begin_ms(one.sealed), *one.read_up_to) for lane, one in self._lanes.items()}

    def add(self, lane: Lane, first: int, ts: np.ndarray | None, read_up_to: tuple[int, int]) -> None:
        """Take the next events of a lane, numbered from `first` on; it has been read up to that source and position.

        Shapes: ts (n,) int64; None: no event has any
        """
        one = self._lanes.setdefault(lane, _Lane())
        one.read_up_to = max(one.read_up_to, read_up_to)
        if ts is None or not (ts != NO_TS).any():
            return
        self.has_ts, one.heard_ms = True, self._clock_ms
        marks, one.time = self._rule.marks(one.time, ts, first)
        one.marks.extend(marks)

    def seal(self, lane: Lane, end: int) -> None:
        """Note that the events of a lane before number `end` are in epochs."""
        one = self._lanes.setdefault(lane, _Lane())
        while one.marks and one.marks[0].number < end:
            one.sealed = one.marks.popleft().interval
        self._interval = max(self._interval, one.sealed)

    def open_end(self, lane: Lane, accepted: int) -> int:
        """Return the number after the last open one of the `accepted` events of a lane."""
        if lane not in self._lanes:
            return accepted
        doubt, mark = self._lanes[lane].time.doubt, self._later(lane)
        return mark.number if mark is not None else doubt.number if doubt is not None else accepted

    def _later(self, lane: Lane) -> Mark | None:
        """The first event of a lane of an interval after the job's."""
        return next((mark for mark in self._lanes[lane].marks if mark.interval > self._interval), None)

    # -- the open interval --------------------------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        """True if an interval is open; events before the first `ts` belong to the first one."""
        return self._interval != NEVER

    def end(self) -> None:
        """Note the end of the whole input."""
        self._is_over = True

    def look(self, now_ms: float) -> None:
        """Let the clock of idle lanes go on. An event in doubt that nothing follows does not count."""
        self._clock_ms += min(max(now_ms - self._last_ms, 0.0), _STEP_MS)
        self._last_ms = now_ms
        for lane, one in self._lanes.items():
            if one.time.doubt is not None and self._is_passed(lane):
                one.time = LaneTime(one.time.interval)

    def has_ended(self) -> bool:
        """Return whether the open interval has ended; False while no lane has an event of a later one."""
        if self._awaited is not None and self._is_awaited(self._awaited):
            return False
        self._awaited = next(filter(self._is_awaited, self._lanes), None)
        return self._awaited is None and any(True for _ in self._later_marks())

    def advance(self) -> None:
        """Open the earliest interval that waits; the one before has ended, and its events are in epochs."""
        self._interval = min(mark.interval for mark in self._later_marks())

    def _later_marks(self) -> Iterator[Mark]:
        return (mark for lane in self._lanes if (mark := self._later(lane)) is not None)

    def _is_awaited(self, lane: Lane) -> bool:
        """Return whether a lane may still have events of the open interval."""
        return self._later(lane) is None and not self._is_passed(lane)

    def _is_passed(self, lane: Lane) -> bool:
        """Return whether a lane is at its end, or idle."""
        one, (source, end) = self._lanes[lane], self._ends.get(lane, (0, NO_END))
        is_at_end = end != NO_END and one.read_up_to >= (source, end)
        return self._is_over or is_at_end or self._clock_ms - one.heard_ms >= self._idle_ms
