import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.state.codec import UnknownFormatError
from freshet.state.image import IMAGE_FORMAT, image_id, load_images, write_image
from freshet.state.sweep import Sweeper
from freshet.state.table import TableSet
from tests.support.simulation.pages import page_bytes


@pytest.fixture(autouse=True, params=[1, 1 << 20], ids=["mapped", "read"])
def mapped_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """From how many bytes on tables are mapped: all of them, and none of these small ones."""
    monkeypatch.setattr("freshet.state.image._MAPPED_BYTES", 1)
    monkeypatch.setattr("freshet.state.image._MAPPED_JOB_BYTES", 1)
    monkeypatch.setattr("freshet.state.image._MAPPED_TABLE_BYTES", request.param)
    return int(request.param)


def make() -> TableSet:
    with page_bytes():
        tables = TableSet()
        tables.add("x", "f4", 3)
        tables.add("key", "i8")
        tables.add("home", "i4", 2, fill=-1)
        tables.add("loop", "f4", fill=float("nan"))
    return tables


def filled(rows: int = 40) -> TableSet:
    tables = make()
    for table in tables:
        table.reserve(rows)
    written = np.arange(rows - 5)
    for name, values in (("x", np.arange(3.0)), ("key", written * 7), ("loop", 1.5)):
        tables[name].touch_rows(written)
        tables[name].data[written] = values
    return tables


def assert_same(one: TableSet, other: TableSet) -> None:
    for table in one:
        twin = other[table.name]
        assert twin.rows == table.rows
        assert twin.data[: twin.rows].tobytes() == table.data[: table.rows].tobytes()


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    tables, again = filled(), make()
    write_image(tables, tmp_path / "storage1-0", epoch=0)
    assert load_images(again, {0: tmp_path / "storage1-0"}) == [0]
    assert_same(tables, again)
    assert (again["home"].data == -1).all(), "never touched, so not in the file"
    assert not (tmp_path / "storage1-0" / "home.bin").stat().st_size
    assert sum(table.freeze() for table in again) == 0, "the pages of an image are clean"


def test_an_empty_operator_has_an_image_too(tmp_path: Path) -> None:
    again = make()
    write_image(make(), tmp_path, epoch=0)
    assert load_images(again, {0: tmp_path}) == [0]
    assert all(table.rows == 0 for table in again)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    write_image(filled(), tmp_path, epoch=0)
    path = tmp_path / "x.bin"
    data = bytearray(path.read_bytes())
    data[17] ^= 4
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match=r"table x does not match its checksums: .*x\.bin, page 0, bytes 0 to"):
        load_images(make(), {0: tmp_path})


def damage(path: Path, places: list[int]) -> None:
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("places", "named"),
    [
        ([0], "page 0, bytes 0 to 1,048,576;"),
        ([(3 << 20) - 1], "page 2, bytes 2,097,152 to 3,145,728;"),
        ([-1], "page 3, bytes 3,145,728 to 3,"),
        ([1 << 20, 2 << 20], "page 1, bytes 1,048,576 to 2,097,152; 2 of its 4 pages are damaged;"),
    ],
)
def test_the_damaged_page_is_named(tmp_path: Path, places: list[int], named: str) -> None:
    write_image(filled(300_000), tmp_path, epoch=0)
    path = tmp_path / "x.bin"
    assert 3 << 20 < path.stat().st_size < 4 << 20
    load_images(make(), {0: tmp_path})
    damage(path, places)
    with pytest.raises(DamagedFileError, match="table x") as caught:
        load_images(make(), {0: tmp_path})
    assert f"{path}, {named}" in str(caught.value)


def as_format_2(folder: Path) -> None:
    """Have an image as it was written before there were checksums of pages."""
    manifest = read_json(folder / "image.json", dict[str, Any], "")
    del manifest["page_bytes"]
    for name, entry in manifest["tables"].items():
        del entry["crc32s"]
        entry["crc32"] = zlib.crc32((folder / f"{name}.bin").read_bytes())
    (folder / "image.json").write_bytes(orjson.dumps(manifest | {"format": 2}))


def test_an_image_without_checksums_of_pages_is_read(tmp_path: Path) -> None:
    tables, again = filled(300_000), make()
    write_image(tables, tmp_path, epoch=7)
    as_format_2(tmp_path)
    assert load_images(again, {0: tmp_path}) == [7]
    assert_same(tables, again)
    damage(tmp_path / "x.bin", [2 << 20])
    with pytest.raises(DamagedFileError, match=r"x\.bin, page 0, bytes 0 to 3,"):
        load_images(make(), {0: tmp_path})


@pytest.mark.parametrize("keep", [0, 4, 21])
def test_a_file_cut_short_is_refused(tmp_path: Path, keep: int) -> None:
    write_image(filled(), tmp_path, epoch=0)
    path = tmp_path / "key.bin"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DamagedFileError, match=f"table key has {keep // 8} values"):
        load_images(make(), {0: tmp_path})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    write_image(filled(), tmp_path, epoch=0)
    (tmp_path / "key.bin").unlink()
    with pytest.raises(DamagedFileError, match="table key has 0 values"):
        load_images(make(), {0: tmp_path})
    (tmp_path / "image.json").unlink()
    with pytest.raises(DamagedFileError, match=r"there is no image\.json"):
        load_images(make(), {0: tmp_path})


