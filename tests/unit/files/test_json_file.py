"""Small JSON files: whole, synced, with a checksum, and refused by name where they are damaged."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from freshet.errors import InputError
from freshet.files.json_file import DamagedFileError, as_kind, read_json, write_json
from freshet.files.whole import sync_tree, write_whole
from tests.support.runs.torn import DAMAGES, damage

ADVICE = "put it back"


@dataclass(frozen=True)
class Kind:
    number: int
    share: float = 0.5
    names: tuple[str, ...] = ()
    inner: dict[int, str | None] | None = None


CONTENT = {"number": 7, "share": 1, "names": ["a", "ß"], "inner": {"3": None}}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file.json"
    assert read_json(path, Kind, ADVICE) is None
    write_json(path, CONTENT)
    assert read_json(path, Kind, ADVICE) == Kind(7, 1.0, ("a", "ß"), {3: None})
    assert [one.name for one in path.parent.iterdir()] == ["file.json"]
    path.write_text('{"number": 8}')  # of an earlier version
    assert read_json(path, Kind, ADVICE) == Kind(8)
    write_json(path, {"number": 9, "names": [], "crc32": 5, "values": {2: 0.1, 10: float("inf")}})
    assert read_json(path, dict[str, Any], ADVICE)["values"] == {"2": 0.1, "10": float("inf")}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_files_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file.json"
    write_json(path, CONTENT)
    damage(path, DAMAGES[kind])
    if not path.exists():
        assert read_json(path, Kind, ADVICE) is None
        return
    with pytest.raises(DamagedFileError) as refused:
        read_json(path, Kind, ADVICE)
    assert str(refused.value).startswith(f"{path}: damaged: ")
    assert str(refused.value).endswith(ADVICE)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_any_bit_that_flips_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json(path, CONTENT)
    sound, refused = path.read_bytes(), 0
    for at in range(8 * len(sound)):
        path.write_bytes(sound[: at // 8] + bytes([sound[at // 8] ^ 1 << at % 8]) + sound[at // 8 + 1 :])
        try:
            assert read_json(path, Kind, ADVICE) == Kind(7, 1.0, ("a", "ß"), {3: None})
        except DamagedFileError:
            refused += 1
    assert refused > 4 * len(sound)


@pytest.mark.parametrize("name", [*CONTENT, "crc32"])
@pytest.mark.parametrize("value", [[], {"a": []}, "text", True, None, -1.5])
def test_nonsense_without_a_checksum_is_refused_by_the_field(tmp_path: Path, name: str, value: object) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps({**CONTENT, name: value}))
    try:
        assert isinstance(read_json(path, Kind, ADVICE), Kind)
    except DamagedFileError as error:
        assert ("checksum" if name == "crc32" else name) in str(error)
    path.write_text(json.dumps({field: one for field, one in CONTENT.items() if field != "number"}))
    with pytest.raises(DamagedFileError, match="number: Field required"):
        read_json(path, Kind, ADVICE)


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match=f"{tmp_path}: can't be read: Is a directory; {ADVICE}"):
        read_json(tmp_path, Kind, ADVICE)
    assert as_kind([1], tuple[int, ...]) == (1,)


def test_file_and_folder_are_synced_before_and_after_the_rename(tmp_path: Path, monkeypatch: Any) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(number: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{number}"))
        done.append("folder" if name == tmp_path else "file" if name.parent == tmp_path else name.name)
        fsync(number)

    def renamed(source: object, target: object) -> None:
        done.append("rename")
        replace(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write_whole(tmp_path / "file", b"1")
    write_whole(tmp_path / "file", b"2", synced=False)
    assert done == ["file", "rename", "folder", "rename"]
    done.clear()
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "deep").touch()
    sync_tree(tmp_path)
    assert sorted(done) == ["deep", "file", "file", "folder"], "the folder inner is one in it"


def test_a_full_disk_leaves_the_former_file_and_nothing_beside_it(tmp_path: Path, monkeypatch: Any) -> None:
    write_whole(tmp_path / "file", b"former")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "file", b"new")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"former"]


def test_text_that_is_no_utf_8_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json(path, CONTENT)
    with pytest.raises(InputError, match=r"file.json: can't be written: .*M.udcff.* is no UTF-8") as refused:
        write_json(path, {"model": os.fsdecode(b"/models/M\xff")})
    assert not isinstance(refused.value, DamagedFileError)
    assert read_json(path, Kind, ADVICE) == Kind(7, 1.0, ("a", "ß"), {3: None})
