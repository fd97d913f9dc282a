"""Times of events in a graph: some `ts` are not believed, and edges expire by the others.

The clock moves by events alone, so a replay moves it the same way. One wrong `ts` far in the future would expire every
edge, and make every later event a late one.
"""

from __future__ import annotations

import numpy as np

from freshet.partitioner.config import GraphRules, duration_in_words
from freshet.partitioner.events import NO_TS, Events
from freshet.partitioner.graph_tables import NEVER
from freshet.state.table import Table, TableSet

NEIGHBOURS = 16  # that a `ts` is compared with at least
TS_MAX = 2**63 - 1
# Rows of the table `clock` (int64): the largest `ts` so far, then those of the last events that had one.
_LARGEST, _RECENT = 0, 1


class EventClock:
    """The largest `ts` of the accepted events, and the last ones that came, accepted or not.

    Invariant: all of it stands in the table `clock`.
    """

    def __init__(self, tables: TableSet, jump_ms: int) -> None:
        """`jump_ms`: how far ahead a `ts` may be; 0: any is believed."""
        self._table: Table = tables.add("clock", "i8", fill=NO_TS)
        self._table.reserve(_RECENT + NEIGHBOURS)
        self._jump_ms = jump_ms

    @property
    def largest(self) -> int | None:
        """The largest `ts` so far; None before the first."""
        largest = int(self._table.data[_LARGEST])
        return None if largest == NO_TS else largest

    def too_far_ahead(self, ts: np.ndarray | None) -> tuple[np.ndarray, int]:
        """Return the events of an epoch whose `ts` is not believed, ascending, and the largest that is.

        Those are believed that are at most the jump ahead of the largest so far, or of the median of their neighbours,
        or of another one that is believed. The neighbours are the events of the epoch that have a `ts`; where these are
        few, also the last ones before, and where there are none the largest so far stands for them.
        """
        nothing = np.empty(0, np.int64), TS_MAX
        rows = np.empty(0, np.int64) if ts is None else np.flatnonzero(ts != NO_TS)
        if ts is None or not rows.size:
            return nothing
        times = ts[rows]
        largest, neighbours = self.largest, self._neighbours(times)
        self._table.touch_all()
        self._recent[:] = np.append(self._recent, times[-NEIGHBOURS:])[-NEIGHBOURS:]
        if not self._jump_ms or (largest is not None and int(times.max()) <= largest + self._jump_ms):
            return nothing
        known = np.sort(neighbours[neighbours != NO_TS])
        base = int(known[(known.size - 1) // 2])
        base = base if largest is None else max(base, largest)
        ahead = np.append(base, np.sort(times[times > base]))
        gaps = np.flatnonzero(np.diff(ahead.view(np.uint64)) > np.uint64(self._jump_ms))
        if not gaps.size:
            return nothing
        believed = int(ahead[gaps[0]])
        return rows[times > believed], believed

    def _neighbours(self, times: np.ndarray) -> np.ndarray:
        """The `ts` of an epoch, and before them others to make up the number; NO_TS where there are none yet."""
        before = np.where(self._recent == NO_TS, self._table.data[_LARGEST], self._recent)
        return np.concatenate([before[min(times.size, NEIGHBOURS) :], times])

    @property
    def _recent(self) -> np.ndarray:
        return self._table.data[_RECENT : _RECENT + NEIGHBOURS]

    def advance(self, event_ts: int | None) -> None:
        """Move on to the largest `ts` of an epoch's accepted events."""
        if event_ts is not None and event_ts > int(self._table.data[_LARGEST]):
            self._table.touch_all()
            self._table.data[_LARGEST] = event_ts


class EventTimes:
    """The clock of a graph, where its rules ask for one."""

    def __init__(self, tables: TableSet, rules: GraphRules) -> None:
        self._ttl_ms, self._jump_ms = rules.edge_ttl_ms, rules.jump_ms
        self._clock = EventClock(tables, self._jump_ms) if rules.is_timed else None

    @property
    def largest(self) -> int | None:
        """The largest `ts` so far; None before the first, or where no rule asks for it."""
        return None if self._clock is None else self._clock.largest

    def too_far_ahead(self, ts: np.ndarray | None) -> list[tuple[int, str]]:
        """Return the events of an epoch that are rejected for their `ts`, ascending, with the reason."""
        if self._clock is None or ts is None:
            return []
        rows, believed = self._clock.too_far_ahead(ts)
        jump = duration_in_words(self._jump_ms)
        reason = f"ts: more than --ts-jump {jump} ahead of the largest so far and of its neighbours"
        return [(row, f"{reason}, got {ts[row]} after {believed}") for row in rows.tolist()]

    def advance(self, event_ts: int | None) -> None:
        """Move on to the largest `ts` of an epoch's accepted events."""
        if self._clock is not None:
            self._clock.advance(event_ts)

    @property
    def expire_before(self) -> int | None:
        """The edges whose last `ts` is less than this expire; None: none does."""
        largest = self.largest
        if not self._ttl_ms or largest is None or largest - self._ttl_ms <= NO_TS:
            return None
        return largest - self._ttl_ms

    def stamps(self, events: Events) -> np.ndarray:
        """Return the `ts` that edges get by the events, NEVER without; (0,) where none is kept or all are without."""
        if not self._ttl_ms or events.ts is None:
            return np.empty(0, np.int64)
        return np.where(events.ts == NO_TS, NEVER, events.ts)
