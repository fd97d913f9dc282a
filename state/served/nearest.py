"""The rows that are nearest to a vector at one epoch, found in the table itself, with no copy of it.

The table is read from its first slot to its last. Where the ring has moved on meanwhile, all is read again at a later
epoch, for a moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from freshet.state.served.ids import Ids, frozen
from freshet.state.served.layout import T_USED
from freshet.state.served.near_kernels import EUCLIDEAN, LOWEST, NO_NUMBER, keep_all, score_range, score_slots
from freshet.state.served.read_kernels import MISSED, STUCK, read_slots
from freshet.state.served.reader import NO_TRIES, TableReader

_SLOTS_AT_ONCE = 16_384  # after which other threads may take their turn with what needs the interpreter
_ROWS_AT_ONCE = 4096
Scores = Callable[[np.ndarray], np.ndarray]  # of rows


class MissedError(Exception):
    """A read came too late for its epoch, or met a half-written row; `code` says which."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Best(NamedTuple):
    """The best rows, the best first, and the epochs of all candidates (`own`, negative: none), where they were given.

    Shapes: slots, epochs (k,) int64; rows (k, width), scores (k,) float32
    """

    epoch: int
    ids: Ids
    slots: np.ndarray
    epochs: np.ndarray
    rows: np.ndarray
    scores: np.ndarray
    own: np.ndarray


class Target(NamedTuple):
    """Comparison of rows: with a vector by a metric of near_kernels, or a function that scores rows.

    `skipped`: a slot that is none of the best.
    """

    vector: np.ndarray
    metric: int
    skipped: int = -1
    scores: Scores | None = None


def at_one_epoch(
    table: TableReader, upto: int, target_at: Callable[[int], Target], k: int, among: np.ndarray | None = None
) -> Best:
    """Return the k best rows of all, or among these slots, at the newest epoch or at `upto`.

    `target_at` returns the target as of an epoch; it is called again for each try.

    Raises: HistoryTooShortError, WriterGoneError
    """
    tries = NO_TRIES
    while True:
        epoch = min(table.epoch, upto)
        try:
            return best_of(table, epoch, target_at(epoch), k, among)
        except MissedError as error:
            tries = table.again(error.code, tries, upto)


def best_of(table: TableReader, epoch: int, target: Target, k: int, among: np.ndarray | None = None) -> Best:
    """Return the k best rows as of this epoch.

    Raises: MissedError
    """
    heap = _Heap(table, epoch, target, k)
    own = np.empty(0 if among is None else len(among), np.int64)
    if among is not None:
        heap.take_slots(among, own)
    else:
        heap.take_all(table.word(T_USED))
    return heap.best(own)


def row_at(table: TableReader, slot: int, epoch: int) -> np.ndarray | None:
    """Return the row of a slot as of an epoch, or None where it has none.

    Raises: MissedError
    """
    if slot < 0:
        return None
    code, own, rows = table.rows_of(np.array([slot]), epoch)
    if code < 0:
        raise MissedError(code)
    return rows[0] if own[0] >= 0 else None


class _Heap:
    """The best rows so far."""

    def __init__(self, table: TableReader, epoch: int, target: Target, k: int) -> None:
        k = min(k, table.word(T_USED))
        self._table, self._epoch, self._target = table, epoch, target
        self._vector = frozen(target.vector.astype(np.float32, copy=False))
        self._length = float(np.linalg.norm(self._vector.astype(np.float64)))
        self._keys, self._slots, self._count = np.empty(k), np.empty(k, np.int64), 0
        self._row = np.empty((1, table.width), np.float32)

    def take_all(self, used: int) -> None:
        step = _SLOTS_AT_ONCE if self._target.scores is None else _ROWS_AT_ONCE
        for first in range(0, used, step):
            self._take_range(first, min(first + step, used))

    def take_slots(self, these: np.ndarray, own: np.ndarray) -> None:
        """Take slots, negative where there is none; `own` gets the epochs of their rows."""
        table, target = self._table, self._target
        if target.scores is None:
            these = frozen(these)
            found = score_slots(
                *(table.mem, table.floats, these, self._epoch, self._vector, self._length, target.metric),
                *(target.skipped, self._row, own, self._keys, self._slots, self._count),
            )
            self._count = _checked(found)
            return
        own[:] = -1
        there = np.flatnonzero(these >= 0)
        for begin in range(0, len(there), _ROWS_AT_ONCE):
            some = there[begin : begin + _ROWS_AT_ONCE]
            code, epochs, rows = table.rows_of(these[some], self._epoch)
            _checked(code)
            own[some], alive = epochs, epochs >= 0
            self._take_rows(these[some][alive], rows[alive])

    def best(self, own: np.ndarray) -> Best:
        """Return the best."""
        keys, slots = self._keys[: self._count], self._slots[: self._count]
        order = np.lexsort((slots, -keys))
        slots = slots[order]
        code, epochs, rows = self._table.rows_of(slots, self._epoch)
        _checked(code)
        scores = keys[order]
        scores[scores == LOWEST] = -np.inf
        if self._target.scores is None:
            scores[keys[order] == NO_NUMBER] = np.nan
            scores = -scores if self._target.metric == EUCLIDEAN else scores
        return Best(self._epoch, self._table.ids_in(slots), slots, epochs, rows, scores.astype(np.float32), own)

    def _take_range(self, first: int, end: int) -> None:
        table, target = self._table, self._target
        if target.scores is None:
            found = score_range(
                *(table.mem, table.floats, first, end, self._epoch, self._vector, self._length, target.metric),
                *(target.skipped, self._row, self._keys, self._slots, self._count),
            )
            self._count = _checked(found)
            return
        slots, own = np.empty(end - first, np.int64), np.empty(end - first, np.int64)
        rows = np.empty((end - first, table.width), np.float32)
        alive = _checked(read_slots(table.mem, table.floats, first, self._epoch, slots, own, rows))
        self._take_rows(slots[:alive], rows[:alive])

    def _take_rows(self, slots: np.ndarray, rows: np.ndarray) -> None:
        assert self._target.scores is not None
        scores = frozen(self._target.scores(rows))
        self._count = keep_all(scores, frozen(slots), self._target.skipped, self._keys, self._slots, self._count)


def _checked(code: int) -> int:
    if code in (MISSED, STUCK):
        raise MissedError(code)
    return code
