from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from freshet.state.table import CLEAN, DIRTY, PENDING, Table, TableSet, View, touch

ROW_BYTES = 1 << 12  # rows of 4 KiB: a page has 16, the fewest there are
WIDTH = ROW_BYTES // 8


@njit
def add_to_rows(view: View, rows: np.ndarray, amount: float) -> None:
    for row in rows:
        touch(view, row)
        view.data[row] += amount


def small_table(pages: int) -> Table:
    table = Table("t", "f8", WIDTH)
    assert table.page_rows == 16
    table.reserve(16 * pages)
    return table


def taken(table: Table, limit: int = 1000) -> dict[int, float]:
    """Page -> the value in its first row."""
    return {page: float(np.frombuffer(data.ljust(16 * ROW_BYTES, b"\0"))[0]) for page, data in table.take_owed(limit)}


def set_rows(table: Table, rows: list[int], value: float) -> None:
    table.touch_rows(np.array(rows))
    table.data[rows] = value


def test_a_page_is_about_64_kib() -> None:
    assert Table("t", "u1").page_rows == 1 << 16
    assert Table("t", "f4", 128).page_rows == 128
    assert Table("t", "f4", 100).page_rows == 128
    assert Table("t", "f4", 100_000).page_rows == 16


def test_only_touched_pages_are_owed() -> None:
    table = small_table(4)
    assert table.freeze() == 0
    set_rows(table, [5, 17, 18], 1)
    assert table.freeze() == 2 == table.owed
    assert taken(table) == {0: 0, 1: 0}
    assert table.freeze() == 0


def test_a_page_written_again_is_owed_to_the_next_marker_too() -> None:
    table = small_table(2)
    set_rows(table, [0], 1)
    table.freeze()
    set_rows(table, [0], 2)
    assert taken(table) == {0: 1}, "as of the marker"
    assert table.freeze() == 1
    assert taken(table) == {0: 2}
    assert table.freeze() == 0


def test_a_page_that_was_written_before_it_changed_is_owed_to_the_next_marker() -> None:
    table = small_table(2)
    set_rows(table, [0, 16], 1)
    table.freeze()
    assert taken(table, 1) == {0: 1}
    set_rows(table, [0, 16], 2)
    assert taken(table) == {1: 1}
    table.freeze()
    assert taken(table) == {0: 2, 1: 2}


@pytest.mark.parametrize("by_kernel", [True, False])
def test_the_first_change_after_a_marker_copies_the_page(by_kernel: bool) -> None:
    table = small_table(3)
    set_rows(table, [0, 16, 32], 1)
    table.freeze()
    assert [table.view.flags[page] for page in range(3)] == [PENDING] * 3
    if by_kernel:
        add_to_rows(table.view, np.array([0, 16]), 1.0)
        add_to_rows(table.view, np.array([0]), 1.0)
    else:
        set_rows(table, [0, 16], 2)
        set_rows(table, [0], 3)
    assert [table.view.flags[page] for page in range(3)] == [DIRTY, DIRTY, PENDING]
    assert [table.data[row, 0] for row in (0, 1, 16, 32)] == [3, 0, 2, 1]
    assert taken(table) == {0: 1, 1: 1, 2: 1}
    assert [table.view.flags[page] for page in range(3)] == [DIRTY, DIRTY, CLEAN]


def test_take_gives_no_more_than_asked_for_in_the_order_of_pages() -> None:
    table = small_table(5)
    table.touch_all()
    table.freeze()
    assert list(taken(table, 2)) == [0, 1]
    assert table.owed == 3
    assert list(taken(table, 2)) == [2, 3]
    assert list(taken(table, 2)) == [4]
    assert taken(table) == {}


def test_growth_keeps_values_and_what_is_owed() -> None:
    table = small_table(2)
    set_rows(table, [0, 16], 1)
    table.freeze()
    set_rows(table, [0], 2)
    table.reserve(16 * 40)
    set_rows(table, [16, 16 * 39], 3)
    assert taken(table) == {0: 1, 1: 1}
    assert table.freeze() == 3
    assert taken(table) == {0: 2, 1: 3, 39: 3}


@pytest.mark.parametrize("fill", [0, -1])
def test_new_rows_hold_fill(fill: int) -> None:
    table = Table("t", "i4", 2, fill)
    for rows in (3, 20_000, 100_000):
        table.reserve(rows)
        assert table.rows == rows
        assert (table.data == fill).all()
    table.reserve(1)
    assert table.rows == 100_000


