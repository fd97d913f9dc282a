"""Neighbours that are found in the table itself, against brute force; lists that are kept up to date, against new."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from freshet.state.served.ids import Texts, plain_ids
from freshet.state.served.inverted import InvertedLists, trained
from freshet.state.served.layout import SHM, TableShape
from freshet.state.served.mapped import NEWEST, HistoryTooShortError
from freshet.state.served.near_kernels import COSINE, DOT, EUCLIDEAN
from freshet.state.served.nearest import Best, MissedError, Target, at_one_epoch, best_of
from freshet.state.served.reader import ChangeReader, TableReader
from freshet.state.served.writer import TableWriter

METRICS = (COSINE, DOT, EUCLIDEAN)
SPECIAL = np.array([0, np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-30], np.float32)


@pytest.fixture
def path() -> Iterator[Path]:
    found = SHM / f"freshet-test-{os.getpid()}-{secrets.token_hex(4)}"
    yield found
    found.unlink(missing_ok=True)


class Rows:
    """A table of which every epoch is known as a dict: id -> row, in the order of the slots."""

    def __init__(self, path: Path, width: int, seed: int = 1, capacity: int = 1024, history: int = 1 << 20) -> None:
        self.writer = TableWriter(path, TableShape.of(width, False, capacity, 0, history), 1, 1)
        self.reader, self.width = TableReader(path), width
        self.rng = np.random.default_rng(seed)
        self.order: list[int] = []
        self.at: list[dict[int, np.ndarray]] = [{}]
        self.writer.publish(0)

    def apply(self, put: dict[int, np.ndarray], removed: Sequence[int] = ()) -> None:
        """Publish the next epoch."""
        epoch = len(self.at)
        self.writer.remove(epoch, np.array(removed, np.int64))
        rows = np.array([*put.values()], np.float32).reshape(-1, self.width)
        self.writer.put(epoch, np.array([*put], np.int64), rows)
        self.writer.publish(epoch)
        self.order += [one for one in put if one not in self.order]
        now = {key: row for key, row in self.at[-1].items() if key not in removed}
        self.at.append(now | dict(zip(put, rows, strict=True)))

    def random(self, ids: int, share: float = 0.3, grid: int | None = None) -> None:
        """Publish an epoch of random changes; `grid`: of few values, so that many scores are equal."""
        keys = self.rng.permutation(ids)[: max(1, int(share * ids))].tolist()
        dead = [key for key in keys[: len(keys) // 4] if key in self.at[-1]]
        rows = self.rng.standard_normal((len(keys), self.width)).astype(np.float32)
        rows = np.round(rows * grid) if grid else rows
        self.apply(dict(zip(keys[len(keys) // 4 :], rows[len(keys) // 4 :], strict=True)), dead)


def by_force(
    rows: Rows, epoch: int, query: np.ndarray, k: int, metric: int, without: int | None = None
) -> list[tuple[int, np.float32]]:
    """The ids of the best rows and their scores, in plain numpy and float64; of equal ones the first slot is first."""
    now = rows.at[epoch]
    ids = [one for one in rows.order if one in now and one != without]
    if not ids:
        return []
    of, q = np.array([now[one] for one in ids], np.float64), query.astype(np.float64)
    with np.errstate(all="ignore"):
        if metric == DOT:
            scores = (of * q).sum(axis=1)
        elif metric == COSINE:
            lengths = np.sqrt((of * of).sum(axis=1)) * np.sqrt((q * q).sum())
            scores = (of * q).sum(axis=1) / np.maximum(lengths, 1e-30)
        else:
            scores = -np.sqrt(np.square(of - q).sum(axis=1))
        shown = scores.astype(np.float32)
    worst_last = np.where(np.isnan(shown), -np.inf, np.where(np.isneginf(shown), -1e300, shown.astype(np.float64)))
    order = np.argsort(-worst_last, kind="stable")[:k]
    return [(ids[at], -shown[at] if metric == EUCLIDEAN else shown[at]) for at in order]


def found(best: Best) -> list[tuple[int, np.float32]]:
    return list(zip(plain_ids(best.ids), best.scores, strict=True))


def same(one: list[tuple[int, np.float32]], other: list[tuple[int, np.float32]], exactly: bool = True) -> None:
    assert [id_ for id_, _ in one] == [id_ for id_, _ in other]
    scores = [np.array([score for _, score in of], np.float32) for of in (one, other)]
    np.testing.assert_array_equal(*scores) if exactly else np.testing.assert_allclose(*scores, rtol=1e-5)


def exact(rows: Rows, query: np.ndarray, k: int, metric: int, skipped: int = -1) -> Best:
    return at_one_epoch(rows.reader, NEWEST, lambda _: Target(query, metric, skipped), k)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("width", [1, 3, 4, 17])
@pytest.mark.parametrize("grid", [None, 2])
def test_exact_neighbours_are_those_of_brute_force(path: Path, metric: int, width: int, grid: int | None) -> None:
    rows = Rows(path, width)
    for _ in range(4):
        rows.random(300, grid=grid)
        for k in (1, 7, 500):
            query = rows.rng.standard_normal(width).astype(np.float32)
            query = np.round(2 * query) if grid else query
            best = exact(rows, query, k, metric)
            assert best.epoch == len(rows.at) - 1
            same(found(best), by_force(rows, best.epoch, query, k, metric))
            np.testing.assert_array_equal(best.rows, [rows.at[-1][one] for one, _ in found(best)])


@pytest.mark.parametrize("metric", METRICS)
def test_rows_without_a_number_come_last(path: Path, metric: int) -> None:
    rows = Rows(path, 2)
    values = {k: SPECIAL[[k % 7, k // 7]] for k in range(49)}
    rows.apply(values)
    for query in (np.array([1, -2], np.float32), np.zeros(2, np.float32)):
        for k in (3, 20, 49):
            best = exact(rows, query, k, metric)
            same(found(best), by_force(rows, 1, query, k, metric))


def test_an_empty_table_and_rows_that_are_all_equal(path: Path) -> None:
    rows = Rows(path, 3)
    one = np.ones(3, np.float32)
    for metric in METRICS:
        assert found(exact(rows, one, 5, metric)) == []
        assert [of.tolist() for of in made(rows, metric).sizes[:, None]] == [[0]]
    rows.apply({key: one for key in (5, 3, 9, 1)})
    for metric in METRICS:
        assert plain_ids(exact(rows, one, 3, metric).ids) == [5, 3, 9]
        assert plain_ids(exact(rows, one, 3, metric, 0).ids) == [3, 9, 1], "without the first slot"
    rows.apply({}, [5, 3, 9, 1])
    assert found(exact(rows, one, 3, COSINE)) == []


def test_among_some_slots(path: Path) -> None:
    rows = Rows(path, 4)
    rows.random(100, 1.0)
    asked = np.array([3, 999, 17, 50, 12], np.int64)
    slots = rows.reader.slots_of(asked)
    query = rows.rng.standard_normal(4).astype(np.float32)
    best = at_one_epoch(rows.reader, NEWEST, lambda _: Target(query, COSINE), 10, slots)
    want = [one for one in by_force(rows, 1, query, 100, COSINE) if one[0] in asked]
    same(found(best), want)
    assert (best.own >= 0).tolist() == [one in rows.at[1] for one in asked.tolist()]


def test_string_ids(path: Path) -> None:
    writer = TableWriter(path, TableShape.of(2, True, 8, 64, 1 << 16), 1, 1)
    writer.put(0, Texts.encode(["a", "", "ü"]), np.array([[1, 0], [0, 1], [1, 1]], np.float32))
    writer.publish(0)
    reader = TableReader(path)
    assert reader.slots_of(Texts.encode(["ü", "b", "", "a"])).tolist()[::2] == [2, 1]
    assert reader.slots_of(Texts.encode(["b"]))[0] < 0
    best = at_one_epoch(reader, NEWEST, lambda _: Target(np.array([0, 1], np.float32), DOT), 2)
    assert plain_ids(best.ids) == ["", "ü"]


def test_scores_of_a_function(path: Path) -> None:
    """As of a link head: what is no number comes last, as the least."""
    rows = Rows(path, 2)
    rows.apply({key: np.array([key, 0], np.float32) for key in range(10)})

    def scores(of: np.ndarray) -> np.ndarray:
        return np.where(of[:, 0] == 4, np.nan, -np.abs(of[:, 0] - 5)).astype(np.float32)

    target = Target(np.zeros(2, np.float32), -1, 6, scores)
    best = at_one_epoch(rows.reader, NEWEST, lambda _: target, 10)
    assert plain_ids(best.ids) == [5, 3, 7, 2, 8, 1, 9, 0, 4]
    assert best.scores.tolist()[-1] == -np.inf
    some = at_one_epoch(rows.reader, NEWEST, lambda _: target, 2, rows.reader.slots_of(np.array([9, 77, 4, 1])))
    assert (plain_ids(some.ids), (some.own >= 0).tolist()) == ([1, 9], [True, False, True, True])


def test_an_epoch_that_the_ring_has_passed_is_read_again_or_refused_by_name(path: Path) -> None:
    rows = Rows(path, 2, capacity=2048, history=1)
    ids = np.arange(700)

    def write() -> None:
        rows.apply(dict(zip(ids.tolist(), rows.rng.standard_normal((700, 2)).astype(np.float32), strict=True)))

    write()
    former, looked = rows.reader.epoch, []

    def target(epoch: int) -> Target:
        for _ in range(9 * (not looked)):  # the ring has entries of six epochs
            write()
        looked.append(epoch)
        return Target(np.ones(2, np.float32), DOT)

    best = at_one_epoch(rows.reader, NEWEST, target, 5)
    assert looked == [former, former + 9]
    same(found(best), by_force(rows, former + 9, np.ones(2, np.float32), 5, DOT))
    with pytest.raises(HistoryTooShortError, match="--history"):
        at_one_epoch(rows.reader, former, target, 5)
    with pytest.raises(MissedError):
        best_of(rows.reader, former, target(former), 5)


def made(rows: Rows, metric: int, centroids: np.ndarray | None = None) -> InvertedLists:
    """Lists of all rows of the newest epoch."""
    lists = InvertedLists(rows.reader, metric, trained(rows.reader, metric) if centroids is None else centroids)
    assert lists.take(np.arange(len(rows.order)), len(rows.at) - 1) == 0
    return lists


def content(lists: InvertedLists) -> list[list[int]]:
    return [np.sort(lists.slots_in(np.array([one]))).tolist() for one in range(len(lists.sizes))]


@pytest.mark.parametrize("metric", METRICS)
def test_lists_that_are_kept_up_to_date_are_those_that_are_made(path: Path, metric: int) -> None:
    """With all lists looked through, the answer is the exact one, after each epoch."""
    rows = Rows(path, 6, capacity=2048)
    for _ in range(2):
        rows.random(600, 0.5)
    following, lists = ChangeReader(rows.reader), made(rows, metric)
    following.start_at(rows.reader.epoch)
    assert len(lists.sizes) > 10
    for _ in range(12):
        rows.random(900, 0.2)
        changed = following.slots()
        assert changed is not None
        assert lists.take(changed[1], changed[0]) == 0
        assert content(lists) == content(made(rows, metric, lists.centroids))
        assert sorted(chain(*content(lists))) == [slot for slot, one in enumerate(rows.order) if one in rows.at[-1]]
        query = rows.rng.standard_normal(6).astype(np.float32)
        slots = lists.slots_in(lists.best_lists(query, len(lists.sizes), 1))
        best = best_of(rows.reader, len(rows.at) - 1, Target(query, metric), 9, slots)
        same(found(best), by_force(rows, len(rows.at) - 1, query, 9, metric))
    rows.apply({}, [*rows.at[-1]])
    changed = following.slots()
    assert changed is not None
    assert lists.take(changed[1], changed[0]) == 0
    assert lists.sizes.sum() == 0
    assert lists.unevenness == 1.0


@pytest.mark.parametrize("metric", METRICS)
def test_rows_of_any_kind_are_in_the_lists(path: Path, metric: int) -> None:
    """Zeros, numbers that are not finite, and rows that are all equal."""
    rows = Rows(path, 2)
    rows.apply({k: SPECIAL[[k % 7, k // 7]] for k in range(49)} | {100 + k: np.ones(2) for k in range(60)})
    lists = made(rows, metric)
    assert lists.sizes.sum() == 109
    for query in (np.array([1, -2], np.float32), np.zeros(2, np.float32)):
        slots = lists.slots_in(lists.best_lists(query, 10_000, 1))
        best = best_of(rows.reader, 1, Target(query, metric), 200, slots)
        same(found(best), by_force(rows, 1, query, 200, metric))


@pytest.mark.parametrize("metric", METRICS)
def test_few_lists_have_most_neighbours_of_clustered_rows(path: Path, metric: int) -> None:
    rows = Rows(path, 16, capacity=4096)
    centres = rows.rng.standard_normal((40, 16))
    of = centres[rows.rng.integers(0, 40, 4000)] + 0.3 * rows.rng.standard_normal((4000, 16))
    rows.apply(dict(enumerate(of.astype(np.float32))))
    lists, hits = made(rows, metric), []
    assert len(lists.sizes) == 64
    for one in range(0, 4000, 80):
        target = Target(rows.at[1][one], metric, one)
        slots = lists.slots_in(lists.best_lists(target.vector, 6, 40))
        assert len(slots) < 2000
        want = best_of(rows.reader, 1, target, 10).slots
        hits.append(np.isin(want, slots).mean())
        looked_at = len(lists.best_lists(target.vector, 6, 40))
        assert np.array_equal(lists.ranks(target.vector, want) < looked_at, np.isin(want, slots))
    assert np.mean(hits) >= 0.9


def test_there_are_as_many_candidates_as_are_wanted(path: Path) -> None:
    rows = Rows(path, 3)
    rows.random(400, 1.0)
    lists = made(rows, EUCLIDEAN)
    sizes = lists.sizes
    for at_least in (1, 50, 150, 10_000):
        found_in = lists.best_lists(np.zeros(3, np.float32), 1, at_least)
        assert sizes[found_in].sum() >= min(at_least, sizes.sum())
        assert sizes[found_in[:-1]].sum() < at_least
    assert lists.nbytes < InvertedLists.bytes_for(rows.reader)
