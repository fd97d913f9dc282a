"""Inverted lists over the slots of a table: which rows to score for a vector, instead of all.

A list has the slots whose rows are nearest to its centroid. Only the choice of rows is approximate: scores are those
of the rows themselves.

Invariant: once `take` has returned for all slots that changed up to an epoch, every slot with a row as of that epoch is
in the list of that row, and no other slot is in any. The lists depend on the centroids and the rows alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from freshet.state.served.ids import frozen
from freshet.state.served.layout import T_CAPACITY, T_USED
from freshet.state.served.list_kernels import BLOCK, Blocks, Centroids, assign_rows, assign_slots, gather
from freshet.state.served.near_kernels import DOT, EUCLIDEAN
from freshet.state.served.reader import TableReader

LISTS_MAX = 4096
_NUMBERS_MAX = 65_536  # of all centroids: what a changed row is compared with, in two or three microseconds
_SAMPLES_OF_EACH = 40  # rows that a centroid is made of, at most
_ROUNDS = 8
_SEED = 7
_TRIES, _PAUSE_S = 20, 0.001
_EVEN, _EVEN_FROM = 16, 48
_SLOTS_AT_ONCE = 4096


class InvertedLists:
    """Lists of the slots of a table by a metric; used by one thread at a time."""

    def __init__(self, table: TableReader, metric: int, centroids: np.ndarray) -> None:
        """Begin without a slot; `centroids` are (lists, width) float32."""
        self.table, self.metric, self.centroids = table, metric, centroids
        self._assigning = _assigning(centroids, metric)
        self._blocks = _empty(table.word(T_CAPACITY), len(centroids))

    @staticmethod
    def bytes_for(table: TableReader) -> int:
        """Return the bytes that lists of a table take, and while they are made."""
        lists, slots = lists_for(table.word(T_USED), table.width), table.word(T_CAPACITY)
        blocks = slots // BLOCK + 1 + lists
        return 4 * slots + blocks * (4 * BLOCK + 12) + 4 * lists * table.width * (2 + _SAMPLES_OF_EACH)

    @property
    def nbytes(self) -> int:
        """Return the bytes that they take."""
        arrays = [self.centroids, *self._assigning[0], *self._blocks]
        return sum(one.nbytes for one in arrays)

    @property
    def sizes(self) -> np.ndarray:
        """Return the number of slots of each list."""
        return self._blocks.size.copy()

    @property
    def unevenness(self) -> float:
        """Return how many times more rows lie in the list of a row than if all lists had as many; 1 where they have."""
        size = self._blocks.size
        total = float(size.sum())
        return float(len(size) * np.square(size / total).sum()) if total else 1.0

    def take(self, slots: np.ndarray, epoch: int) -> int:
        """Put slots into the lists of their rows as of an epoch; 0, MISSED or STUCK."""
        for begin in range(0, len(slots), _SLOTS_AT_ONCE):
            some = frozen(slots[begin : begin + _SLOTS_AT_ONCE])
            for _ in range(_TRIES):
                code = assign_slots(self.table.mem, self.table.floats, some, epoch, self._blocks, *self._assigning)
                if code == 0:
                    break
                time.sleep(_PAUSE_S)  # a writer that was interrupted in a row goes on
            if code < 0:
                return code
        return 0

    def best_lists(self, vector: np.ndarray, probes: int, at_least: int) -> np.ndarray:
        """Return the lists to look through for a vector: as many as `probes`, more until they have `at_least` slots."""
        order = self._order(vector)
        enough = int(np.searchsorted(np.cumsum(self._blocks.size[order]), at_least)) + 1
        return order[: max(probes, enough)]

    def ranks(self, vector: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return the place of the list of each slot in the order in which they are looked through for a vector."""
        ranks = np.argsort(self._order(vector))
        return ranks[self._blocks.owner[self._blocks.home[slots] // BLOCK]]

    def _order(self, vector: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            promise = self.centroids @ vector + self._assigning[0].bias
            if self.metric == DOT:
                promise *= self._blocks.reach
        promise[~np.isfinite(promise)] = -np.inf
        return np.argsort(-promise, kind="stable")

    def slots_in(self, lists: np.ndarray) -> np.ndarray:
        """Return the slots of these lists, list by list."""
        slots = np.empty(int(self._blocks.size[lists].sum()), np.int64)
        gather(self._blocks, frozen(lists), slots)
        return slots


def lists_for(rows: int, width: int) -> int:
    """Return the number of lists for rows of this width; many are a multiple of 16, for the processor's sake."""
    found = min(LISTS_MAX, max(_EVEN, _NUMBERS_MAX // width), max(1, round(rows**0.5)))
    return found if found < _EVEN_FROM else _EVEN * round(found / _EVEN)


def trained(table: TableReader, metric: int, between: Callable[[], None] = lambda: None) -> np.ndarray:
    """Return centroids by k-means on rows of the table, (lists, width) float32; those of directions but for EUCLIDEAN.

    `between` is called now and then. A row that could not be read, or is not finite, is none of the sample.
    """
    rng, used = np.random.default_rng(_SEED), table.word(T_USED)
    count = lists_for(used, table.width)
    slots = np.sort(rng.choice(used, min(used, _SAMPLES_OF_EACH * count), replace=False)) if used else np.empty(0, int)
    parts = []
    for begin in range(0, len(slots), _SLOTS_AT_ONCE):
        code, own, rows = table.rows_of(slots[begin : begin + _SLOTS_AT_ONCE], table.epoch)
        parts += [rows[own >= 0]] if code >= 0 else []
    rows = np.concatenate([*parts, np.empty((0, table.width), np.float32)])
    rows = rows[np.isfinite(rows).all(axis=1)]
    if metric != EUCLIDEAN:
        rows = _directions(rows)
        rows = rows[(rows != 0).any(axis=1)]
    if not len(rows):
        return np.zeros((1, table.width), np.float32)
    return _k_means(rows, min(count, len(rows)), metric, rng, between)


def _k_means(
    rows: np.ndarray, count: int, metric: int, rng: np.random.Generator, between: Callable[[], None]
) -> np.ndarray:
    centroids = rows[rng.choice(len(rows), count, replace=False)].copy()
    lists = np.empty(len(rows), np.int64)
    for _ in range(_ROUNDS):
        between()
        assign_rows(frozen(rows), *_assigning(centroids, metric), lists)
        order = np.argsort(lists, kind="stable")
        sizes = np.bincount(lists, minlength=count)
        there = np.flatnonzero(sizes)
        begins = np.cumsum(sizes) - sizes
        sums = np.add.reduceat(rows[order].astype(np.float64), begins[there], axis=0)
        means = (sums / sizes[there][:, None]).astype(np.float32)
        centroids[there] = means if metric == EUCLIDEAN else _directions(means)
        if len(there) < count:  # of a list without a row a row of the largest ones
            lacking = np.flatnonzero(sizes == 0)
            big = np.flatnonzero(sizes[lists] > sizes.mean())
            if len(big):
                centroids[lacking] = rows[rng.choice(big, len(lacking))]
    return centroids


def _assigning(centroids: np.ndarray, metric: int) -> tuple[Centroids, np.ndarray, np.ndarray]:
    """Return the centroids for kernels, and scratch: two rows, and their sums for each list."""
    bias = np.zeros(len(centroids))
    if metric == EUCLIDEAN:
        bias = -0.5 * np.einsum("ij,ij->i", centroids, centroids, dtype=np.float64)
    with np.errstate(over="ignore"):  # nothing is near to such a centroid
        of_kernels = Centroids(np.ascontiguousarray(centroids.T), bias.astype(np.float32))
    return of_kernels, np.zeros((2, centroids.shape[1]), np.float32), np.empty((2, len(centroids)), np.float32)


def _directions(rows: np.ndarray) -> np.ndarray:
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return (rows / np.maximum(lengths, 1e-30)[:, None]).astype(np.float32)


def _empty(slots: int, lists: int) -> Blocks:
    blocks = slots // BLOCK + 1 + lists
    one = np.int32
    return Blocks(
        pool=np.empty((blocks, BLOCK), one),
        home=np.full(slots, -1, one),
        owner=np.empty(blocks, one),
        before=np.empty(blocks, one),
        last=np.full(lists, -1, one),
        free=np.arange(blocks, dtype=one)[::-1].copy(),
        size=np.zeros(lists, np.int64),
        reach=np.zeros(lists, np.float32),
        unused=np.full(1, blocks, np.int64),
    )
