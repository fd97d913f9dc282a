"""What a killed process has left of files goes with the next one that works on the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshet.files import whole
from freshet.files.whole import remove_all_left_behind, remove_left_behind, write_whole
from freshet.job.embed import folder
from freshet.job.serving.tables.place import only_server


def left_by_a_kill(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a file as a process that is killed right before the file gets its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = set(path.parent.iterdir())

    def killed(source: Path, target: Path) -> None:
        source.rename(source.with_suffix(".hidden"))  # where the handler of the error does not find it
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(whole.os, "replace", killed)
        write_whole(path, b"half")
    (left,) = set(path.parent.iterdir()) - before
    return left.rename(left.with_suffix(whole.LEFT_BEHIND))


def test_it_goes_and_nothing_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("image.json", "base/Q-0/image.json", "tables/table.json", "base/tables/table.json")
    left = [left_by_a_kill(tmp_path / name, monkeypatch) for name in names]
    others = [tmp_path / name for name in (".lock", "mine.tmp", ".tmp", "base/.hidden", "base/Q-0/table.bin")]
    for path in others:
        path.touch()
    remove_left_behind(tmp_path, "run.json.*")
    assert all(path.exists() for path in left)
    remove_all_left_behind(tmp_path, but=("tables",))
    assert [path.exists() for path in left] == [False, False, True, False]
    remove_left_behind(tmp_path / "tables", "table.json.*")
    assert not left[2].exists()
    assert all(path.exists() for path in others)


@pytest.mark.parametrize("taken", [folder.taken, only_server])
def test_whoever_takes_a_folder_removes_it(taken: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / folder.WORK).mkdir()
    left = left_by_a_kill(tmp_path / "snapshot.json", monkeypatch)
    with taken(tmp_path):
        assert not left.exists()
