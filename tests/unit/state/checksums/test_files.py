"""Checksums of files: what is damaged, cut, missing or added is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.files.json_file import DamagedFileError
from freshet.state.checksums.files import FileChecksums

NAMES = ("a/one", "a/two", "three")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files" / "a").mkdir(parents=True)
    for name in NAMES:
        (tmp_path / "files" / name).write_bytes(name.encode() * 1000)
    (tmp_path / "files" / "three").write_bytes(b"3" * (3 << 20))  # more than one step
    return tmp_path / "files"


def test_they_come_back(folder: Path, tmp_path: Path) -> None:
    found = FileChecksums.of(folder, NAMES, written_ns=7)
    found.write(tmp_path / "checksums.json")
    again = FileChecksums.read(tmp_path / "checksums.json")
    assert again == found
    assert again is not None
    assert again.extra == {"written_ns": 7}
    assert again.damage(folder) is None
    assert FileChecksums.read(tmp_path / "none") is None


def test_known_files_are_not_read(folder: Path) -> None:
    found = FileChecksums.of(folder, NAMES)
    (folder / "a/one").unlink()
    assert FileChecksums.of(folder, NAMES, found.files) == found


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a/one", b"a/two" * 1000, "does not match its checksum"),
        ("a/two", b"a/two" * 999, "has 4,995 bytes, expected 5,000"),
        ("three", b"3" * ((3 << 20) - 1) + b"2", "does not match its checksum"),
        ("three", None, "is missing"),
    ],
)
def test_a_file_that_is_not_what_it_was_is_named(folder: Path, name: str, data: bytes | None, said: str) -> None:
    found = FileChecksums.of(folder, NAMES)
    (folder / name).unlink()
    if data is not None:
        (folder / name).write_bytes(data)
    assert found.damage(folder) == f"{folder / name} {said}"


def test_a_file_more_is_named_where_all_belong_to_it(folder: Path) -> None:
    found = FileChecksums.of(folder, NAMES)
    (folder / "a" / "more").touch()
    (folder / "a" / ".hidden").touch()
    assert found.damage(folder) is None
    assert found.damage(folder, ["a"]) == f"{folder / 'a' / 'more'} is not one of its files"


def test_damaged_checksums_are_refused(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "checksums.json"
    FileChecksums.of(folder, NAMES).write(path)
    path.write_bytes(path.read_bytes().replace(b"5000", b"4000"))
    with pytest.raises(DamagedFileError, match=r"checksums\.json: damaged: .* does not match its checksum"):
        FileChecksums.read(path)
