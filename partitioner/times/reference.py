"""Times of edges, slow and obvious: what the reference graph knows of `--edge-ttl` and `--ts-jump`."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

NEIGHBOURS = 16


class ReferenceTimes:
    """The clock of a graph, and when each of its edges was added last.

    An edge expires at the end of the first epoch whose largest `ts` so far is greater than that of its last add and
    `ttl_ms` more; one that was added without a `ts` never does. Without `ttl_ms` none does.
    """

    def __init__(self, ttl_ms: int, jump_ms: int) -> None:
        self.ttl_ms, self.jump_ms = ttl_ms, jump_ms
        self.largest: int | None = None
        self._recent: list[int] = []  # the `ts` of the last events that had one, accepted or not
        self._added: dict[Any, int] = {}  # by edge
        self._order: list[tuple[int, int, Any]] = []  # a heap; an edge that was added again stands in it twice
        self._count = 0

    def too_far_ahead(self, times: Sequence[int | None]) -> set[int]:
        """Return which events of an epoch, whose `ts` these are, are rejected; called once for each epoch."""
        given = [ts for ts in times if ts is not None]
        missing = NEIGHBOURS - len(given)
        before = self._recent[-missing:] if missing > 0 else []
        stands_in = [self.largest] * (missing - len(before)) if self.largest is not None else []
        neighbours = sorted(before + stands_in + given)
        self._recent = (self._recent + given)[-NEIGHBOURS:]
        if not given or not self.jump_ms:
            return set()
        believed = neighbours[(len(neighbours) - 1) // 2]
        if self.largest is not None:
            believed = max(believed, self.largest)
        for ts in sorted(given):
            if believed < ts <= believed + self.jump_ms:
                believed = ts
        return {event for event, ts in enumerate(times) if ts is not None and ts > believed}

    def advance(self, ts: int | None) -> None:
        """Take the `ts` of an accepted event."""
        if ts is not None and (self.largest is None or ts > self.largest):
            self.largest = ts

    def added(self, edge: Any, ts: int | None) -> None:
        """Note that an edge was added, or added again."""
        if not self.ttl_ms:
            return
        self._added.pop(edge, None)
        if ts is not None:
            self._added[edge] = ts
            self._count += 1
            heappush(self._order, (ts, self._count, edge))

    def of(self, edge: Any) -> int | None:
        """Return the `ts` of the last add of an edge that is there; None without, or where edges do not expire."""
        return self._added.get(edge)

    def expired(self) -> list[Any]:
        """Return the edges whose time is over, each once; some may have been deleted before."""
        found = []
        while (
            self.ttl_ms and self._order and self.largest is not None and self._order[0][0] + self.ttl_ms < self.largest
        ):
            ts, _, edge = heappop(self._order)
            if self._added.get(edge) == ts:
                del self._added[edge]
                found.append(edge)
        return found
