import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import njit

from freshet.state.adjacency import FIRST_CAPACITY, Lists, append, find, remove
from freshet.state.adjacency import lacks_index as list_lacks_index
from freshet.state.memory import list_index
from freshet.state.memory.list_index import LONG, no_index
from freshet.state.served.ids import frozen
from freshet.state.sweep import Sweeper
from freshet.state.table import TableSet

Entries = list[list[tuple[int, float]]]


def make(rows: int, weighted: bool = False) -> tuple[TableSet, Lists]:
    tables = TableSet()
    lists = Lists(tables, "out", weighted)
    lists.reserve(rows)
    return tables, lists


def add(lists: Lists, row: int, value: int, weight: float = 1.0) -> None:
    while not append(lists.view, row, value, weight, 0):
        lists.grow()


def contents(lists: Lists, row: int) -> list[tuple[int, float]]:
    at, length, _ = lists.head.data[row].tolist()
    weights = lists.weight.data[at : at + length].tolist() if lists.weight is not None else [1.0] * length
    return list(zip(lists.of(row).tolist(), weights, strict=True))


def take_out(model: list[tuple[int, float]], value: int, weight: float | None) -> bool:
    """What `remove` does, on a Python list: the last entry takes the place of the one that goes."""
    for k, (v, w) in enumerate(model):
        if v == value and (weight is None or w == weight):
            model[k] = model[-1]
            model.pop()
            return True
    return False


KINDS, WEIGHTS = st.sampled_from(["add", "add", "add", "remove"]), st.sampled_from([1.0, 2.5])
OPERATIONS = st.lists(st.tuples(KINDS, st.integers(0, 4), st.integers(0, 3), WEIGHTS), max_size=200)


@pytest.mark.parametrize("weighted", [True, False])
@given(operations=OPERATIONS)
def test_they_are_what_python_lists_are(weighted: bool, operations: list[tuple[str, int, int, float]]) -> None:
    _, lists = make(5, weighted)
    model: Entries = [[] for _ in range(5)]
    for operation, row, value, weight in operations:
        kept = weight if weighted else 1.0
        if operation == "add":
            add(lists, row, value, weight)
            model[row].append((value, kept))
        else:
            known = take_out(model[row], value, kept if weighted else None)
            assert remove(lists.view, row, value, weight, 0) == known
        for wanted in range(4):
            found = find(lists.view, row, wanted, weight, 0)
            assert (found >= 0) == any(v == wanted and (not weighted or w == weight) for v, w in model[row])
    assert [contents(lists, row) for row in range(5)] == model


@given(operations=OPERATIONS)
def test_chunks_never_overlap_and_none_is_lost(operations: list[tuple[str, int, int, float]]) -> None:
    _, lists = make(5)
    for operation, row, value, weight in operations:
        add(lists, row, value) if operation == "add" else remove(lists.view, row, value, weight, 0)
    places = [place for at, _, capacity in lists.head.data[:5].tolist() for place in range(at, at + capacity)]
    for k in range(31):
        at = int(lists.free.data[k])
        while at:
            places += range(at - 1, at - 1 + (1 << k))
            at = int(lists.pool.data[at - 1])
    assert sorted(places) == list(range(int(lists.free.data[31])))


@njit
def churn(lists: object, rows: np.ndarray, values: np.ndarray, held: np.ndarray, most: int) -> int:
    """Add each value, and take one out again when too many are held; returns where it stopped for want of room."""
    for i in range(len(rows)):
        row = rows[i]
        if held[row] >= most:
            at = lists.head.data[row, 0]
            remove(lists, row, lists.pool.data[at + values[i] % held[row]], 1.0, 0)
            held[row] -= 1
        if not append(lists, row, values[i], 1.0, 0):
            return i
        held[row] += 1
    return len(rows)


