"""A table of several parts is as many tables of one part, and nobody can tell from a state which of them wrote it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from freshet.errors import InputError
from freshet.state.image import load_images, write_image
from freshet.state.sweep import Mutations, Sweeper, UnevenPartsError
from freshet.state.table import CLEAN, DIRTY, PENDING, Table, TableSet, View, touch
from tests.support.simulation.pages import page_bytes

PARTS = 3
SHAPES = (("scalar", "i8", None, 0.0), ("wide", "f4", 3, 0.0), ("full", "i4", 2, -1.0), ("nan", "f8", None, np.nan))


@njit
def write(view: View, rows: np.ndarray, value: float) -> None:
    for row in rows:
        touch(view, row)
        view.data[row] = value


def make(parts: int, page: int = 512) -> TableSet:
    """Pages of 64 and 32 rows: parts have less than one, just one, or many of them."""
    with page_bytes(page):
        tables = TableSet(parts)
        for shape in SHAPES:
            tables.add(*shape)
    return tables


def bits(values: np.ndarray) -> bytes:
    return np.ascontiguousarray(values).tobytes()


# -- one table of three parts against three tables of one -------------------------------------------------------------

PART = st.integers(0, PARTS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.lists(st.integers(0, 300), min_size=PARTS, max_size=PARTS)),
        st.tuples(st.just("reserve all"), st.integers(0, 150)),
        st.tuples(st.just("write"), st.lists(st.tuples(PART, st.integers(0, 1000)), min_size=1, max_size=6)),
        st.tuples(st.just("take"), st.tuples(PART, st.integers(1, 3))),
        st.tuples(st.just("mark"), st.none()),
        st.tuples(st.just("touch all"), st.none()),
    ),
    max_size=40,
)


def act(shared: Table, alone: list[Table], number: int, action: str, argument: Any) -> None:
    if action == "reserve":
        shared.reserve(np.array(argument))
        for table, rows in zip(alone, argument, strict=True):
            table.reserve(rows)
    elif action == "reserve all":
        for table in (shared, *alone):
            table.reserve(argument)
    elif action == "touch all":
        for table in (shared, *alone):
            table.touch_all()
    elif action == "write":
        slots = {(part, at % alone[part].rows) for part, at in argument if alone[part].rows}
        write(shared.view, np.array([part * shared.stride + slot for part, slot in slots], np.int64), number)
        for part, slot in slots:
            write(alone[part].view, np.array([slot]), number)
    elif action == "take":
        part, limit = argument
        assert list(shared.take_owed(limit, part)) == list(alone[part].take_owed(limit))
    else:
        for part, table in enumerate(alone):
            assert list(shared.take_owed(1000, part)) == list(table.take_owed(1000))
        assert shared.freeze() == sum(table.freeze() for table in alone)


def assert_alike(shared: Table, alone: list[Table]) -> None:
    need = max(16, *(table.rows for table in alone))
    assert shared.stride == 1 << (need - 1).bit_length()
    assert len(shared.data) == PARTS * shared.stride
    assert 1 << shared.view.shift == min(shared.stride, shared.page_rows)
    assert shared.view.flags.size == PARTS * max(1, shared.stride // shared.page_rows)
    for part, table in enumerate(alone):
        assert shared.part_rows[part] == table.rows
        assert bits(shared.part(part)[: table.rows]) == bits(table.data[: table.rows])
        assert bits(shared.part(part)[table.rows :]) == bits(np.full_like(shared.part(part)[table.rows :], shared.fill))
        assert shared.owed_by(part) == table.owed
        assert shared.extent_of(part) == table.extent_of()


@settings(max_examples=180, deadline=None)
@given(STEPS, st.sampled_from(SHAPES))
def test_parts_are_as_they_would_be_alone(
    steps: list[tuple[str, Any]], shape: tuple[str, str, int | None, float]
) -> None:
    with page_bytes(512):
        shared, alone = Table(*shape, parts=PARTS), [Table(*shape) for _ in range(PARTS)]
    for number, (action, argument) in enumerate(steps, 1):
        act(shared, alone, number, action, argument)
        assert_alike(shared, alone)
    for part, table in enumerate(alone):
        assert list(shared.take_owed(1000, part)) == list(table.take_owed(1000))
    assert shared.owed == 0


@pytest.mark.parametrize(("rows", "shift", "pages"), [(0, 4, 1), (17, 5, 1), (64, 6, 1), (65, 6, 2), (500, 6, 8)])
def test_a_row_finds_its_page_whether_a_part_has_one_or_many(rows: int, shift: int, pages: int) -> None:
    with page_bytes(512):
        table = Table("t", "i8", parts=PARTS)
    assert table.page_rows == 64
    table.reserve(rows)
    assert (table.view.shift, table.view.flags.size) == (shift, PARTS * pages)
    last = np.arange(1, PARTS + 1) * table.stride - 1
    write(table.view, last, 5)
    assert np.flatnonzero(table.view.flags).tolist() == [part * pages + pages - 1 for part in range(PARTS)]
    assert [table.part(part)[-1] for part in range(PARTS)] == [5] * PARTS
    table.freeze()
    assert [[page for page, _ in table.take_owed(9, part)] for part in range(PARTS)] == [[pages - 1]] * PARTS


def test_short_pages_that_are_owed_grow_with_their_parts() -> None:
    with page_bytes(512):
        table = Table("t", "i8", fill=-1, parts=2)
    table.reserve(16)
    write(table.view, np.array([3, 16 + 4]), 7)
    table.freeze()
    write(table.view, np.array([5]), 8)
    assert table.view.flags.tolist() == [DIRTY, PENDING]
    table.reserve(np.array([200, 10]))
    assert table.view.flags.tolist() == [DIRTY, 0, 0, 0, PENDING, 0, 0, 0]
    write(table.view, np.array([table.stride + 20, 100]), 9)
    expected = [-1, -1, -1, 7], [-1, -1, -1, -1, 7]
    for part in range(2):
        assert [np.frombuffer(page, "i8").tolist() for _, page in table.take_owed(9, part)] == [expected[part]]
    assert table.view.flags.tolist() == [DIRTY, DIRTY, 0, 0, DIRTY, 0, 0, 0]
    assert CLEAN == 0


def test_the_stride_follows_the_need_and_not_the_way_to_it() -> None:
    slowly, at_once, wide = Table("a", "i4", parts=64), Table("b", "i4", parts=64), Table("c", "f4", 9, parts=64)
    for rows in range(0, 5000, 100):
        slowly.reserve(rows)
    for table in (slowly, at_once, wide):
        table.reserve(np.arange(64) * 80)
    assert slowly.stride == at_once.stride == wide.stride == 8192
    at_once.touch_all()
    assert at_once.freeze() == 63, "part 0 has no row"


def test_growth_maps_no_zeros() -> None:
    table = Table("t", "u1", 1 << 10, parts=64)
    table.reserve(1 << 9)  # half a MiB a part
    write(table.view, np.array([0, 63 * table.stride]), 1)
    table.reserve(1 << 14)
    assert table.data.nbytes == 1 << 30
    assert table.data[[0, 63 * table.stride], 0].tolist() == [1, 1]
    assert int(mapping_of(table.data)["Rss"].split()[0]) < 64 << 10, "KiB, of a gigabyte"


def test_huge_pages_are_for_large_shares() -> None:
    table = Table("t", "u1", 1 << 10, parts=64)
    for rows, flag in ((1 << 9, "nh"), (1 << 10, "hg")):  # half a MiB a part, one MiB
        table.reserve(rows)
        assert flag in mapping_of(table.data).get("VmFlags", flag).split()


def mapping_of(data: np.ndarray) -> dict[str, str]:
    """What the kernel says of the memory behind an array."""
    smaps = Path("/proc/self/smaps")
    if not smaps.exists():
        pytest.skip("/proc/self/smaps is Linux's")
    found, inside = dict[str, str](), False
    for line in smaps.read_text().splitlines():
        name, _, value = line.partition(":")
        if "-" in name.split()[0]:
            begin, end = (int(number, 16) for number in name.split()[0].split("-"))
            inside = begin <= data.ctypes.data < end
        elif inside:
            found[name] = value
    assert "Rss" in found
    return found


# -- states and images ------------------------------------------------------------------------------------------------


def keep(entries: list[dict[str, bytes]], changes: dict[int, Mutations]) -> None:
    for part, one in changes.items():
        assert one.puts or one.deletes
        entries[part].update(one.puts)
        for key in one.deletes:
            entries[part].pop(key, None)


class Subtasks:
    """Three parts, in tables of their own or in shared ones, and the entries that they made."""

    def __init__(self, shared: bool, folders: list[Path] | None = None) -> None:
        self.tables = [make(PARTS)] if shared else [make(1) for _ in range(PARTS)]
        images = [folders] if shared else folders or [None] * PARTS
        self.sweepers = [Sweeper(tables, image, 3) for tables, image in zip(self.tables, images, strict=True)]
        self.entries: list[dict[str, bytes]] = [{} for _ in range(PARTS)]

    def of(self, name: str, part: int) -> tuple[Table, int]:
        shared = len(self.tables) == 1
        return self.tables[0 if shared else part][name], part if shared else 0

    def restore(self, entries: list[dict[str, bytes]]) -> int:
        self.entries = [dict(one) for one in entries]
        items = [one.items() for one in entries]
        if len(self.tables) == 1:
            return self.sweepers[0].restore(*items)
        (epoch,) = {sweeper.restore(one) for sweeper, one in zip(self.sweepers, items, strict=True)}
        return epoch

    def run(self, epoch: int) -> None:
        """Rows grow and change by what they held before; every fourth epoch is a marker."""
        rng = np.random.default_rng(epoch)
        for name, *_ in SHAPES:
            for part in range(PARTS):
                rows = int(rng.integers(1, 20 + 12 * epoch * part))
                table, index = self.of(name, part)
                need = np.zeros(table.parts, np.int64)
                need[index] = rows
                table.reserve(need)
                for slot in rng.integers(0, rows, 3).tolist():
                    row = index * table.stride + slot
                    value = np.nan_to_num(table.data[row].max()) * 3 % 1009 + epoch
                    write(table.view, np.array([row]), value)
        for at, sweeper in enumerate(self.sweepers):
            changes = sweeper.mark(epoch) if epoch % 4 == 0 else sweeper.step()
            keep(self.entries, changes if len(self.tables) == 1 else {at: changes[0]} if changes else {})

    def contents(self) -> list[tuple[int, bytes]]:
        found = []
        for name, *_ in SHAPES:
            for part in range(PARTS):
                table, index = self.of(name, part)
                rows = int(table.part_rows[index])
                found.append((rows, bits(table.part(index)[:rows])))
        return found

    def write_images(self, folder: Path) -> list[Path]:
        folders = [folder / f"part{part}" for part in range(PARTS)]
        for part, one in enumerate(folders):
            if len(self.tables) == 1:
                write_image(self.tables[0], one, 0, part)
            else:
                write_image(self.tables[part], one, 0)
        return folders


@pytest.mark.parametrize("wrote_shared", [True, False])
@pytest.mark.parametrize("killed", [3, 5, 8, 9, 11, 13, 16])
def test_whoever_wrote_a_state_anybody_restores_it(wrote_shared: bool, killed: int) -> None:
    """Before the first marker, at one, and in the midst of a sweep; what follows has the same bytes too."""
    writer, other = Subtasks(wrote_shared), Subtasks(not wrote_shared)
    for epoch in range(1, killed + 1):
        writer.run(epoch)
        other.run(epoch)
        assert writer.entries == other.entries
    assert sum(map(len, writer.entries)) >= PARTS
    readers = [Subtasks(shared) for shared in (True, False)]
    for reader in readers:
        reached = reader.restore(writer.entries)
        assert reached == max(0, killed // 4 * 4 - 4)
        for epoch in range(reached + 1, 22):
            reader.run(epoch)
    for epoch in range(killed + 1, 22):
        writer.run(epoch)
    assert [reader.contents() for reader in readers] == [writer.contents()] * 2
    assert [reader.entries for reader in readers] == [writer.entries] * 2


@pytest.mark.parametrize("shared", [True, False])
def test_images_have_the_same_bytes_and_fit_everywhere(shared: bool, tmp_path: Path) -> None:
    one, other = Subtasks(shared), Subtasks(not shared)
    for epoch in (1, 2, 3):
        one.run(epoch)
        other.run(epoch)
    folders = one.write_images(tmp_path / "one")
    for mine, theirs in zip(folders, other.write_images(tmp_path / "other"), strict=True):
        assert {f.name: f.read_bytes() for f in mine.iterdir()} == {f.name: f.read_bytes() for f in theirs.iterdir()}
    runs = [Subtasks(again, folders) for again in (True, False)]
    for run in runs:
        assert run.restore([{}] * PARTS) == 0
        assert run.contents() == one.contents()
        for epoch in range(4, 14):
            run.run(epoch)
    assert runs[0].contents() == runs[1].contents()
    assert runs[0].entries == runs[1].entries
    again = Subtasks(shared, folders)
    again.restore(runs[0].entries)
    for epoch in range(9, 14):
        again.run(epoch)
    assert again.contents() == runs[0].contents()


def test_a_restored_part_has_no_more_room_than_it_needs(tmp_path: Path) -> None:
    """Else 64 small parts would take 64 pages of every table."""
    tables = make(64, 1 << 16)
    for table in tables:
        table.reserve(20)
        table.touch_all()
    for part in range(64):
        write_image(tables, tmp_path / str(part), 0, part)
    again = make(64, 1 << 16)
    assert load_images(again, {part: tmp_path / str(part) for part in range(64)}) == [0] * 64
    sweeper, entries = Sweeper(tables), [dict[str, bytes]() for _ in range(64)]
    for epoch in (1, 2):
        keep(entries, sweeper.mark(epoch))
    restored = make(64, 1 << 16)
    Sweeper(restored).restore(*(one.items() for one in entries))
    for table in (*again, *restored):
        assert table.stride == 32
        assert table.part_rows.tolist() == [20] * 64


# -- many parts -------------------------------------------------------------------------------------------------------


def test_each_of_64_parts_sweeps_at_its_own_pace() -> None:
    tables = make(64)
    sweeper, taken = Sweeper(tables, spread_epochs=4), [dict[str, bytes]() for _ in range(64)]
    assert sorted(sweeper.step()) == list(range(64)), "every part's state begins with its format"
    assert sweeper.step() == {}
    table = tables["scalar"]
    table.reserve(64 * 20)
    for part in (3, 60):
        rows = np.arange(16 if part == 3 else 2) * 64
        write(table.view, part * table.stride + rows, 1)
    keep(taken, sweeper.mark(1))
    assert all(list(one) == ["meta@1"] for one in taken)
    steps = [{part: len(one.puts) for part, one in sweeper.step().items()} for _ in range(5)]
    assert steps == [{3: 4, 60: 1}, {3: 4, 60: 1}, {3: 4}, {3: 4}, {}]
    assert sweeper.owed == 0


def saved(markers: list[int]) -> dict[str, bytes]:
    sweeper, entries = Sweeper(make(1)), [dict[str, bytes]()]
    keep(entries, sweeper.step())
    for epoch in markers:
        keep(entries, sweeper.mark(epoch))
    return entries[0]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ([1, 2], [1, 3], "number 1 of a subtask has a state with marker 2 at epoch 3, after one at epoch 1, number 0"),
        ([1, 2], [1], "number 1 of a subtask has a state with marker 1 at epoch 1, number 0 has .* epoch 2"),
        ([5], [6], "number 1 of a subtask has a state with marker 1 at epoch 6"),
        ([1], [], "number 1 of a subtask has a state before its first marker"),
        ([1], None, "number 1 of a subtask has no state"),
        ([], None, "number 1 of a subtask has no state, number 0 has a state before its first marker"),
    ],
)
def test_states_of_different_epochs_are_refused(first: list[int], second: list[int] | None, found: str) -> None:
    states = [saved(first), {} if second is None else saved(second)]
    with pytest.raises(UnevenPartsError, match=found) as refusal:
        Sweeper(make(2)).restore(*(one.items() for one in states))
    assert isinstance(refusal.value, InputError)


def test_images_of_different_epochs_are_refused(tmp_path: Path) -> None:
    for epoch in (0, 1):
        write_image(make(1), tmp_path / str(epoch), epoch)
    with pytest.raises(UnevenPartsError, match="number 1 of a subtask has a base image of epoch 1, number 0"):
        Sweeper(make(2), [tmp_path / "0", tmp_path / "1"]).preload()
