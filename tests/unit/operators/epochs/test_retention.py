"""The cut log stays small: what no state needs any more goes, or is kept apart."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from freshet.operators.epochs.cut import Cut, LostCutError, Share
from freshet.operators.epochs.cut_log import CutLog, copy_log
from freshet.operators.epochs.cut_segments import segments_in
from freshet.operators.epochs.retention import CLOCKS_MS, TOLD_FILE, CheckpointFolder, Commits, ReportedCheckpoints
from tests.support.stages.cuts import reopened


def marched(log: CutLog, first: int, epochs: int, every: int, done: Callable[[], None] = lambda: None) -> None:
    """So many epochs with a marker at every so many; `done` after each marker."""
    for epoch in range(first, first + epochs):
        marker = epoch % every == 0
        log.append(Cut(epoch, epoch, marker, (Share(0, 0, 1, epoch),)))
        if marker:
            log.settle(max(0, epoch - every))
            done()


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def test_cuts_that_no_state_needs_leave_memory_and_disk(tmp_path: Path) -> None:
    commits = Commits()
    log = CutLog(tmp_path / "cuts", retention=commits, segment_bytes=1)

    def done() -> None:
        commits.begin()
        commits.commit(1)

    marched(log, 1, 1000, 100, done)
    early = size(tmp_path / "cuts")
    marched(log, 1001, 9000, 100, done)
    assert size(tmp_path / "cuts") < 1.3 * early
    assert len(log._cuts) == 0, "what an attempt cuts itself it need not remember"
    log.close()
    again = CutLog(tmp_path / "cuts", retention=commits)
    assert (again.first, again.last) == (9801, 10_000), "two markers"
    assert again.cut_of(9801).end == 9801
    assert len(again._cuts) == 100
    with pytest.raises(LostCutError, match=r"begins at epoch 9801, .* epoch 9800: .* `keep-cuts: true` in --config"):
        again.cut_of(9800)
    again.close()


def test_cuts_that_are_kept(tmp_path: Path) -> None:
    commits = Commits()
    log = CutLog(tmp_path / "cuts", retention=commits, segment_bytes=1, keep=True)

    def done() -> None:
        commits.begin()
        commits.commit(1)

    marched(log, 1, 500, 50, done)
    log.close()
    again = CutLog(tmp_path / "cuts")
    assert len(segments_in(tmp_path / "cuts" / "kept")) == 8
    assert [again.cut_of(epoch).end for epoch in (1, 50, 51, 400, 500)] == [1, 50, 51, 400, 500]
    assert list(again.cuts) == list(range(1, 501))
    again.close()
    copy_log(tmp_path / "cuts", tmp_path / "copy")
    assert list(reopened(tmp_path / "copy").cuts) == list(range(1, 501))
    assert CutLog(tmp_path / "cuts").attempt == 3, "copying takes nothing over"


def test_nothing_goes_while_no_checkpoint_is_complete(tmp_path: Path) -> None:
    states = tmp_path / "checkpoints"
    log = CutLog(tmp_path / "cuts", retention=CheckpointFolder(states), segment_bytes=1)
    job, former = states / ("a" * 32), states / ("b" * 32)
    (former / "chk-90").mkdir(parents=True)
    (former / "chk-90" / "_metadata").write_bytes(b"x")
    marched(log, 1, 300, 1)
    assert log.first == 1
    assert len(log._pending) <= 64
    (job / "chk-1").mkdir(parents=True)
    marched(log, 301, 10, 1)
    (job / "chk-1" / "_metadata").write_bytes(b"x")
    marched(log, 311, 10, 1)
    assert 200 < log.first <= 300, "it was begun after epoch 300"
    before = log.first
    (job / "chk-2").mkdir()
    (job / "chk-2" / "_metadata").write_bytes(b"x")
    marched(log, 321, 10, 1)
    assert before <= log.first <= 300, "chk-1 can still be restored"
    (job / "chk-1" / "_metadata").unlink()
    marched(log, 331, 10, 1)
    assert 311 <= log.first <= 320
    log.close()


def test_checkpoints_in_another_store_are_told_of(tmp_path: Path) -> None:
    now = [0.0]
    log = CutLog(tmp_path / "cuts", retention=ReportedCheckpoints(tmp_path, lambda: now[0]), segment_bytes=1)

    def later() -> None:
        now[0] += 10_000

    marched(log, 1, 60, 1, later)
    assert log.first == 1, "nobody tells"
    for since_ms, first in ((CLOCKS_MS - 1, 1), (CLOCKS_MS + 500_001, 51), (CLOCKS_MS + 1, 51)):
        (tmp_path / TOLD_FILE).write_text(f'{{"since_ms": {since_ms}}}')
        marched(log, log.last + 1, 1, 1, later)
        assert log.first == first, "epoch 51 was a marker at 500 s"
    log.close()


def test_a_job_without_checkpoints_keeps_all(tmp_path: Path) -> None:
    log = CutLog(tmp_path / "cuts", segment_bytes=1)
    marched(log, 1, 50, 5)
    assert list(log.cuts) == list(range(1, 51))
    log.close()


def test_a_cut_is_on_the_disk_at_the_next_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: synced.append(os.fstat(file).st_size) or sync(file))
    log = CutLog(tmp_path / "cuts")
    marched(log, 1, 30, 10)
    assert len(synced) == 3, "at markers alone"
    assert synced[-1] == size(tmp_path / "cuts")
    log.close()
