import errno
import subprocess
import sys
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from freshet.state.rocks_backend import LostValueError, Pointer, ValueLog

VALUES = [b"", b"a", bytes(range(256)) * 1000, b"last"]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*")) if folder.exists() else []


def test_values_are_read_where_they_were_written(tmp_path: Path) -> None:
    log = ValueLog(tmp_path / "values", file_bytes=1000)
    pointers = [log.append(value) for value in VALUES]
    assert [log.read(pointer) for pointer in pointers] == VALUES  # while files are written
    log.close()
    again = ValueLog(tmp_path / "values", pointers)
    assert [again.read(Pointer.decode(pointer.encode())) for pointer in pointers] == VALUES


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    ValueLog(tmp_path / "values").close()
    assert not (tmp_path / "values").exists()


def test_a_file_without_values_is_removed(tmp_path: Path) -> None:
    log = ValueLog(tmp_path, file_bytes=10)
    first, second, third = log.append(b"x" * 6), log.append(b"y" * 6), log.append(b"z" * 6)
    assert files(tmp_path) == ["00000000.values", "00000001.values"]
    log.release(first)
    assert log.read(second) == b"y" * 6
    log.release(second)
    assert files(tmp_path) == ["00000001.values"]
    log.release(third)  # in the file that is written
    fourth = log.append(b"w" * 6)
    assert log.read(fourth) == b"w" * 6
    log.release(fourth)
    log.close()
    assert files(tmp_path) == []


def test_what_nobody_points_to_is_removed_when_opened(tmp_path: Path) -> None:
    log = ValueLog(tmp_path, file_bytes=1)
    pointers = [log.append(value) for value in (b"one", b"two", b"three")]
    log.close()
    again = ValueLog(tmp_path, pointers[1:2])
    assert files(tmp_path) == ["00000001.values"]
    new = again.append(b"four")
    assert (new.file, again.read(new), again.read(pointers[1])) == (3, b"four", b"two")


def test_damage_is_noticed(tmp_path: Path) -> None:
    log = ValueLog(tmp_path)
    pointer, other = log.append(b"value"), log.append(b"other")
    log.close()
    path = tmp_path / "00000000.values"
    path.write_bytes(b"vAlueoth")
    for lost in (pointer, other):
        with pytest.raises(LostValueError, match="is damaged"):
            log.read(lost)
    path.unlink()
    with pytest.raises(LostValueError, match="No such file"):
        log.read(pointer)
    with pytest.raises(LostValueError, match="no pointer"):
        Pointer.decode(b"value")


class Slow(FileIO):
    """Takes three bytes at a time, as a disk does that fills up, and `room` in all."""

    room = 10**9

    def write(self, data: Any) -> int:
        if not Slow.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = super().write(memoryview(data)[: min(3, Slow.room)])
        Slow.room -= count
        return count


def test_a_value_is_written_whole_however_little_a_write_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.state.rocks_backend.FileIO", Slow)
    values = [b"", b"a", bytes(range(200)), b"last"]
    log = ValueLog(tmp_path)
    pointers = [log.append(value) for value in values]
    assert [log.read(pointer) for pointer in pointers] == values


def test_a_full_disk_is_an_error_and_what_was_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.state.rocks_backend.FileIO", Slow)
    log = ValueLog(tmp_path)
    first = log.append(b"first")
    monkeypatch.setattr(Slow, "room", 7)
    with pytest.raises(OSError, match="No space left"):
        log.append(b"more than there is room for")
    monkeypatch.setattr(Slow, "room", 10**9)
    second = log.append(b"second")
    assert (log.read(first), log.read(second)) == (b"first", b"second")
    monkeypatch.setattr(Slow, "write", lambda file, data: 0)
    with pytest.raises(OSError, match="5 bytes could not be written"):
        log.append(b"third")


def test_a_kill_leaves_what_was_appended(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from freshet.state.rocks_backend import ValueLog\n"
        "pointer = ValueLog(Path(sys.argv[1])).append(b'kept' * 50_000)\n"
        "print(pointer.encode().hex(), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    pointer = Pointer.decode(bytes.fromhex(done.stdout))
    log = ValueLog(tmp_path, [pointer])
    assert log.read(pointer) == b"kept" * 50_000
    assert log.append(b"more").file == 1  # behind a file that may have been cut off
    assert log.read(pointer) == b"kept" * 50_000
