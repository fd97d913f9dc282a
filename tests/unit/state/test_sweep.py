import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freshet.state.sweep
from freshet.state.codec import UnknownFormatError
from freshet.state.image import write_image
from freshet.state.sweep import STATE_FORMAT, Mutations, Sweeper
from freshet.state.table import DIRTY, Table, TableSet
from tests.support.simulation.pages import page_bytes

PAGE = 16  # rows, with the smallest pages


def small_tables(pages: int = 4) -> TableSet:
    """Two tables with pages of 16 rows."""
    with page_bytes():
        tables = TableSet()
        for name in ("a", "b"):
            tables.add(name, "i8", fill=7).reserve(PAGE * pages)
    return tables


def put(tables: TableSet, name: str, page: int, value: int) -> None:
    tables[name].touch_rows(np.array([page * PAGE]))
    tables[name].data[page * PAGE] = value


def keep(entries: dict[str, bytes], changes: dict[int, Mutations], part: int = 0) -> None:
    """Apply what a sweeper gave out for one part."""
    one = changes.get(part, Mutations())
    for key, value in one.puts:
        entries[key] = value
    for key in one.deletes:
        entries.pop(key, None)


def pages_in(entries: dict[str, bytes]) -> set[str]:
    return {key for key in entries if "/" in key}


# -- what becomes of pages, step by step ------------------------------------------------------------------------------


def test_a_sweep_follows_its_marker() -> None:
    tables, entries = small_tables(), dict[str, bytes]()
    sweeper = Sweeper(tables, spread_epochs=2)
    for page in range(4):
        put(tables, "a", page, page)
    keep(entries, sweeper.step())
    assert not pages_in(entries), "nothing is written before the first marker"
    keep(entries, sweeper.mark(1))
    assert not pages_in(entries)
    assert orjson.loads(entries["meta@1"]) == {"epoch": 1, "rows": {"a": 64, "b": 64}}
    assert sweeper.owed == 4
    put(tables, "a", 3, 33)
    keep(entries, sweeper.step())
    assert pages_in(entries) == {"a/0@1", "a/1@1"}, "spread over two epochs"
    keep(entries, sweeper.step())
    assert pages_in(entries) == {f"a/{page}@1" for page in range(4)}
    assert np.frombuffer(entries["a/3@1"].ljust(128, b"\0"), "i8")[0] == 3, "as of the marker, though it changed since"


def test_the_next_marker_waits_for_what_is_owed() -> None:
    tables, entries = small_tables(), dict[str, bytes]()
    sweeper = Sweeper(tables, spread_epochs=100)
    for name in ("a", "b"):
        put(tables, name, 2, 5)
    keep(entries, sweeper.mark(1))
    keep(entries, sweeper.mark(2))
    assert pages_in(entries) == {"a/2@1", "b/2@1"}
    assert sweeper.owed == 0


def test_superseded_pages_go_two_markers_later() -> None:
    tables, entries = small_tables(), dict[str, bytes]()
    sweeper = Sweeper(tables)
    put(tables, "a", 0, 1)
    put(tables, "a", 1, 1)
    keep(entries, sweeper.mark(10))
    put(tables, "a", 0, 2)
    keep(entries, sweeper.mark(20))
    assert pages_in(entries) == {"a/0@1", "a/1@1"}
    keep(entries, sweeper.step())
    assert pages_in(entries) == {"a/0@1", "a/0@2", "a/1@1"}, "a restore would still take cut 1"
    keep(entries, sweeper.mark(30))
    assert pages_in(entries) == {"a/0@2", "a/1@1"}, "page 1 has no newer version"
    assert set(entries) - pages_in(entries) == {"format", "meta@2", "meta@3"}


def test_a_restore_takes_the_cut_before_the_last() -> None:
    tables, entries = small_tables(), dict[str, bytes]()
    sweeper = Sweeper(tables)
    for marker in range(1, 5):
        put(tables, "a", 0, marker)
        put(tables, "b", marker % 4, marker)
        tables["b"].reserve(PAGE * 4 + marker)
        keep(entries, sweeper.mark(10 * marker))
        keep(entries, sweeper.step())
        again = small_tables(0)
        restored = Sweeper(again)
        assert restored.restore(entries.items()) == 10 * (marker - 1)
        assert restored.marker == marker - 1
        if marker > 1:
            assert again["a"].data[0] == marker - 1
            assert again["b"].rows == PAGE * 4 + marker - 1
            assert {int(again["b"].data[PAGE * (k % 4)]) for k in range(1, marker)} == set(range(1, marker))
            assert (again["a"].data[1 : again["a"].rows] == 7).all()


def test_a_restored_table_has_the_rows_of_its_cut_however_many_its_last_page_holds() -> None:
    tables, entries = small_tables(), dict[str, bytes]()
    sweeper = Sweeper(tables)
    tables["a"].reserve(PAGE * 4 + 3)
    put(tables, "a", 4, 9)
    keep(entries, sweeper.mark(1))
    keep(entries, sweeper.mark(2))
    again = small_tables(0)
    assert Sweeper(again).restore(entries.items()) == 1
    assert again["a"].rows == PAGE * 4 + 3
    assert again["a"].data[PAGE * 4] == 9


