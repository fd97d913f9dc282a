"""One pass of a layer: takes chunks of sources in order and brings a range of destinations to completion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from freshet.operators.embed import hot_kernels as hot
from freshet.operators.embed.cold_store import ColdStore
from freshet.operators.embed.files import EmbedError
from freshet.operators.embed.graduation import FinishedBlock, Graduation
from freshet.operators.embed.hot_kernels import Hot, Items, Task
from freshet.operators.embed.row_kernels import fill_rows

POLICIES = {
    "min-pending": hot.MIN_PENDING,
    "lru": hot.LRU,
    "random": hot.RANDOM,
    "next-use": hot.NEXT_USE,
}


@dataclass
class PassCounts:
    """Counts of a pass."""

    evicted: int = 0
    reloaded: int = 0
    pieces: int = 0
    chunks: int = 0
    graduated: int = 0
    cold_peak: int = 0

    def add(self, other: PassCounts) -> None:
        """Add those of another pass of the layer; the peak is the larger one."""
        for name in ("evicted", "reloaded", "pieces", "chunks", "graduated"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.cold_peak = max(self.cold_peak, other.cold_peak)


def _lists(slots: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Empty lists: vertex, before, after and bucket of each slot."""
    return (
        np.full(slots, -1, np.int32),
        np.full(slots, -1, np.int32),
        np.full(slots, -1, np.int32),
        np.full(slots, -1, np.int32),
    )


def make_hot(pending: np.ndarray, use: np.ndarray, slots: int, columns: int) -> Hot:
    """Make a hot store with this many free slots; `pending` is taken over."""
    n = len(pending)
    counts = np.zeros(hot.COUNTS, np.int64)
    counts[hot.FREE], counts[hot.LOWEST] = slots, hot.SCORES - 1
    return Hot(
        pending,
        np.zeros(n, np.uint8),
        np.full(n, -1, np.int32),
        use,
        np.zeros((slots, columns), np.float64),
        *_lists(slots),
        np.arange(slots - 1, -1, -1, dtype=np.int32),
        np.full(hot.SCORES, -1, np.int32),
        np.full(hot.SCORES, -1, np.int32),
        counts,
    )


class Orchestrator:
    """The states of a pass's destinations and who of them is in the hot store.

    Invariant: NOT_STARTED -> HOT -> (COLD -> HOT)* -> COMPLETED; at the end all are COMPLETED (`finish` checks it).
    What is added to a sum, and in which order, does not depend on slots, policy, or the cuts of chunks and passes.
    """

    def __init__(self, store: Hot, cold: ColdStore, task: Task, graduation: Graduation | None) -> None:
        """Without `graduation` finished vertices are dropped: a trial."""
        self._hot, self._cold, self._task, self._graduation = store, cold, task, graduation
        self._block = FinishedBlock(1024, 0, 0) if graduation is None else graduation.block
        self._need = np.empty(len(store.vertex), np.int32)
        self.counts = PassCounts()

    def take(self, chunk: Items) -> None:
        """Act on a chunk, piece by piece."""
        at = (0, 0, int(chunk.ends[0]))
        counts = self._hot.counts
        self.counts.chunks += 1
        while at[0] < len(chunk.ends) - 1:
            n = hot.collect(self._hot, self._task, chunk, *at, self._need)
            need = self._need[:n]
            self._make_hot(need)
            hot.merge(self._hot, self._task, chunk, *at)
            at = (int(counts[hot.AT_SOURCE]), int(counts[hot.AT_OWN]), int(counts[hot.AT_EDGE]))
            # of a source that is not through, its own visit may be: then it does not come again
            last = chunk.source + at[0] - (0 if at[0] < len(chunk.ends) - 1 and at[1] else 1)
            self._settle(need, last)
            self.counts.pieces += 1

    def _make_hot(self, need: np.ndarray) -> None:
        """Give every needed row a slot: make room, reload cold rows, start new ones."""
        state = self._hot.state[need] & ~np.uint8(hot.NEEDED)
        cold, new = need[state == hot.COLD], need[state == hot.NOT_STARTED]
        short = len(cold) + len(new) - int(self._hot.counts[hot.FREE])
        # victims leave first: their slots are the room. What comes back frees cold slots only then.
        if short > 0:
            victims = np.empty(short, np.int32)
            hot.choose_victims(self._hot, self._task, victims)
            where = self._cold.put(self._hot.rows, self._hot.where[victims])
            hot.make_cold(self._hot, victims, where)
            self.counts.evicted += short
        if len(cold):
            order = np.argsort(self._hot.where[cold], kind="stable")
            rows = cold[order]
            places, slots = self._hot.where[rows], np.empty(len(rows), np.int32)
            hot.take_slots(self._hot, rows, slots)
            self._cold.fetch(places, self._hot.rows, slots)
            self.counts.reloaded += len(cold)
        if len(new):
            slots = np.empty(len(new), np.int32)
            hot.take_slots(self._hot, new, slots)
            fill_rows(self._hot.rows, slots)

    def _settle(self, need: np.ndarray, last: int) -> None:
        at, block = 0, self._block
        while True:
            before = block.count
            at, block.count = hot.settle(self._hot, self._task, need, at, last, block.arrays, block.count)
            self.counts.graduated += block.count - before
            if at == len(need):
                return
            if self._graduation is None:
                block.count = 0
            else:
                block = self._block = self._graduation.exchange()

    def finish(self) -> PassCounts:
        """The counts of the pass.

        Raises: EmbedError when a destination is not complete.
        """
        self.counts.cold_peak = self._cold.peak
        missing = int((self._hot.state != hot.COMPLETED).sum())
        if missing:
            msg = f"{missing:,} of {len(self._hot.state):,} vertices are not complete: the topology is damaged"
            raise EmbedError(msg)
        return self.counts


def run_pass(chunks: Iterable[Items], orchestrator: Orchestrator) -> PassCounts:
    """Take all chunks; returns what it came to."""
    for chunk in chunks:
        orchestrator.take(chunk)
    return orchestrator.finish()
