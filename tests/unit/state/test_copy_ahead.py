"""Mapped tables become memory in the background: the same values, whatever is written to them meanwhile."""

import gc
import os
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from freshet.operators.core import Core
from freshet.operators.stage import Stage
from freshet.state.copy_ahead import CopyAhead
from freshet.state.memory import private_map
from freshet.state.memory.private_map import HUGE_PAGE, PrivateMap
from freshet.state.sweep import Sweeper
from freshet.state.table import TableSet
from tests.unit.state.test_mapped_image import (
    PARTS,
    ROWS,
    all_are_large,
    anonymous_bytes,
    assert_same,
    digest,
    loaded,
    saved,
)

DEADLINE_S = 60
GIB = 1 << 30

__all__ = ["all_are_large"]  # a fixture that applies here as well


@pytest.fixture(autouse=True)
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have several pieces of tables that are small, and enough memory whatever else runs."""
    monkeypatch.setattr("freshet.state.copy_ahead._PIECE", HUGE_PAGE)
    memory(monkeypatch, available=20 * GIB)


def memory(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    monkeypatch.setattr("freshet.state.copy_ahead.total_memory", lambda: 24 * GIB)
    monkeypatch.setattr("freshet.state.copy_ahead.available_memory", lambda: available)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no threads: a test says when a piece is copied."""
    monkeypatch.setattr(CopyAhead, "_start", lambda _: None)


def sweeper_of(folder: Path, parts: int = 1) -> Sweeper:
    """Tables that are being copied."""
    tables = TableSet(parts)
    tables.add("x", "f4", 1024)
    tables.add("wide", "f4", 100, fill=-1)
    sweeper = Sweeper(tables, [folder / str(part) for part in range(parts)])
    sweeper.restore(*[()] * parts)
    return sweeper


def threads_of(sweeper: Sweeper) -> list[threading.Thread]:
    assert sweeper.copies is not None
    return sweeper.copies._threads


def settle(sweeper: Sweeper) -> None:
    """Step until there are no more copies."""
    deadline = time.monotonic() + DEADLINE_S
    while sweeper.copies is not None:
        assert time.monotonic() < deadline
        sweeper.step()


def held_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.bin"))


@pytest.mark.parametrize("parts", [1, PARTS])
def test_all_of_a_mapped_image_becomes_memory(tmp_path: Path, parts: int) -> None:
    tables, before = saved(tmp_path, parts), digest(tmp_path)
    sweeper = sweeper_of(tmp_path, parts)
    assert all(table.memory.mapped is not None for table in sweeper.tables)
    settle(sweeper)
    assert anonymous_bytes(sweeper.tables) >= held_bytes(tmp_path)
    for table in sweeper.tables:
        assert_same(tables[table.name], table)
        table.touch_all()
        for part in range(parts):
            table.part(part)[:ROWS] = 7
    assert digest(tmp_path) == before


@pytest.mark.parametrize("parts", [1, PARTS])
def test_what_is_written_between_two_steps_stays(tmp_path: Path, parts: int) -> None:
    """Before a piece is copied, while it waits, and after it has its place; and the sweep has the same pages."""
    expected = saved(tmp_path, parts)
    sweeper = sweeper_of(tmp_path, parts)
    for one in (expected, sweeper.tables):
        for table in one:
            table.freeze()
            for part in range(parts):
                list(table.take_owed(1 << 30, part))
    rng, deadline = np.random.default_rng(5), time.monotonic() + DEADLINE_S
    while sweeper.copies is not None:
        assert time.monotonic() < deadline
        rows, value = rng.integers(0, ROWS, 20), float(rng.integers(1000))
        for one in (expected, sweeper.tables):
            for table in one:
                for part in range(parts):
                    table.touch_rows(part * table.stride + rows)
                    table.part(part)[rows, 3] = value
        sweeper.step()
    for table in sweeper.tables:
        assert_same(expected[table.name], table)
        assert table.freeze() == expected[table.name].freeze() > 0


@pytest.mark.usefixtures("by_hand")
def test_a_page_that_changes_after_it_was_copied_is_not_lost(tmp_path: Path) -> None:
    tables = saved(tmp_path)
    again = loaded(tmp_path)
    copies = CopyAhead(again, "here")
    again["x"].data[5] = tables["x"].data[5] = 41  # before
    while copies.copy_next():
        pass
    last = ROWS - 6, ROWS - 1  # in the file's last page, and behind the file's end
    for row in (5, 600, *last):
        again["x"].data[row, 7] = tables["x"].data[row, 7] = row
        again["wide"].data[row, 7] = tables["wide"].data[row, 7] = row
    held = again["x"].data
    while copies.settle():
        pass
    for table in again:
        assert_same(tables[table.name], table)
    assert held.tobytes() == again["x"].data.tobytes(), "what somebody holds is the same memory"
    assert anonymous_bytes(again) >= held_bytes(tmp_path)


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize(("parts", "times"), [(1, 10), (1, 20), (PARTS, 2), (PARTS, 5)])
def test_a_table_grows_while_copies_of_it_wait(tmp_path: Path, parts: int, times: int) -> None:
    """In its place, and to another one, where no copy is of use any more."""
    tables = saved(tmp_path, parts)
    again = loaded(tmp_path, parts)
    copies = CopyAhead(again, "here")
    for _ in range(3):
        assert copies.copy_next()
    again["x"].reserve(times * ROWS)
    while copies.copy_next():
        pass
    while copies.settle():
        pass
    for table in again:
        assert_same(tables[table.name], table)
    again["x"].reserve(40 * ROWS)
    assert_same(tables["x"], again["x"])


