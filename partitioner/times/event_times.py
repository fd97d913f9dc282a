"""Times of events in a graph: some `ts` are not believed, and edges expire by the others."""

from __future__ import annotations

import numpy as np

from freshet.partitioner.config import GraphRules, duration_in_words
from freshet.partitioner.events import NO_TS, Events
from freshet.partitioner.graph_tables import NEVER
from freshet.partitioner.times.clock import EventClock
from freshet.state.table import TableSet


class EventTimes:
    """The clock of a graph, where its rules ask for one."""

    def __init__(self, tables: TableSet, rules: GraphRules) -> None:
        self._ttl_ms, self._jump_ms = rules.edge_ttl_ms, rules.jump_ms
        self._clock = EventClock(tables, self._jump_ms) if rules.is_timed else None

    @property
    def largest(self) -> int | None:
        """The largest `ts` so far; None before the first, or where no rule asks for it."""
        return None if self._clock is None else self._clock.largest

    def too_far_ahead(self, events: Events) -> list[tuple[int, str]]:
        """Return the events of an epoch that are rejected for their `ts`, ascending, with the reason."""
        if self._clock is None or events.ts is None:
            return []
        rows, believed = self._clock.too_far_ahead(events.ts)
        jump = duration_in_words(self._jump_ms)
        reason = f"ts: more than --ts-jump {jump} ahead of the largest so far and of its neighbours"
        return [(row, f"{reason}, got {events.ts[row]} after {believed}") for row in rows.tolist()]

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
