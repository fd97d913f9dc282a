"""Inverted lists of a table by metric, made once somebody asks, kept up to date, and dropped when nobody asks any more.

A thread of its own takes the changes of each epoch into the lists. Whoever asks takes what is left up to the newest
epoch, so that answers are of that. Meanwhile the thread measures how many of the exact neighbours are found.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from freshet.job.serving.bounds.budget import Budget, Held
from freshet.job.serving.protocol.errors import ExhaustedError
from freshet.state.served.inverted import InvertedLists, trained
from freshet.state.served.layout import T_LIVE, T_USED
from freshet.state.served.nearest import Best, MissedError, Target, best_of
from freshet.state.served.reader import ChangeReader, TableReader

FIRST_WAIT_S = 0.5  # for lists that are being made, since they were first asked for
IDLE_S = 600.0  # without a request, after which they are dropped
WINDOW_S, SAMPLES = 60.0, 100  # of the recall
RECALL_MIN, RECALL_AIM = 0.95, 0.97
_POLL_S = 0.005
_LOOK_S = 1.0
_BEHIND_MAX = 30_000  # ring entries that a request takes into the lists itself
_TRIES = 5
_MEASURED_K, _MEASURED_K_MAX = 10, 100
_TUNED_ON, _PROBES_MIN = 30, 4
_SMALL, _SHARE_MAX = 10_000, 3  # candidates: that many, or a third of the rows
_SHARE = 9  # of the time of a sample, until the next one
_JUDGED_BY = 20  # samples
_WORN, _WORN_PROBES, _GROWN = 2.0, 8, 4.0
_SLOTS_AT_ONCE = 16_384
_AGAIN_S, _ROUNDS_MAX = 10.0, 20
_WHAT = "lists for approximate neighbours"


class Sample(NamedTuple):
    """The share of the exact neighbours that were found, and when."""

    at: float
    recall: float


class _Made(NamedTuple):
    """Lists, the reader of the changes after them, how many of them are looked through, and what they were like."""

    lists: InvertedLists
    following: ChangeReader
    probes: int
    recall: float
    unevenness: float
    live: int


class _Chosen(NamedTuple):
    """A request, and the slots that are scored for it, all as of an epoch."""

    epoch: int
    target: Target
    slots: np.ndarray


class ApproximateRows:
    """Neighbours of one metric by inverted lists; safe for threads.

    Invariant: `_made` has the rows of its epoch, whenever the lock is free.
    """

    def __init__(self, table: TableReader, metric: int, budget: Budget) -> None:
        """Begin to make lists."""
        self.table, self.metric = table, metric
        self.ended = False
        self.rows_taken, self.taking_s = 0, 0.0  # changed rows, and processor time for them
        self._budget, self._held = budget, Held(budget)
        self._lock, self._ready = threading.Lock(), threading.Event()
        self._made: _Made | None = None
        self._probes, self._recall = 1, 1.0
        self._samples, self._asked = deque[Sample](maxlen=SAMPLES), deque[tuple[float, Target, int]](maxlen=SAMPLES)
        self._rng = np.random.default_rng()
        now = time.monotonic()
        self._born = self._last = now
        self._looked = self._measured = self._built = self._built_in = 0.0
        threading.Thread(target=_keep, args=(weakref.ref(self),), name="freshet-neighbours", daemon=True).start()

    @property
    def recall(self) -> float:
        """Return the mean recall of the samples of the last minute; before, that of the rows they were tuned on."""
        since = time.monotonic() - WINDOW_S
        found = [one.recall for one in list(self._samples) if one.at >= since]
        return sum(found) / len(found) if found else self._recall

    def search(self, target_at: Callable[[int], Target], k: int) -> Best | None:
        """Return the k best rows of the lists at the newest epoch; None while there are no lists.

        `target_at` as for `at_one_epoch`. A call waits a moment for the first lists, which small tables have then.
        """
        self._last = time.monotonic()
        if not self._ready.wait(max(0.0, self._born + FIRST_WAIT_S - self._last)):
            return None
        for _ in range(_TRIES):
            with suppress(MissedError):
                found = self._chosen(target_at, k)
                return None if found is None else best_of(self.table, found.epoch, found.target, k, found.slots)
        return None

    def wait(self, seconds: float) -> bool:
        """Wait for lists; return whether they are there."""
        return self._ready.wait(seconds)

    def rebuild(self) -> None:
        """Have the lists made again, from rows as they are now."""
        self._built = -math.inf

    def lists(self) -> list[np.ndarray]:
        """Return the slots of each list at the newest epoch, ascending."""
        with self._lock:
            self._catch_up(None)
            assert self._made is not None
            found = self._made.lists
            return [np.sort(found.slots_in(np.array([one]))) for one in range(len(found.sizes))]

    def _chosen(self, target_at: Callable[[int], Target], k: int) -> _Chosen | None:
        """Return what to score; None while there are no lists, and where most rows are candidates.

        Raises: MissedError
        """
        with self._lock:
            if not self._catch_up(_BEHIND_MAX) or self._made is None:
                return None
            epoch = self._made.following.epoch
            target = target_at(epoch)
            self._asked.append((self._last, target, k))
            slots = self._candidates(self._made.lists, target, k, self._probes)
            if len(slots) > max(_SMALL, self.table.word(T_USED) // _SHARE_MAX):
                return None  # all rows, one after the other, are read faster
            return _Chosen(epoch, target, slots)

    @staticmethod
    def _candidates(lists: InvertedLists, target: Target, k: int, probes: int) -> np.ndarray:
        wider = math.ceil(probes * max(1.0, k / _MEASURED_K) ** 0.5)
        return lists.slots_in(lists.best_lists(target.vector, wider, 4 * k))

    def _catch_up(self, most: int | None) -> bool:
        """Take changes up to the newest epoch; False where they are too many, or can't be had: then all is read."""
        if self._made is None or not self._ready.is_set():
            return False
        lists, following = self._made.lists, self._made.following
        if most is not None and following.behind > most:
            return False
        began = time.thread_time()
        if (taken := _take(lists, following)) is None:
            self._ready.clear()
            return False
        if taken:
            self.rows_taken += taken
            self.taking_s += time.thread_time() - began
        return True

    def step(self) -> float | None:
        """Do what is due; return the seconds until the next time, None at the end."""
        now = time.monotonic()
        if self.table.superseded or now - self._last > IDLE_S:
            self.end()
            return None
        if not self._ready.is_set():
            return _POLL_S if self._make() else _AGAIN_S
        with self._lock:
            self._catch_up(None)
        if now - self._looked > _LOOK_S:
            self._looked = now
            if self._is_worn(now):
                self._make()
        if now - self._last < WINDOW_S and now >= self._measured:
            self._measure()
        return _POLL_S

    def end(self) -> None:
        """Drop the lists."""
        with self._lock:
            self.ended, self._made = True, None
            self._ready.clear()
            self._held.release()

    def _is_worn(self, now: float) -> bool:
        made = self._made
        if made is None or now - self._built < max(WINDOW_S, 20 * self._built_in):
            return False
        live, before = self.table.word(T_LIVE) + 1, made.live + 1
        uneven = made.lists.unevenness > _WORN * max(1.5, made.unevenness)
        lists = len(made.lists.sizes)
        far = self._probes >= min(lists, _WORN_PROBES * made.probes) and self._probes > made.probes
        return uneven or far or max(live / before, before / live) > _GROWN or self._built < 0

    def _make(self) -> bool:
        """Make lists, and have them take the place of those that are there; False where that is to be tried later."""
        began, held = time.monotonic(), Held(self._budget)
        try:
            held = self._budget.hold(InvertedLists.bytes_for(self.table), _WHAT)
            made = self._of_now()
        except ExhaustedError:
            return False
        finally:
            held.release()
        if made is None:
            return False  # rows change faster than they are taken
        with self._lock:
            if self.ended:
                return True
            self._made, self._probes, self._recall = made, made.probes, made.recall
            self._samples.clear()
            with suppress(ExhaustedError):
                self._held.resize(made.lists.nbytes, _WHAT)
            self._ready.set()
        self._built = time.monotonic()
        self._built_in = self._built - began
        return True

    def _of_now(self) -> _Made | None:
        table = self.table
        lists = InvertedLists(table, self.metric, trained(table, self.metric, self._between))
        following = ChangeReader(table)
        following.start_at(table.epoch)
        for begin in range(0, used := table.word(T_USED), _SLOTS_AT_ONCE):
            # What has changed since the start is taken again, so each may be of an epoch of its own.
            if lists.take(np.arange(begin, min(begin + _SLOTS_AT_ONCE, used)), table.epoch) < 0:
                return None
            self._between()
        for _ in range(_ROUNDS_MAX):
            if (left := _take(lists, following)) is None:
                return None
            if left < _BEHIND_MAX // 2:
                return self._tuned(lists, following)
        return None

    def _between(self) -> None:
        """Keep the lists that are there up to date while others are made."""
        if self._ready.is_set():
            with self._lock:
                self._catch_up(None)

    def _tuned(self, lists: InvertedLists, following: ChangeReader) -> _Made | None:
        """Return the lists with the number of them to look through, by the neighbours of some rows."""
        ranks = [np.empty(0, np.int64)]
        for _ in range(_TUNED_ON):
            if _take(lists, following) is None:
                return None
            epoch = following.epoch
            with suppress(MissedError):
                if (target := self._some_row(epoch)) is not None:
                    exact = best_of(self.table, epoch, target, _MEASURED_K).slots
                    ranks.append(lists.ranks(target.vector, exact))
            self._between()
        probes, most, every = min(_PROBES_MIN, len(lists.sizes)), len(lists.sizes), np.concatenate(ranks)
        while len(every) and probes < most and (every < probes).mean() < RECALL_AIM:
            probes = min(2 * probes, most)
        recall = float((every < probes).mean()) if len(every) else 1.0
        return _Made(lists, following, probes, recall, lists.unevenness, self.table.word(T_LIVE))

    def _some_row(self, epoch: int) -> Target | None:
        """Return a random row as what others are near to."""
        used = self.table.word(T_USED)
        if not used:
            return None
        slots = self._rng.integers(0, used, _TRIES)
        code, own, rows = self.table.rows_of(slots, epoch)
        if code < 0:
            raise MissedError(code)
        alive = np.flatnonzero((own >= 0) & np.isfinite(rows).all(axis=1))
        return Target(rows[alive[0]], self.metric, int(slots[alive[0]])) if len(alive) else None

    def _measure(self) -> None:
        """Compare one answer with the exact one of its epoch, and look through more lists if too few are found."""
        began = time.monotonic()
        with suppress(MissedError):
            with self._lock:
                if not self._catch_up(None) or self._made is None:
                    return
                lists, epoch, probes = self._made.lists, self._made.following.epoch, self._probes
                target, k = self._next_sample(epoch, began)
                slots = None if target is None else self._candidates(lists, target, k, probes)
            if target is not None and slots is not None:
                want = best_of(self.table, epoch, target, k).slots
                self._samples.append(Sample(began, _share(want, slots)))
        took = time.monotonic() - began
        self._measured = began + took + max(WINDOW_S / SAMPLES, _SHARE * took)
        if len(self._samples) >= _JUDGED_BY and self.recall < RECALL_MIN and self._probes < len(lists.sizes):
            self._probes = min(2 * self._probes, len(lists.sizes))
            self._recall = self.recall
            self._samples.clear()

    def _next_sample(self, epoch: int, now: float) -> tuple[Target | None, int]:
        """Return what was asked within the window, each once, else a row; and how many neighbours of it."""
        while self._asked:
            at, target, k = self._asked.popleft()
            if now - at < WINDOW_S:
                return target, min(k, _MEASURED_K_MAX)
        return self._some_row(epoch), _MEASURED_K