def test_what_was_superseded_before_a_restore_goes_too() -> None:
    """However often a job is killed between markers, its state has what one without kills has."""
    tables, entries = small_tables(), dict[str, bytes]()
    sweeper, calm = Sweeper(tables), dict[str, bytes]()
    without_kills = Sweeper(other := small_tables())
    for marker in range(1, 9):
        for each, of in ((tables, sweeper), (other, without_kills)):
            put(each, "a", marker % 2, marker)
            put(each, "b", 0, marker)
            held = entries if of is sweeper else calm
            keep(held, of.mark(10 * marker))
            keep(held, of.step())
        again = small_tables()
        sweeper = Sweeper(again)
        sweeper.restore(entries.items())  # it stands at the marker before, whose epochs come again
        put(again, "a", marker % 2, marker)
        put(again, "b", 0, marker)
        keep(entries, sweeper.mark(10 * marker))
        keep(entries, sweeper.step())
        tables = again
    assert pages_in(entries) == pages_in(calm)
    assert len(pages_in(entries)) <= 5


def test_nothing_to_restore() -> None:
    sweeper = Sweeper(small_tables(), epoch=-1)
    assert sweeper.restore([]) == -1
    assert sweeper.marker == 0


# -- versions ---------------------------------------------------------------------------------------------------------


def saved_state() -> dict[str, bytes]:
    tables, entries = small_tables(), dict[str, bytes]()
    sweeper = Sweeper(tables)
    put(tables, "a", 0, 1)
    keep(entries, sweeper.mark(1))
    keep(entries, sweeper.mark(2))
    return entries


def test_an_unknown_state_format_is_refused_by_version() -> None:
    entries = saved_state() | {"format": str(STATE_FORMAT + 1).encode()}
    with pytest.raises(UnknownFormatError, match=rf"state format {STATE_FORMAT + 1} .* reads {STATE_FORMAT}"):
        Sweeper(small_tables()).restore(entries.items())


def test_state_without_a_format_is_refused() -> None:
    entries = saved_state()
    del entries["format"]
    with pytest.raises(UnknownFormatError, match="state format none"):
        Sweeper(small_tables()).restore(entries.items())


def test_the_format_stands_there_from_the_first_entry_on() -> None:
    sweeper = Sweeper(small_tables())
    assert ("format", str(STATE_FORMAT).encode()) in sweeper.step()[0].puts
    assert not sweeper.step()
    assert [key for key, _ in sweeper.mark(1)[0].puts] == ["meta@1"]


# -- random histories with kills, against one without (probes/sweep.py on the real Sweeper) ---------------------------

END, MARK_EVERY, KILLS = 60, 7, 4


def apply_epoch(tables: TableSet, epoch: int, pages: int = 0) -> None:
    """Rows change as a function of other rows, as deltas and deletions make them do; the tables grow."""
    rng = random.Random(epoch)
    for table in tables:
        table.reserve(PAGE * (pages or 4 + epoch // 9))
    rows = tables["a"].rows
    for _ in range(rng.randint(1, 5)):
        target, source = tables[rng.choice("ab")], tables[rng.choice("ab")]
        to, of = rng.randrange(rows), rng.randrange(rows)
        value = (int(target.data[to]) * 31 + int(source.data[of]) + epoch) % 1_000_003
        target.touch_rows(np.array([to]))
        target.data[to] = value


def contents(tables: TableSet) -> dict[str, list[int]]:
    return {table.name: table.data[: table.rows].tolist() for table in tables}


class Keyed:
    """What keyed state holds, the epoch reached, and the markers so far (which the Partitioner's journal knows)."""

    def __init__(self, entries: dict[str, bytes], epoch: int, markers: list[int]) -> None:
        self.entries, self.epoch, self.markers = entries, epoch, markers

    def copy(self) -> "Keyed":
        return Keyed(dict(self.entries), self.epoch, list(self.markers))


Make = Callable[[TableSet, int], Sweeper]


def attempt(
    state: Keyed, rng: random.Random, die_at: int, make: Make, save: Callable[[Keyed], None]
) -> TableSet | None:
    """One attempt from a restored checkpoint; the tables at the end, or None when it was killed."""
    reached = state.epoch
    tables = small_tables(0)
    sweeper = make(tables, rng.choice([1, 3, 100]))
    epoch = sweeper.restore(state.entries.items())
    assert epoch == state.markers[max(len(state.markers) - 2, 0)]
    while epoch < END:
        epoch += 1
        apply_epoch(tables, epoch)
        passed = sweeper.marker + 1
        known = passed < len(state.markers)
        if state.markers[passed] == epoch if known else epoch > reached and rng.random() < 1 / MARK_EVERY:
            if not known:
                state.markers.append(epoch)
            keep(state.entries, sweeper.mark(epoch))
        else:
            keep(state.entries, sweeper.step())
        assert_bounded(state)
        state.epoch = max(epoch, reached)
        if epoch > reached and rng.random() < 0.2:
            save(state.copy())
        if epoch == die_at and epoch > reached:
            return None
    return tables


def assert_bounded(state: Keyed) -> None:
    """Garbage goes: two versions of a page at most, and one more while a marker is swept."""
    versions = Counter(key.rpartition("@")[0] for key in pages_in(state.entries))
    assert max(versions.values(), default=0) <= 3
    assert len(state.entries) - len(pages_in(state.entries)) <= 4


def plain(tables: TableSet, spread: int) -> Sweeper:
    return Sweeper(tables, spread_epochs=spread)


def history(seed: int, make: Make = plain) -> dict[str, list[int]]:
    """The tables at the end of a history with kills."""
    rng, last = random.Random(seed), [Keyed({}, 0, [0])]
    for die_at in [rng.randrange(1, END) for _ in range(KILLS)] + [-1]:
        tables = attempt(last[0].copy(), rng, die_at, make, lambda state: last.__setitem__(0, state))
        if tables is not None:
            return contents(tables)
    raise AssertionError("the last attempt is never killed")


@pytest.fixture(scope="module")
def truth() -> dict[str, list[int]]:
    tables = small_tables(0)
    for epoch in range(1, END + 1):
        apply_epoch(tables, epoch)
    return contents(tables)


@settings(max_examples=240)
@given(seed=st.integers(0, 2**32))
def test_histories_with_kills_end_as_one_without(truth: dict[str, list[int]], seed: int) -> None:
    assert history(seed) == truth


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_histories_over_a_base_image(image: tuple[Path, dict[str, list[int]]], seed: int) -> None:
    folder, expected = image
    assert history(seed, lambda tables, spread: Sweeper(tables, folder, spread)) == expected


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[int]]]:
    """An image of what three other epochs made, and the tables after all epochs from there."""
    folder = tmp_path_factory.mktemp("image")
    tables = small_tables(0)
    for epoch in (1001, 1002, 1003):
        apply_epoch(tables, epoch, pages=2)
    write_image(tables, folder, epoch=0)
    for epoch in range(1, END + 1):
        apply_epoch(tables, epoch)
    return folder, contents(tables)


