"""Checksums of checkpoints are taken while the job runs, once each, and go with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from freshet.job.flink.state_files import CheckpointWatch, checksums_file, damage_of, has_checksums, record_savepoint
from freshet.state.checksums import files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of Flink's job, with two files that checkpoints share."""
    found = tmp_path / ("a" * 32)
    (found / "shared").mkdir(parents=True)
    for name in ("5b1c-1", "5b1c-2"):
        (found / "shared" / name).write_bytes(name.encode())
    return found


def complete(folder: Path, number: int, *shared: str) -> Path:
    state = folder / f"chk-{number}"
    state.mkdir()
    (state / "own-file").write_bytes(b"%d" % number)
    named = b"".join(b"\0\x10file:%b/shared/%b\0" % (bytes(folder), name.encode()) for name in shared)
    (state / "_metadata").write_bytes(named)
    return state


def test_checkpoints_get_checksums_of_all_their_files(folder: Path) -> None:
    under_way = folder / "chk-3"
    under_way.mkdir()
    states = [complete(folder, 1, "5b1c-1"), complete(folder, 2, "5b1c-1", "5b1c-2")]
    watch = CheckpointWatch(folder)
    watch.look()
    watch.close()
    assert watch.newest == states[1]
    assert [has_checksums(state) for state in (*states, under_way)] == [True, True, False]
    assert [damage_of(state) for state in states] == [None, None]
    (folder / "shared" / "5b1c-2").write_bytes(b"5b1c-3")
    assert damage_of(states[0]) is None, "it does not have that file"
    assert damage_of(states[1]) == f"{folder}/shared/5b1c-2 does not match its checksum"
    (states[0] / "own-file").unlink()
    assert damage_of(states[0]) == f"{states[0]}/own-file is missing"


def test_shared_files_are_read_once_and_checksums_go_with_their_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    crc32 = files.checksum_of

    def counted(path: Path) -> int:
        read.append(path.name)
        return crc32(path)

    monkeypatch.setattr(files, "checksum_of", counted)
    watch = CheckpointWatch(folder)
    first = complete(folder, 1, "5b1c-1")
    watch._record()
    second = complete(folder, 2, "5b1c-1", "5b1c-2")
    shutil.rmtree(first)
    watch._record()
    watch.close()
    assert sorted(name for name in read if name.startswith("5b1c")) == ["5b1c-1", "5b1c-2"]
    assert not checksums_file(first).exists()
    assert has_checksums(second)


def test_those_of_a_savepoint_move_with_it(tmp_path: Path) -> None:
    savepoint = tmp_path / "savepoint-1"
    savepoint.mkdir()
    record_savepoint(savepoint)
    assert not has_checksums(savepoint), "it is not complete"
    for name in ("_metadata", "a state"):
        (savepoint / name).write_bytes(name.encode())
    record_savepoint(savepoint)
    moved = savepoint.rename(tmp_path / "elsewhere")
    assert damage_of(moved) is None
    (moved / "a state").write_bytes(b"A state")
    assert damage_of(moved) == f"{moved}/a state does not match its checksum"
