"""Lists whose entries are known by tags: many may have one value, and each is found at the cost of one."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.kernels.kernel import kernel
from freshet.state.adjacency import Lists, ListsView, append, find, remove, set_weight
from freshet.state.memory import list_index
from freshet.state.table import TableSet

PARALLEL = 100_000
Entry = tuple[int, float]  # value and weight


def made(parts: int = 1, *, weighted: bool) -> Lists:
    """Return lists with a few rows in each part."""
    lists = Lists(TableSet(parts), "out", weighted, tagged=True)
    lists.reserve(4)
    lists.reserve_entries(0)
    return lists


def held(lists: Lists, row: int) -> dict[int, Entry]:
    """The entries of a list by tags, each found by its own."""
    place, length, capacity = (int(number) for number in lists.head.data[row])
    first = (row >> lists.head.part_shift) * lists.pool.stride + place
    half = capacity >> 1
    tags = lists.pool.data[first + half : first + half + length].tolist()
    places = [int(find(lists.view, row, 0, 0.0, tag)) for tag in tags]
    assert places == list(range(first, first + length))
    weights = [1.0] * length if lists.weight is None else lists.weight.data[first : first + length].tolist()
    return dict(zip(tags, zip(lists.of(row).tolist(), weights, strict=True), strict=True))


@settings(max_examples=150, deadline=None)
@given(
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
    st.lists(
        st.tuples(st.sampled_from(["add", "add", "add", "remove", "weigh"]), st.integers(0, 2), st.integers(0, 40)),
        max_size=120,
    ),
)
def test_entries_are_those_of_dictionaries(weighted, indexed, parts, steps):
    lists, wanted = made(parts, weighted=weighted), {row: dict[int, Entry]() for row in range(3)}
    for number, (what, row, tag) in enumerate(steps):
        before = list_index.LONG
        list_index.LONG = 8 if indexed else before
        at = row + (parts - 1 << lists.head.part_shift if parts > 1 else 0)
        try:
            if indexed:
                lists.make_index(np.array([at], np.int32))
            entries, weight = wanted[row], float(number % 5)
            if what == "add" and tag not in entries:
                while not append(lists.view, at, tag % 2, weight, tag):
                    lists.grow()
                entries[tag] = tag % 2, weight if weighted else 1.0
            elif what == "remove":
                assert remove(lists.view, at, tag % 2, 0.0, tag) == (entries.pop(tag, None) is not None)
            elif what == "weigh" and weighted:
                assert weigh(lists.view, at, tag % 2, weight, tag) == (tag in entries)
                if tag in entries:
                    entries[tag] = entries[tag][0], weight
            assert held(lists, at) == entries
        finally:
            list_index.LONG = before


@kernel
def weigh(lists: ListsView, row: int, value: int, weight: float, tag: int) -> bool:
    """`set_weight` for Python."""
    return set_weight(lists, row, value, 0.0, weight, tag)


@kernel
def _change(lists: ListsView, tags: np.ndarray, what: int, start: int) -> int:
    """Add (0), give a weight (1) or remove (2) entries of one value; returns where it stopped, or how many."""
    for i in range(start, len(tags)):
        if what == 0 and not append(lists, 1, 7, 1.0, tags[i]):
            return i
        if what == 1 and not set_weight(lists, 1, 7, 1.0, 2.0, tags[i]):
            return -1
        if what == 2 and not remove(lists, 1, 7, 2.0, tags[i]):
            return -1
    return len(tags)


@pytest.mark.parametrize("weighted", [False, True])
def test_each_of_many_entries_of_a_value_costs_what_one_does(weighted):
    lists, rng = made(weighted=weighted), np.random.default_rng(4)
    tags = rng.permutation(PARALLEL).astype(np.int32)
    few, at, row = tags[:10], 0, np.array([1], np.int32)
    while (at := _change(lists.view, tags, 0, at)) < len(tags):
        lists.grow()
    _change(made(weighted=True).view, few[:0], 1, 0)  # compiled
    lists.make_index(row)
    begin = perf_counter()
    if weighted:
        assert _change(lists.view, rng.permutation(tags), 1, 0) == len(tags)
    assert _change(lists.view, rng.permutation(tags)[: PARALLEL // 2], 2, 0) == PARALLEL // 2
    taken = perf_counter() - begin
    assert lists.head.data[1, 1] == PARALLEL - PARALLEL // 2
    assert taken < 3, "a list that is read through for each entry takes minutes"