def wrong_of(truth: dict[str, list[int]], make: Make, seeds: Iterable[int] = range(40)) -> int:
    wrong = 0
    for seed in seeds:
        try:
            wrong += history(seed, make) != truth
        except (RuntimeError, AssertionError, KeyError, IndexError):
            wrong += 1
    return wrong


class UncopiedTable(Table):
    """A page that is owed to a marker is not copied before it changes."""

    def touch_rows(self, rows: np.ndarray) -> None:
        self.view.flags[rows >> self.shift] = DIRTY


def test_without_the_copy_before_a_change_histories_go_wrong(
    truth: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.state.table.Table", UncopiedTable)
    assert wrong_of(truth, plain) > 20


class ForgetfulPart(freshet.state.sweep._Part):
    """Leaves one page out of each sweep."""

    def write(self, limit: int) -> Mutations:
        out = super().write(limit)
        if self.owed == 0 and out.puts:
            out.puts.pop()
        return out


def test_a_sweep_that_leaves_a_page_out_is_noticed(
    truth: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.state.sweep._Part", ForgetfulPart)
    assert wrong_of(truth, plain) > 10


# -- tables of earlier versions ---------------------------------------------------------------------------------------


def test_a_state_with_a_table_that_was_replaced_is_read_without_it() -> None:
    tables, entries = small_tables(), dict[str, bytes]()
    sweeper = Sweeper(tables, spread_epochs=1)
    for epoch in range(1, 7):
        put(tables, "a", epoch % 4, epoch)
        put(tables, "b", epoch % 4, epoch)
        keep(entries, sweeper.mark(epoch) if epoch % 2 == 0 else sweeper.step())
    with page_bytes():
        later = TableSet()
        later.add("a", "i8", fill=7)
        later.add("c", "i8", fill=7)
        later.replaced["b"] = ("c",)
    sweeper = Sweeper(later, spread_epochs=1)
    assert sweeper.restore(entries.items()) == 4
    assert later["a"].data[[PAGE, 2 * PAGE, 3 * PAGE, 0]].tolist() == [1, 2, 3, 4]
    assert later["c"].rows == 0, "its owner makes it of the others"
    later["c"].reserve(PAGE)
    former = {key for key in entries if key.startswith("b/")}
    assert former
    for epoch in (5, 6):
        put(later, "c", 0, epoch)
        keep(entries, sweeper.mark(epoch) if epoch % 2 == 0 else sweeper.step())
    assert former <= entries.keys(), "the earlier version may still read its cut"
    for epoch in (7, 8):
        keep(entries, sweeper.mark(epoch) if epoch % 2 == 0 else sweeper.step())
    assert not former & entries.keys()
    with page_bytes():
        again = TableSet()
        again.add("a", "i8", fill=7)
        again.add("c", "i8", fill=7)
        again.replaced["b"] = ("c",)
    assert Sweeper(again).restore(entries.items()) == 6
    assert int(again["c"].data[0]) == 6
    with pytest.raises(UnknownFormatError, match=r"has tables \['a', 'c'\]"):
        Sweeper(small_tables()).restore(entries.items())