def test_the_pool_follows_the_entries_and_not_the_changes() -> None:
    _, lists = make(50)
    rng = np.random.default_rng(3)
    held = np.zeros(50, np.int64)
    rows, values = rng.integers(0, 50, 100_000), rng.integers(0, 1_000, 100_000)
    at = 0
    while at < len(rows):
        at += churn(lists.view, rows[at:], values[at:], held, 20)
        if at < len(rows):
            lists.grow()
    entries = int(held.sum())
    assert entries == sum(len(lists.of(row)) for row in range(50)) > 500
    # A list of 20 lies in a chunk of 32, and has left chunks of 4, 8 and 16 behind, which others use.
    assert int(lists.free.data[31]) <= 50 * (4 + 8 + 16 + 32)
    assert lists.pool.data.size <= 1 << 16


def test_lists_that_grow_and_vanish_in_turn_use_the_same_room() -> None:
    _, lists = make(2_000)
    for number in range(2_000):
        row, rounds = number, 50
        for value in range(rounds):
            add(lists, row, value)
        for value in range(rounds):
            assert remove(lists.view, row, value, 1.0, 0)
    assert not lists.head.data.any()
    assert int(lists.free.data[31]) <= 128


def test_an_empty_list_holds_no_chunk() -> None:
    _, lists = make(3)
    add(lists, 1, 7)
    assert lists.head.data[1].tolist() == [0, 1, FIRST_CAPACITY]
    remove(lists.view, 1, 7, 1.0, 0)
    assert lists.head.data[1].tolist() == [0, 0, 0]
    add(lists, 2, 8)
    assert lists.head.data[2, 0] == 0, "the chunk is used again"


def test_append_without_room_changes_nothing() -> None:
    tables, lists = make(1)
    assert not append(lists.view, 0, 3, 1.0, 0)
    assert not any(table.data.any() for table in tables)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_a_restored_pool_is_the_same_one(seed: int) -> None:
    """Not only the same lists: the same places, so that what comes next is the same too."""
    rng = random.Random(seed)
    weighted = rng.random() < 0.5
    tables, lists = make(6, weighted)
    sweeper, entries = Sweeper(tables), dict[str, bytes]()
    for epoch in (1, 2):
        churn_python(rng, lists)
        changes = sweeper.mark(epoch)[0]
        for key, value in changes.puts:
            entries[key] = value
        for key in changes.deletes:
            entries.pop(key, None)
    restored_tables, restored = make(0, weighted)
    assert Sweeper(restored_tables).restore(entries.items()) == 1
    again, seed = random.Random(seed), rng.random()
    again.random()
    _, first = make(6, weighted)
    churn_python(again, first)
    assert_same(first, restored)
    for both in (first, restored):
        churn_python(random.Random(seed), both)
    assert_same(first, restored)


def churn_python(rng: random.Random, lists: Lists) -> None:
    for _ in range(rng.randint(1, 60)):
        row, value, weight = rng.randrange(6), rng.randrange(4), float(rng.choice([1, 2]))
        if rng.random() < 0.6:
            add(lists, row, value, weight)
        else:
            remove(lists.view, row, value, weight, 0)


def assert_same(one: Lists, other: Lists) -> None:
    tail = int(one.free.data[31])
    assert (one.free.data[:32] == other.free.data[:32]).all()
    assert (one.head.data[:6] == other.head.data[:6]).all()
    assert (one.pool.data[:tail] == other.pool.data[:tail]).all()
    assert Counter(x for row in range(6) for x in contents(one, row)) == Counter(
        x for row in range(6) for x in contents(other, row)
    )


def test_pages_that_come_back_in_any_order_leave_room_for_weights_too() -> None:
    """Pool and weights may grow differently while their pages come in; the smaller one decides when it is full."""
    _, lists = make(1, weighted=True)
    page = lists.pool.page_rows
    for number in range(6):  # grown a page at a time: to 5 pages, then 7
        lists.pool.load_page(number, bytes(4 * page))
    assert lists.weight is not None
    lists.weight.load_page(5, bytes(4 * page))
    assert lists.weight.data.size < lists.pool.data.size
    lists.free.data[31] = lists.weight.data.size
    assert not append(lists.view, 0, 3, 2.0, 0), "there is no room for the weight"
    add(lists, 0, 3, 2.0)
    assert contents(lists, 0) == [(3, 2.0)]


