"""Tables in files within a budget of memory: they hold what they would hold in memory."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from freshet.state.image import load_images, write_image
from freshet.state.memory import pager as paging
from freshet.state.memory.pager import MemoryBudget, Pager, shared_pager
from freshet.state.sweep import Sweeper
from freshet.state.table import Table, TableSet
from tests.support.flink.high_availability import await_true

MIB = 1 << 20
WIDTH = 64


@pytest.fixture
def tmp_path(disk_path: Path) -> Path:
    """A folder whose files are not in memory."""
    return disk_path


@pytest.fixture
def pager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pager]:
    """A budget of 2 MiB of tables, which go to files at once."""
    monkeypatch.setattr(paging, "IN_MEMORY_SHARE", 0.0)
    made = Pager(tmp_path / "pages", MemoryBudget(2 * MIB, of_process=False))
    yield made
    assert not list((tmp_path / "pages").iterdir())  # files have no names, so that no kill leaves any


def paged(pager: Pager, parts: int = 1) -> TableSet:
    """Tables of a pager."""
    tables = TableSet(parts)
    tables.add("x", "f4", WIDTH)
    tables.add("v", "i8", fill=-1)
    tables.keep_within(pager)
    return tables


def give_up_all(pager: Pager) -> None:
    """Have the hand go round twice, which gives up all that nobody touches meanwhile."""
    for _ in range(2):
        for file in pager.files():
            for begin in range(0, file.nbytes, paging.CHUNK):
                file.give_up(begin)


def open_below(folder: Path) -> list[str]:
    """Files of a folder that this process has open, those without names included."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found.append(str(one.readlink()))
    return [path for path in found if path.startswith(str(folder))]


def test_rows_come_back_from_the_disk(pager: Pager) -> None:
    tables, rng = paged(pager), np.random.default_rng(0)
    expected = np.zeros((40_000, WIDTH), np.float32)
    tables["x"].reserve(40_000)
    for _ in range(5):
        rows = rng.choice(40_000, 5_000, replace=False)
        expected[rows] = rng.standard_normal((5_000, WIDTH), np.float32)
        tables["x"].touch_rows(rows)
        tables["x"].data[rows] = expected[rows]
        give_up_all(pager)
        assert pager.resident_bytes < MIB
        assert np.array_equal(tables["x"].data[:40_000], expected)
    assert pager.file_bytes >= expected.nbytes


def test_the_budget_is_kept(pager: Pager) -> None:
    tables = paged(pager)
    tables["x"].reserve(100_000)  # 25 MB
    for begin in range(0, 100_000, 5_000):
        tables["x"].data[begin : begin + 5_000] = begin
        time.sleep(0.03)  # longer than it takes a count for the truth
        pager.make_room()
        assert pager.resident_bytes <= 3 * MIB
    assert pager.given_up_bytes > 20 * MIB
    assert pager.is_tight
    assert (tables["x"].data[:100_000, 0] == np.repeat(np.arange(0, 100_000, 5_000), 5_000)).all()


def test_pages_in_use_get_a_second_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "IN_MEMORY_SHARE", 0.0)
    tables = paged(Pager(tmp_path, MemoryBudget(1 << 40, of_process=False)))
    tables["x"].reserve(40_000)
    tables["x"].data[:] = 1.0
    (file,) = tables.paged
    file.give_up(0)
    assert file.resident_bytes >= 4 * MIB  # all its pages are mapped: they lose no more than that
    file.give_up(0)
    assert file.resident_bytes <= file.nbytes - 4 * MIB


