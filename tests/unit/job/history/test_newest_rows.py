"""The as-of join's core against a plain search, whatever the batches."""

from __future__ import annotations

import numpy as np
import pytest

from freshet.job.history.epoch_at import UNKNOWN, By, EpochsAt
from freshet.job.history.newest_rows import NONE, Newest, newest_rows
from freshet.operators.sink.epoch_files import EpochTimes
from freshet.state.served.times import NO_TIME


def test_nothing_in_a_batch() -> None:
    nothing = np.empty(0, np.int64)
    assert newest_rows(nothing, nothing, nothing.astype(bool), np.array([0]), np.array([9])).tolist() == [NONE]


@pytest.mark.parametrize("seed", range(30))
def test_the_newest_row_up_to_an_epoch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vertices, count, asked = 5, int(rng.integers(1, 60)), rng.integers(0, 5, 40)
    upto = rng.integers(-1, 12, 40)
    rows = {
        (int(a), int(b)) for a, b in zip(rng.integers(-1, vertices, count), rng.integers(0, 10, count), strict=True)
    }
    codes, epochs = (np.array(one) for one in zip(*sorted(rows), strict=True))
    order = rng.permutation(len(codes))
    codes, epochs, deleted = codes[order], epochs[order], rng.random(len(codes)) < 0.3
    found = Newest(asked, upto, vertices)
    for begin in range(0, len(codes), 7):
        part = slice(begin, begin + 7)
        found.take(codes[part], epochs[part], deleted[part], begin, 1000, is_base=False)
    for k in range(40):
        before = [at for at in range(len(codes)) if codes[at] == asked[k] and epochs[at] <= upto[k]]
        best = max(before, key=lambda at: epochs[at], default=None)
        if best is None:
            assert (found.epochs[k], found.files[k], found.lives[k]) == (NONE, NONE, False)
        else:
            assert (found.epochs[k], found.lives[k]) == (epochs[best], not deleted[best])
            assert found.files[k] + found.rows[k] - 1000 == best


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_of_a_vertex_that_moved_between_parts_the_row_that_lives_counts(apart: bool, first: bool) -> None:
    deleted = np.array([first, not first])
    found = Newest(np.array([0]), np.array([3]), 1)
    for begin in (0, 1) if apart else (0,):
        part = slice(begin, begin + (1 if apart else 2))
        found.take(np.zeros(2, np.int64)[part], np.full(2, 3)[part], deleted[part], 0, begin, is_base=False)
    assert (found.lives[0], found.rows[0]) == (True, int(first))


def test_what_the_base_repeats_is_known_to_be_in_it() -> None:
    found = Newest(np.array([0, 0]), np.array([4, 9]), 1)
    found.take(np.array([0]), np.array([2]), np.array([False]), 0, 0, is_base=True)
    found.take(np.array([0, 0]), np.array([2, 7]), np.zeros(2, bool), 1, 0, is_base=False)
    assert (found.epochs.tolist(), found.in_base.tolist()) == ([2, 7], [True, False])


@pytest.mark.parametrize("seed", range(20))
def test_epochs_by_time_never_look_ahead(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 40
    own = np.where(rng.random(count) < 0.8, rng.integers(0, 50, count), NO_TIME)
    epochs, times = np.arange(count), rng.integers(-5, 60, 100)
    own[0] = NO_TIME
    events = np.where(own == NO_TIME, 0, 1)
    walk = EpochsAt(times, By.EVENT, 30, None)
    for begin in range(0, count, 9):
        part = slice(begin, begin + 9)
        both = np.stack([np.full(count, NO_TIME), own], axis=1)
        walk.take(EpochTimes(epochs[part], both[part], events[part]))
    for time, found in zip(times.tolist(), walk.epochs.tolist(), strict=True):
        latest = -np.inf
        expected = 0
        for epoch in range(31):
            latest = max(latest, own[epoch] if own[epoch] != NO_TIME else -np.inf)
            expected = epoch if np.isfinite(latest) and latest <= time else expected
        assert found == expected


def test_before_the_first_time_nothing_is_known_where_events_have_none() -> None:
    times, epochs = np.array([5, 10, 20]), np.arange(4)
    walk = EpochsAt(times, By.ARRIVAL, 9, 0)
    column = np.array([NO_TIME, NO_TIME, 10, 15])
    walk.take(EpochTimes(epochs, np.stack([column, column], axis=1), np.array([0, 3, 1, 1])))
    assert walk.epochs.tolist() == [UNKNOWN, 2, 3]
    assert EpochsAt(times, By.ARRIVAL, 9, 7).epochs.tolist() == [UNKNOWN, 0, 0]
