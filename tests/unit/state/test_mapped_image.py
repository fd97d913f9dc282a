"""Images that are mapped: what is read, what becomes memory, and how tables grow behind the files."""

import re
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshet.state.image import load_images, write_image
from freshet.state.memory.private_map import PrivateMap
from freshet.state.table import Table, TableSet

ROWS, WIDTH = 4100, 1024  # 16 MiB
PARTS = 4
MAPPINGS = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (?:.*\n)(?:[A-Z].*\n)*?Anonymous:\s+(\d+) kB$", re.MULTILINE)


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have these images mapped, which are small."""
    monkeypatch.setattr("freshet.state.image._MAPPED_BYTES", 1)
    monkeypatch.setattr("freshet.state.image._MAPPED_JOB_BYTES", 1)


def saved(folder: Path, parts: int = 1, rows: int = ROWS) -> TableSet:
    """Tables of which each part has an image in a folder of its number."""
    tables = TableSet(parts)
    tables.add("x", "f4", WIDTH)
    tables.add("wide", "f4", 100, fill=-1)  # rows whose end is amid a page of memory
    for table in tables:
        table.reserve(rows)
        table.touch_all()
        for part in range(parts):
            values = table.part(part)[: rows - 5]
            values[:] = np.arange(len(values), dtype="f4")[:, None] + part * 10_000
    for part in range(parts):
        write_image(tables, folder / str(part), 0, part)
    return tables


def loaded(folder: Path, parts: int = 1) -> TableSet:
    again = TableSet(parts)
    again.add("x", "f4", WIDTH)
    again.add("wide", "f4", 100, fill=-1)
    assert load_images(again, {part: folder / str(part) for part in range(parts)}) == [0] * parts
    return again


def assert_same(one: Table, other: Table) -> None:
    """Equal in every part, and beyond what either has in use the fill."""
    for part in range(one.parts):
        rows = min(one.stride, other.stride)
        assert one.part(part)[:rows].tobytes() == other.part(part)[:rows].tobytes()
        assert (other.part(part)[rows:] == other.fill).all()


def anonymous_bytes(tables: TableSet) -> int:
    """How much of these tables is memory, and not pages of their files: of nothing else that the process has."""
    ranges = [(table.data.ctypes.data, table.data.ctypes.data + table.data.nbytes) for table in tables]
    found = 0
    for first, last, kilobytes in MAPPINGS.findall(Path("/proc/self/smaps").read_text()):
        if any(int(first, 16) < end and begin < int(last, 16) for begin, end in ranges):
            found += int(kilobytes) << 10
    return found


def digest(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*.bin"))}


@pytest.mark.parametrize("parts", [1, PARTS])
def test_a_mapped_table_is_what_was_saved_and_its_files_stay_as_they_are(tmp_path: Path, parts: int) -> None:
    tables, before = saved(tmp_path, parts), digest(tmp_path)
    again = loaded(tmp_path, parts)
    for table in again:
        assert table.part_rows.tolist() == [ROWS] * parts
        assert_same(tables[table.name], table)
        table.touch_all()
        for part in range(parts):
            table.part(part)[:ROWS] = 7
        assert table.freeze() == tables[table.name].freeze() > 0
    assert digest(tmp_path) == before


def test_images_of_other_operators_may_go_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 2, 64)
    gone, look = tmp_path / "1" / "x.bin", Path.stat

    def look_as_it_goes(path: Path, **options: Any) -> Any:
        if path == gone:
            path.unlink(missing_ok=True)
        return look(path, **options)

    monkeypatch.setattr(Path, "stat", look_as_it_goes)
    loaded(tmp_path)
    assert not gone.exists()


def test_only_pages_that_change_are_memory(tmp_path: Path) -> None:
    saved(tmp_path)
    again = loaded(tmp_path)
    assert again["x"].data[: ROWS - 5].sum() > 0  # all of it was read
    assert anonymous_bytes(again) < 1 << 20, "16 MiB of them are mapped"
    again["x"].data[::2] = 1
    assert anonymous_bytes(again) >= 8 << 20


def test_a_table_grows_where_it_is(tmp_path: Path) -> None:
    """Nothing is copied, and what somebody still holds stays true."""
    tables = saved(tmp_path)
    again = loaded(tmp_path)
    for table in again:
        held, place = table.data, table.data.ctypes.data
        table.data[3] = 42
        tables[table.name].data[3] = 42
        table.reserve(10 * ROWS)
        assert table.data.ctypes.data == place
        assert held[3, 0] == 42
        assert_same(tables[table.name], table)
        table.data[-1] = 5
        assert (table.data[-1] == 5).all()
    fill = again["wide"].data.nbytes
    assert fill / 2 < anonymous_bytes(again) < fill + (1 << 20), "160 MiB of x are there, and none was touched"


@pytest.mark.parametrize(("parts", "times"), [(1, 20), (PARTS, 5)])
def test_a_table_that_outgrows_its_place_is_copied(tmp_path: Path, parts: int, times: int) -> None:
    rows = 512
    tables = saved(tmp_path, parts, rows)
    again = loaded(tmp_path, parts)
    for table in again:
        held = table.data
        table.reserve(times * rows)
        assert table.data.ctypes.data != held.ctypes.data
        assert_same(tables[table.name], table)
        assert held[1, 0] == 1


def test_parts_have_room_to_grow_before_anything_moves(tmp_path: Path) -> None:
    saved(tmp_path, PARTS)
    again = loaded(tmp_path, PARTS)
    place = again["x"].data.ctypes.data
    again["x"].reserve(2 * ROWS)
    assert again["x"].data.ctypes.data == place


def test_without_address_space_a_table_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under `ulimit -v`."""
    tables = saved(tmp_path)

    def refused(self: PrivateMap, room: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(PrivateMap, "__init__", refused)
    again = loaded(tmp_path)
    for table in again:
        assert_same(tables[table.name], table)


def test_what_was_finished_in_place_has_the_checksums_of_what_was_written(tmp_path: Path) -> None:
    """Tables that are kept in the image's own files, and tables in memory."""
    expected = saved(tmp_path / "memory")
    kept = TableSet()
    for table in expected:
        kept.add(table.name, table.dtype.str, table.width, fill=table.fill)
    kept.keep_in(tmp_path / "files")
    for table in kept:
        table.reserve(ROWS)
        table.touch_all()
        table.data[: ROWS - 5] = expected[table.name].data[: ROWS - 5]
    write_image(kept, tmp_path / "files", 0)
    assert (tmp_path / "files" / "x.bin").stat().st_size > 8 << 20
    assert (tmp_path / "files" / "image.json").read_bytes() == (tmp_path / "memory" / "0" / "image.json").read_bytes()


def test_a_map_goes_with_the_last_array() -> None:
    """Else each restart within a process would keep the one before."""

    def mapped_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    before = mapped_bytes()
    memory = PrivateMap(1 << 34)
    array = memory.array((1000,), np.dtype("f4"))
    del memory
    array[:] = 1
    assert mapped_bytes() - before > 1 << 33, "other memory of the process may come and go"
    del array
    assert mapped_bytes() - before < 1 << 33


def test_a_small_image_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first event on a small job then has its tables in huge pages, and waits for no first touch."""
    saved(tmp_path)
    monkeypatch.setattr("freshet.state.image._MAPPED_BYTES", 512 << 20)
    assert all(table.memory.mapped is None for table in loaded(tmp_path))
    monkeypatch.setattr("freshet.state.image._MAPPED_BYTES", 1)
    assert loaded(tmp_path)["x"].memory.mapped is not None