def test_new_rows_may_hold_nan() -> None:
    table = Table("t", "f4", fill=float("nan"))
    table.reserve(10)
    assert np.isnan(table.data).all()


def test_a_marker_with_pages_owed_is_refused() -> None:
    table = small_table(3)
    table.touch_all()
    table.freeze()
    taken(table, 2)
    with pytest.raises(RuntimeError, match="table t: 1 pages of the last marker were not written"):
        table.freeze()


def test_a_restored_page_is_clean() -> None:
    table = small_table(0)
    page = np.arange(16 * WIDTH, dtype="f8")
    table.load_page(3, page.tobytes())
    assert table.rows == 64
    assert (table.data[48:64].ravel() == page).all()
    assert not table.data[:48].any()
    assert table.freeze() == 0


def test_a_page_larger_than_the_table_has_is_refused() -> None:
    table = small_table(1)
    with pytest.raises(ValueError, match="at most 8192 fit"):
        table.load_page(0, bytes(17 * ROW_BYTES))


@pytest.mark.parametrize(("dtype", "fill"), [("f8", 0), ("f4", float("nan")), ("i4", -1), ("u1", 0), ("f4", 0)])
def test_what_fills_the_end_of_a_page_is_not_written(dtype: str, fill: float) -> None:
    table, other = (Table("t", dtype, WIDTH, fill) for _ in range(2))
    for one in (table, other):
        one.reserve(2 * one.page_rows)
    table.touch_all()
    table.data[2, 0] = 7
    table.data[1, 1] = -0.0 if dtype[0] == "f" else 3
    table.freeze()
    pages = dict(table.take_owed(2))
    assert {number: len(page) for number, page in pages.items()} == {0: (2 * WIDTH + 1) * table.dtype.itemsize, 1: 0}
    other.data[:] = 5
    for number, page in pages.items():
        other.load_page(number, page)
    assert other.data.tobytes() == table.data.tobytes()


def test_names_are_unique() -> None:
    tables = TableSet()
    tables.add("x", "f4", 3)
    with pytest.raises(ValueError, match="'x' exists already"):
        tables.add("x", "f4", 3)


def test_memory_is_counted() -> None:
    tables = TableSet()
    tables.add("x", "f4", 4).reserve(10_000)
    tables.add("y", "i8").reserve(10)
    held = sum(table.data.nbytes for table in tables)
    assert held <= tables.nbytes < held + 200_000
    tables["x"].touch_all()
    tables["x"].freeze()
    assert tables.nbytes >= 2 * tables["x"].data.nbytes, "what is kept for the marker counts too"
    list(tables["x"].take_owed(1000))
    assert tables.nbytes < held + 200_000


PAGES = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(PAGES, min_size=1, max_size=3)),
        st.tuples(st.just("kernel"), st.lists(PAGES, min_size=1, max_size=3)),
        st.tuples(st.just("take"), st.integers(1, 3)),
        st.tuples(st.just("mark"), st.none()),
        st.tuples(st.just("grow"), st.integers(1, 9)),
    ),
    max_size=40,
)


@given(STEPS)
def test_pages_are_always_as_of_the_last_marker(steps: list[tuple[str, Any]]) -> None:
    """Against plain dicts: what each page held at the marker, and which ones had changed since the one before."""
    table = small_table(6)
    now, frozen, dirty = dict.fromkeys(range(6), 0.0), dict.fromkeys(range(6), 0.0), set[int]()
    owed = set[int]()
    for number, (action, argument) in enumerate(steps, 1):
        if action in ("write", "kernel"):
            for page in set(argument):
                now[page] += number
            rows = np.array(sorted(set(argument))) * 16
            if action == "kernel":
                add_to_rows(table.view, rows, float(number))
            else:
                table.touch_rows(rows)
                table.data[rows] += number
            dirty |= set(argument)
        elif action == "grow":
            table.reserve(16 * (6 + argument))
        else:
            for page, value in taken(table, argument or 1000).items():
                assert value == frozen[page]
                owed.remove(page)
            if action == "mark":
                assert not owed
                assert table.freeze() == len(dirty)
                frozen, owed, dirty = dict(now), set(dirty), set()
    assert table.owed == len(owed)
    assert taken(table) == {page: frozen[page] for page in owed}