def test_an_image_of_other_tables_is_refused(tmp_path: Path) -> None:
    tables = filled()
    tables.add("z", "f4", 3)
    write_image(tables, tmp_path, epoch=0)
    with pytest.raises(DamagedFileError, match=r"has tables .*'z'"):
        load_images(make(), {0: tmp_path})


def test_a_table_of_another_width_is_refused(tmp_path: Path) -> None:
    tables = TableSet()
    for table in make():
        tables.add(table.name, table.dtype.str, 6 if table.name == "x" else table.width).reserve(4)
        tables[table.name].touch_all()
    write_image(tables, tmp_path, epoch=0)
    with pytest.raises(DamagedFileError, match="table x"):
        load_images(make(), {0: tmp_path})


def test_an_unknown_version_is_refused(tmp_path: Path) -> None:
    write_image(filled(), tmp_path, epoch=0)
    manifest = read_json(tmp_path / "image.json", dict[str, Any], "")
    write_json(tmp_path / "image.json", manifest | {"format": IMAGE_FORMAT + 1})
    with pytest.raises(UnknownFormatError, match=rf"format {IMAGE_FORMAT + 1} .* reads 2 and {IMAGE_FORMAT}"):
        load_images(make(), {0: tmp_path})


@pytest.mark.parametrize("seed", range(30))
def test_no_flipped_bit_of_a_manifest_is_taken(tmp_path: Path, seed: int) -> None:
    tables, draw = filled(), random.Random(seed)
    write_image(tables, tmp_path, epoch=7)
    data = bytearray((tmp_path / "image.json").read_bytes())
    for at in draw.sample(range(8 * len(data)), 3):
        data[at // 8] ^= 1 << at % 8
    (tmp_path / "image.json").write_bytes(data)
    again = make()
    try:
        assert load_images(again, {0: tmp_path}) == [7]
    except DamagedFileError:
        return
    assert_same(tables, again)  # spaces, say


def test_writing_over_an_image_leaves_no_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill in the midst of it: the old manifest must not stand beside new files."""
    write_image(filled(), tmp_path, epoch=0)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("freshet.files.whole.os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_image(filled(80), tmp_path, epoch=0)
    with pytest.raises(DamagedFileError, match=r"no image\.json"):
        load_images(make(), {0: tmp_path})


# -- images below sweeps ----------------------------------------------------------------------------------------------


def changed_after(folder: Path) -> tuple[TableSet, dict[str, bytes]]:
    """An operator that started from the image and has passed two markers."""
    tables, entries = make(), dict[str, bytes]()
    sweeper = Sweeper(tables, folder)
    assert sweeper.restore([]) == 0
    for epoch in (1, 2):
        tables["key"].touch_rows(np.array([3]))
        tables["key"].data[3] = -epoch
        entries |= dict(sweeper.mark(epoch)[0].puts)
    return tables, entries


def test_pages_that_changed_lie_over_the_image(tmp_path: Path) -> None:
    write_image(filled(), tmp_path, epoch=0)
    _, entries = changed_after(tmp_path)
    assert [key for key in entries if "/" in key] == ["key/0@1"], "the image's own pages are in no checkpoint"
    again, expected = make(), filled()
    assert Sweeper(again, tmp_path).restore(entries.items()) == 1
    expected["key"].data[3] = -1
    assert_same(expected, again)


def test_state_is_not_restored_onto_another_image(tmp_path: Path) -> None:
    write_image(filled(), tmp_path / "one", epoch=0)
    write_image(filled(50), tmp_path / "other", epoch=0)
    assert image_id(tmp_path / "one") != image_id(tmp_path / "other")
    _, entries = changed_after(tmp_path / "one")
    with pytest.raises(DamagedFileError, match=r"other/image.json is of [0-9a-f]{32}; put it back from a copy"):
        Sweeper(make(), tmp_path / "other").restore(entries.items())
    with pytest.raises(DamagedFileError, match="but there is none"):
        Sweeper(make()).restore(entries.items())


def test_the_same_content_is_the_same_image(tmp_path: Path) -> None:
    write_image(filled(), tmp_path / "one", epoch=0)
    write_image(filled(), tmp_path / "again", epoch=0)
    assert image_id(tmp_path / "one") == image_id(tmp_path / "again")


def test_an_image_with_a_table_that_was_replaced_is_read_without_it(tmp_path: Path) -> None:
    tables, again = filled(), TableSet()
    write_image(tables, tmp_path / "storage1-0", epoch=0)
    for table in tables:
        if table.name != "x":
            again.add(table.name, table.dtype.str, table.width, table.fill)
    again.add("print", "u8", 4)
    with pytest.raises(DamagedFileError, match=r"has tables .*'x'.*, the operator has .*'print'"):
        load_images(again, {0: tmp_path / "storage1-0"})
    again.replaced["x"] = ("print",)
    assert load_images(again, {0: tmp_path / "storage1-0"}) == [0]
    assert again["print"].rows == 0
    assert again["key"].data[: again["key"].rows].tobytes() == tables["key"].data[: tables["key"].rows].tobytes()