class Neighbourhoods:
    """The lists of one table after the other, by metric; safe for threads."""

    def __init__(self) -> None:
        self._of: dict[int, ApproximateRows] = {}
        self._lock = threading.Lock()

    def of(self, table: TableReader, metric: int, budget: Budget) -> ApproximateRows:
        """Return the lists of a table by a metric, which are begun where there are none."""
        with self._lock:
            found = self._of.get(metric)
            if found is None or found.ended or found.table.path != table.path:
                if found is not None:
                    found.end()
                found = self._of[metric] = ApproximateRows(table, metric, budget)
            return found


def _take(lists: InvertedLists, following: ChangeReader) -> int | None:
    """Take changes up to the newest epoch into lists; return how many slots; None where the ring has moved on."""
    found = following.slots()
    if found is None:
        return None if following.lost else 0
    return len(found[1]) if lists.take(found[1], found[0]) == 0 else None


def _share(want: np.ndarray, slots: np.ndarray) -> float:
    """Return the share of the neighbours that are among the slots whose rows are scored."""
    return float(np.isin(want, slots).mean()) if len(want) else 1.0


def _keep(one: weakref.ref[ApproximateRows]) -> None:
    """Keep lists up to date until nobody has them any more."""
    while (found := one()) is not None:
        try:
            pause = found.step()
        except BaseException:
            found.end()  # whoever asks next has them made again
            raise
        del found
        if pause is None:
            return
        time.sleep(pause)
