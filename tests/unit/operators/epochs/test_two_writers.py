"""Two attempts of a sink write one file: one that was thought dead, and the next one. What is visible stays right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log import ChangeLog
from freshet.operators.sink.direct_file import DirectFile
from freshet.operators.sink.epoch_rows import EpochRows, LogFile
from tests.support.stages.sunk import SOURCES, WIDTH, block, rows_in, sink_of


def epochs(count: int) -> list[EpochRows]:
    """The first epochs of a file, each of a row."""
    found = []
    for epoch in range(1, count + 1):
        one = block(epoch, [epoch])
        found.append(EpochRows(epoch, [one.columns["key"]], [one.columns["row"]], 1, 0))
    return found


def attempt(out: Path) -> ChangeLog:
    return ChangeLog(LogFolders(out), 0, WIDTH, "int", SOURCES)


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let something happen when the next file is written, but has not taken its name."""
    close, waiting = DirectFile.close, [act]

    def close_first(file: DirectFile) -> None:
        close(file)
        if waiting:
            waiting.pop()()

    monkeypatch.setattr(DirectFile, "close", close_first)


def visible(out: Path) -> list[int]:
    (path,) = (out / "embeddings").glob("[!._]*")
    return [epoch for _, epoch, _, _ in rows_in(path)]


def test_the_new_attempt_writes_while_the_old_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = attempt(tmp_path)
    seen: list[list[int]] = []

    def begin_anew() -> None:
        attempt(tmp_path).write(LogFile(0, epochs(5)))
        seen.append(visible(tmp_path))

    meanwhile(monkeypatch, begin_anew)
    try:
        old.write(LogFile(0, epochs(5)))
    except OSError:
        pass  # it is dead
    assert seen == [[1, 2, 3, 4, 5]]
    assert visible(tmp_path) == [1, 2, 3, 4, 5]


def test_the_old_attempt_writes_while_the_new_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = attempt(tmp_path), attempt(tmp_path)
    meanwhile(monkeypatch, lambda: old.write(LogFile(0, epochs(3), partial=True)))
    new.write(LogFile(0, epochs(5)))
    assert visible(tmp_path) == [1, 2, 3, 4, 5]


def test_an_old_attempt_that_stops_early_takes_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = attempt(tmp_path)
    meanwhile(monkeypatch, lambda: attempt(tmp_path).write(LogFile(0, epochs(5))))
    try:
        old.write(LogFile(0, epochs(3), partial=True))
    except OSError:
        pass
    assert visible(tmp_path) == [1, 2, 3, 4, 5]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.close()
    attempt(tmp_path).write(LogFile(0, epochs(5)))
    attempt(tmp_path).write(LogFile(0, epochs(3), partial=True))
    left = [path.name for path in tmp_path.rglob("*") if path.is_file() and path.name.endswith(".tmp")]
    assert left == []
