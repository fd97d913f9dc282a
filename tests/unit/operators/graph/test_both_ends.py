"""An edge stands in the lists of both its ends or in neither, and a long list that lacks its index is noticed."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from freshet.operators.graph.edge_messages import lacks_index_of_edges, link
from freshet.state.adjacency import Lists, append
from freshet.state.memory.list_index import LONG
from freshet.state.served.ids import frozen
from freshet.state.table import TableSet


@njit
def linked(out: object, inn: object, u: int, v: int, weight: float) -> bool:
    return link(out, inn, u, v, weight, 0)


@njit
def lacks(out: object, inn: object, deleted: tuple, reweighted: tuple) -> bool:
    return lacks_index_of_edges(out, inn, deleted, reweighted)


@njit
def fill(lists: object, row: int, count: int) -> int:
    for i in range(count):
        if not append(lists, row, np.int32(i), np.float32(1), 0):
            return i
    return count


def both(weighted: bool) -> tuple[Lists, Lists]:
    tables = TableSet()
    made = Lists(tables, "out", weighted), Lists(tables, "inn", weighted)
    for lists in made:
        lists.reserve(3)
    return made


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("full", ["out", "inn"])
def test_an_edge_without_room_at_one_end_is_at_neither(weighted: bool, full: str) -> None:
    out, inn = both(weighted)
    tight, wide = (out, inn) if full == "out" else (inn, out)
    wide.reserve_entries(1 << 18)
    count = refused = 0
    while count < 60_000:
        if linked(out.view, inn.view, 0, 1, np.float32(2)):
            count += 1
            continue
        refused += 1
        assert out.of(0).tolist() == [1] * count
        assert inn.of(1).tolist() == [0] * count
        tight.grow()
    assert refused > 1
    assert out.of(0).tolist() == [1] * count
    assert inn.of(1).tolist() == [0] * count


@pytest.mark.parametrize("which", ["deleted out", "deleted inn", "reweighted out", "reweighted inn"])
def test_an_index_that_is_missing_at_one_end_is_noticed(which: str) -> None:
    what, end = which.split()
    out, inn = both(weighted=True)
    hub = out if end == "out" else inn
    hub.reserve_entries(4 * LONG)
    assert fill(hub.view, 2, LONG + 1) == LONG + 1
    weights, rows, none = (np.zeros(1, np.float32), np.array([2], np.int32), np.empty(0, np.int32))
    at_end = (rows, np.array([0], np.int32)) if end == "out" else (np.array([0], np.int32), rows)
    ends = tuple(frozen(one) for one in (at_end if what == "deleted" else (none, none.copy())))
    other = tuple(frozen(one) for one in (at_end if what == "reweighted" else (none.copy(), none.copy())))
    deleted, reweighted = (*ends, frozen(weights.copy())), (*other, frozen(weights.copy()), frozen(weights.copy()))
    assert lacks(out.view, inn.view, deleted, reweighted)
    hub.make_index(frozen(rows))
    assert not lacks(out.view, inn.view, deleted, reweighted)
