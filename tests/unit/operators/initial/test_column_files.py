"""Folders of columns: what a kill leaves of one is either whole or not taken for one."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from freshet.operators.embed.files import EmbedError
from freshet.operators.initial.column_files import (
    ColumnWriter,
    are_whole,
    check_columns,
    read_columns,
    read_meta,
    remove_columns,
)


def write(folder: Path) -> None:
    with ColumnWriter(folder) as out:
        out.add("a", np.arange(5))
        out.add("b", np.ones((5, 3), "f4"))
        out.close({"rows": 5})


def test_columns_come_back(tmp_path: Path) -> None:
    write(tmp_path / "c")
    found = read_columns(tmp_path / "c")
    assert found["a"].tolist() == [0, 1, 2, 3, 4]
    assert found["b"].shape == (5, 3)
    assert read_meta(tmp_path / "c")["rows"] == 5
    check_columns(tmp_path / "c")


def test_a_folder_that_is_written_again_is_not_whole_until_the_end(tmp_path: Path) -> None:
    write(tmp_path / "c")
    assert are_whole(tmp_path / "c")
    with ColumnWriter(tmp_path / "c") as out:
        assert not are_whole(tmp_path / "c")
        out.add("a", np.arange(2))
    assert not are_whole(tmp_path / "c")


def test_a_folder_that_is_half_removed_is_not_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "c")

    def killed(folder: Path, **_: object) -> None:
        (folder / "a.bin").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", killed)
        remove_columns(tmp_path / "c")
    assert not are_whole(tmp_path / "c")
    remove_columns(tmp_path / "c")
    remove_columns(tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_damaged_description_is_told_by_name(tmp_path: Path) -> None:
    write(tmp_path / "c")
    (tmp_path / "c" / "columns.json").write_bytes(b"{")
    with pytest.raises(EmbedError, match=r"columns.json: damaged: .* remove the folder above it"):
        read_meta(tmp_path / "c")