@pytest.mark.parametrize("parts", [1, 3])
def test_tables_grow_move_and_pass_markers_as_in_memory(pager: Pager, parts: int) -> None:
    """Against tables in memory: rows, pages of markers taken slowly, and what is restored of them."""
    of_file, of_memory, rng = paged(pager, parts), TableSet(parts), np.random.default_rng(parts)
    of_memory.add("x", "f4", WIDTH)
    of_memory.add("v", "i8", fill=-1)
    sweepers = [Sweeper(tables) for tables in (of_file, of_memory)]
    stored: list[dict[int, dict[str, bytes]]] = [{p: {} for p in range(parts)} for _ in sweepers]
    for epoch in range(1, 13):
        rows, values = rng.integers(0, 1500 * epoch, 300), rng.standard_normal((300, WIDTH), np.float32)
        part = int(rng.integers(parts))
        for k, (tables, sweeper) in enumerate(zip((of_file, of_memory), sweepers, strict=True)):
            for name, value in (("x", values), ("v", values[:, 0].astype(np.int64))):
                tables[name].reserve(1500 * epoch)
                at = rows + part * tables[name].stride
                tables[name].touch_rows(at)
                tables[name].data[at] = value
            changes = sweeper.mark(epoch) if epoch % 4 == 0 else sweeper.step()
            for of, mutations in changes.items():
                stored[k][of].update(mutations.puts)
                for key in mutations.deletes:
                    stored[k][of].pop(key, None)
        give_up_all(pager)
    assert stored[0] == stored[1]
    again = paged(pager, parts)
    Sweeper(again).restore(*(stored[0][part] for part in range(parts)))
    alone = TableSet(parts)
    alone.add("x", "f4", WIDTH)
    alone.add("v", "i8", fill=-1)
    Sweeper(alone).restore(*(stored[1][part].items() for part in range(parts)))
    assert again.paged
    for name in ("x", "v"):
        assert np.array_equal(again[name].data, alone[name].data)


def test_an_image_is_loaded_to_files(pager: Pager, tmp_path: Path) -> None:
    made = TableSet()
    made.add("x", "f4", WIDTH)
    made.add("v", "i8", fill=-1)
    made["x"].reserve(20_000)
    made["x"].touch_all()
    made["x"].data[:20_000] = np.arange(20_000, dtype=np.float32)[:, None]
    write_image(made, tmp_path / "image", 7)
    tables = paged(pager)
    assert load_images(tables, {0: tmp_path / "image"}) == [7]
    assert len(tables.paged) == 1  # the other one is small
    give_up_all(pager)
    assert np.array_equal(tables["x"].data[:20_000], made["x"].data[:20_000])


def test_tables_move_to_files_when_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Pager(tmp_path, MemoryBudget(1 << 40, of_process=False))
    tables = paged(made)
    tables["x"].reserve(40_000)
    tables["x"].data[:] = np.arange(len(tables["x"].data), dtype=np.float32)[:, None]
    before = tables["x"].data.copy()
    tables.settle()
    assert not tables.paged
    monkeypatch.setattr(paging, "IN_MEMORY_SHARE", 0.0)
    made.wants_files = True
    tables.settle()
    assert len(tables.paged) == 1
    assert np.array_equal(tables["x"].data, before)


def test_rows_are_read_ahead(pager: Pager) -> None:
    tables = paged(pager)
    tables["x"].reserve(40_000)
    tables["x"].data[:] = 1.0
    await_true(lambda: pager.is_tight, 10.0, "pages are given up")
    give_up_all(pager)
    held = pager.resident_bytes
    tables["x"].read_ahead(np.arange(0, 40_000, 160))
    if os.uname().release >= "6.13":
        assert pager.resident_bytes > held
    assert (tables["x"].data[:40_000] == 1.0).all()


def test_a_process_has_one_pager_for_a_folder_and_gives_files_back(tmp_path: Path) -> None:
    budget = MemoryBudget(MIB, of_process=False)
    made = shared_pager(tmp_path, budget)
    assert shared_pager(tmp_path, budget) is made
    table = Table("x", "f4", WIDTH)
    table.memory.pager = made
    made.expect(1 << 40)
    table.reserve(40_000)
    assert open_below(tmp_path)
    del table
    gc.collect()
    assert not open_below(tmp_path)
    assert made.file_bytes == 0


def test_a_full_disk_is_named(pager: Pager, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*pages'"):
        paged(pager)["x"].reserve(40_000)
