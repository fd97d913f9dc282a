"""What parts tell of themselves, and when they have told it all."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from freshet.operators.telemetry import status_file
from freshet.operators.telemetry.status_file import LAST_STATUS, StatusFile, await_last, read_statuses


def write(out: Path, part: int, time_s: float, last: bool) -> None:
    StatusFile(out, f"sink-{part}").write({"time": time_s, LAST_STATUS: last}, 0.0)


def test_all_parts_that_have_written_since_are_waited_for(tmp_path: Path) -> None:
    assert await_last(tmp_path, 100_000.0, 0.0), "nobody has written"
    write(tmp_path, 0, 99.0, last=False)  # a former attempt was killed
    assert await_last(tmp_path, 100_000.0, 0.0)
    write(tmp_path, 1, 101.0, last=True)
    write(tmp_path, 2, 101.0, last=False)
    assert not await_last(tmp_path, 100_000.0, 0.05), "the third may write more"
    later = threading.Timer(0.1, write, (tmp_path, 2, 102.0, True))
    later.start()
    assert await_last(tmp_path, 100_000.0, 60.0)
    later.join()


def test_what_is_written_as_the_machine_stands_still_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 0, 101.0, last=False)
    now, read = [0.0], status_file.read_statuses

    def read_and_stand_still(*given: Any) -> Any:
        found = read(*given)
        now[0] += 60.0
        write(tmp_path, 0, 102.0, last=True)
        return found

    monkeypatch.setattr(status_file, "read_statuses", read_and_stand_still)
    monkeypatch.setattr(status_file, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    assert await_last(tmp_path, 100_000.0, 20.0)


def test_a_file_that_goes_and_comes_again_is_none_that_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An attempt that begins removes the files of the one before, and others write the same ones."""
    file, read = StatusFile(tmp_path, "sink-0"), status_file.read_json
    file.write({"epoch": 1}, 0.0)

    def read_between(path: Path, *more: Any) -> Any:
        path.unlink()
        found = read(path, *more)
        file.write({"epoch": 2}, 0.0)
        return found

    monkeypatch.setattr(status_file, "read_json", read_between)
    assert read_statuses(tmp_path) == []
    assert file.read() == {}
    monkeypatch.undo()
    assert not caplog.records
    assert file.read() == {"epoch": 2}


def test_two_that_find_a_damaged_file_set_it_aside_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file, replace = StatusFile(tmp_path, "sink-0"), status_file.os.replace
    file.path.write_bytes(b"{")

    def second(*names: Path) -> None:
        replace(*names)
        replace(*names)

    monkeypatch.setattr(status_file.os, "replace", second)
    assert file.read() == {}
    assert file.path.with_name("sink-0.json.damaged").exists()
    assert not caplog.records
