from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from freshet.files.owner_only import close_to_others, write_for_owner_only


@pytest.fixture(autouse=True)
def any_mask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_from_then_on_is_the_owners(tmp_path: Path) -> None:
    write_for_owner_only()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").write_text("x")
    assert [mode(path) for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "file")] == [
        0o700,
        0o700,
        0o600,
    ]


def test_a_folder_of_before_is_closed_with_what_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "O"
    folder.mkdir(mode=0o777)
    (folder / "job.json").touch(0o644)
    close_to_others(folder)
    assert mode(folder) == 0o700
    close_to_others(tmp_path / "none")  # nothing is there