ACTS = st.sampled_from(["add", "add", "remove", "remove", "find", "make room", "tidy", "restore"])
RUNS = st.lists(st.tuples(ACTS, st.integers(0, 3), st.integers(0, 9), WEIGHTS, st.integers(1, 30)), max_size=25)


@pytest.fixture
def soon_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_index, "LONG", 16)


@pytest.mark.usefixtures("soon_long")
@pytest.mark.parametrize(("parts", "weighted"), [(1, True), (2, False)])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=RUNS)
def test_lists_with_an_index_are_what_python_lists_are(
    parts: int, weighted: bool, runs: list[tuple[str, int, int, float, int]]
) -> None:
    """In every place: the first of several entries that are alike goes, as without an index."""
    lists = Lists(TableSet(parts), "out", weighted)
    model: Entries = [[] for _ in range(4)]
    lists.reserve(4)
    for act, number, first_value, weight, many in [("add", 0, 0, 1.0, 30), *runs]:
        row = (number % parts << lists.head.part_shift) + number // parts
        kept, entries = weight if weighted else 1.0, model[number]
        lists.make_index(frozen(np.array([row], np.int32)))
        assert not lacks_index(lists, row)
        for value in (first_value + k % 3 for k in range(many)):
            if act == "add":
                add(lists, row, value, weight)
                entries.append((value, kept))
            elif act == "remove":
                assert remove(lists.view, row, value, weight, 0) == take_out(entries, value, kept)
            elif act == "find":
                expected = next((k for k, entry in enumerate(entries) if entry == (value, kept)), None)
                at = find(lists.view, row, value, weight, 0)
                assert (at - begin_of(lists, row) if at >= 0 else None) == expected
        if act == "make room":
            lists.reserve(4 + many * 8)  # rows of the second part move, and lists of both in their pools
            lists.grow()
        elif act == "tidy":
            lists.tidy()
        elif act == "restore":
            lists.after_restore()
            assert lacks_index(lists, row) == (len(entries) > 16)
        row = (number % parts << lists.head.part_shift) + number // parts
        begin, length = begin_of(lists, row), int(lists.head.data[row, 1])
        weights = lists.weight.data[begin : begin + length].tolist() if lists.weight is not None else [1.0] * length
        assert list(zip(lists.of(row).tolist(), weights, strict=True)) == entries


def begin_of(lists: Lists, row: int) -> int:
    return (row >> lists.head.part_shift) * lists.pool.stride + int(lists.head.data[row, 0])


@njit
def _lacks(lists: object, rows: np.ndarray) -> bool:
    return list_lacks_index(lists, rows)


def lacks_index(lists: Lists, row: int) -> bool:
    return bool(_lacks(lists.view, np.array([row], np.int32)))


@njit
def add_all(lists: object, values: np.ndarray) -> int:
    for i in range(len(values)):
        if not append(lists, 0, values[i], 1.0, 0):
            return i
    return len(values)


@njit
def take_all(lists: object, values: np.ndarray) -> int:
    for i in range(len(values)):
        if not remove(lists, 0, values[i], 1.0, 0):
            return i
    return len(values)


def test_a_hub_has_an_index_while_it_is_one() -> None:
    _, lists = make(1)
    values = np.random.default_rng(1).permutation(100_000).astype(np.int32)
    lists.reserve_entries(1 << 18)
    assert add_all(lists.view, values) == len(values)
    assert lists.index_bytes == no_index().nbytes, "nothing was looked for"
    lists.make_index(frozen(np.zeros(1, np.int32)))
    assert 8 * len(values) <= lists.index_bytes <= 40 * len(values)
    free = np.flatnonzero(lists.view.numbers == 0)
    assert np.diff(free).max() < 100, "what is looked for stands within a few cells"
    held, values = lists.index_bytes, np.sort(values)
    assert take_all(lists.view, values[: -LONG - 1]) == len(values) - LONG - 1
    assert sorted(lists.of(0).tolist()) == values[-LONG - 1 :].tolist()
    lists.tidy()
    assert lists.index_bytes < held / 50