@pytest.mark.usefixtures("by_hand")
def test_what_changes_most_comes_first(tmp_path: Path) -> None:
    saved(tmp_path)
    again = loaded(tmp_path)
    copies = CopyAhead(again, "here")
    copies.copy_next()
    assert [piece.table.name for piece, _ in copies._copied] == ["x"]
    again["wide"].touch_all()
    copies._sort()
    copies.copy_next()
    assert copies._copied[-1][0].table.name == "wide"


def test_without_memory_nothing_is_copied_and_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tables = saved(tmp_path)
    memory(monkeypatch, available=6 * GIB)  # a quarter
    sweeper = sweeper_of(tmp_path)
    settle(sweeper)
    assert anonymous_bytes(sweeper.tables) < 1 << 20
    assert_same(tables["x"], sweeper.tables["x"])
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert f"{tmp_path / '0'}: 0.0 GiB stay mapped from files" in said
    assert "of 24.0 GiB of memory 6.0 are free, and a quarter is to stay so" in said


@pytest.mark.usefixtures("by_hand")
def test_memory_that_runs_short_amid_it_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tables = saved(tmp_path)
    again = loaded(tmp_path)
    copies = CopyAhead(again, "here")
    assert copies.copy_next()
    memory(monkeypatch, available=GIB)
    assert not copies.copy_next()
    assert not copies.copy_next()
    assert not copies.settle()
    assert HUGE_PAGE <= anonymous_bytes(again) < 2 * HUGE_PAGE
    assert_same(tables["x"], again["x"])
    assert capfd.readouterr().err.count("stay mapped from files") == 1


def test_a_file_that_was_replaced_is_not_copied(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tables = saved(tmp_path)
    again = loaded(tmp_path)
    path = tmp_path / "0" / "x.bin"
    shutil.copy(path, tmp_path / "other")
    with (tmp_path / "other").open("r+b") as file:
        file.write(b"other values")
    os.replace(tmp_path / "other", path)
    copies = CopyAhead(again, "here")
    deadline = time.monotonic() + DEADLINE_S
    while copies.settle():
        assert time.monotonic() < deadline
    assert_same(tables["x"], again["x"])
    assert "x.bin is another file than the one that was mapped" in capfd.readouterr().err


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("call", ["pagemap", "mremap"])
def test_a_kernel_that_refuses_leaves_all_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], call: str
) -> None:
    tables = saved(tmp_path)
    again = loaded(tmp_path)
    copies = CopyAhead(again, "here")
    while copies.copy_next():
        pass
    again["x"].data[9] = tables["x"].data[9] = 43
    if call == "pagemap":

        def refused(self: PrivateMap, begin: int, end: int) -> np.ndarray:
            raise OSError(13, "Permission denied")

        monkeypatch.setattr(PrivateMap, "changed", refused)
    else:
        told = vars(private_map._library()) | {"mremap": lambda *_: private_map._FAILED}
        monkeypatch.setattr(private_map, "_library", lambda: SimpleNamespace(**told))
    while copies.settle():
        pass
    for table in again:
        assert_same(tables[table.name], table)
    assert ("Permission denied" in capfd.readouterr().err) == (call == "pagemap")


def test_a_stage_that_is_closed_has_no_threads_left(tmp_path: Path) -> None:
    saved(tmp_path)
    core = Core()
    core.tables = TableSet()
    core.tables.add("x", "f4", 1024)
    core.tables.add("wide", "f4", 100, fill=-1)
    stage = Stage("here", core, 1, [tmp_path / "0"])
    stage.restore(())
    threads = threads_of(stage.sweeper)  # type: ignore[arg-type]
    assert threads
    stage.close()
    assert not any(thread.is_alive() for thread in threads)
    core.tables["x"].data[:] = 1
    stage.close()


def test_threads_end_with_tables_that_nobody_has(tmp_path: Path) -> None:
    """As when a failed attempt is dropped before it began."""
    saved(tmp_path)
    sweeper = sweeper_of(tmp_path)
    threads = threads_of(sweeper)
    del sweeper
    gc.collect()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not any(thread.is_alive() for thread in threads)


def test_what_is_read_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small graph, and small parts, start as they did: without a thread."""
    saved(tmp_path)
    monkeypatch.setattr("freshet.state.image._MAPPED_JOB_BYTES", 3 * GIB)
    sweeper = sweeper_of(tmp_path)
    assert not threads_of(sweeper)
    sweeper.step()
    assert sweeper.copies is None
