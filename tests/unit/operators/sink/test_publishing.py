"""What is done becomes readable soon, also when the stream pauses: the Partitioner says when files close."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.operators.control import EVENTS_IN_EPOCH, FLAGS, LAST, MARKER, PUBLISH
from freshet.operators.epochs.cut import Cut, Share
from freshet.operators.epochs.cut_log import CutLog
from tests.support.stages.sealed import Job, ends

LARGE = {"publish_ms": 10_000, "marker_interval_ms": 10**9}  # a state whose markers are far apart


def published(job: Job) -> list[int]:
    return [epoch for epoch, control in job.sent.items() if control[FLAGS] & PUBLISH]


def marked(job: Job) -> list[int]:
    return [epoch for epoch, control in job.sent.items() if control[MARKER] >= 0]


def test_a_pause_publishes_once_with_an_empty_epoch() -> None:
    log = CutLog()
    job = Job(log, **LARGE)
    for k, now_ms in enumerate((20_000, 20_100, 20_200)):
        job.receive(4, now_ms, first=4 * k)
    assert published(job) == [1], "what comes after a pause is not held back"
    assert job.stage.waiting, "the timer must go on"
    for now_ms in range(20_220, 200_000, 20):
        if job.stage.waiting:
            job.keep(job.stage.tick(now_ms))
    assert published(job) == [1, 4]
    assert [int(control[EVENTS_IN_EPOCH]) for control in job.sent.values()] == [4, 4, 4, 0]
    assert ends(log) == [4, 8, 12, 12]
    assert not job.stage.waiting
    assert marked(job) == [], "a large state is not swept for it"


def test_an_idle_job_that_has_published_all_writes_nothing_more() -> None:
    log = CutLog()
    job = Job(log, publish_ms=10_000, marker_interval_ms=10_000)
    job.receive(4, 50_000)
    job.receive(4, 51_000, first=4)
    for now_ms in range(51_020, 500_000, 1_000):
        job.keep(job.stage.tick(now_ms))
    assert len(log.cuts) == 3
    assert marked(job) == [3], "so near the next marker it is that marker"


def test_a_slow_stream_is_published_as_it_comes() -> None:
    """Ten events a second, and a marker in a week: no epoch waits for more than the interval."""
    log = CutLog()
    job = Job(log, epoch_events=1000, **LARGE)
    sealed: dict[int, float] = {}
    seen: dict[int, float] = {}
    for k in range(600):
        now_ms = 1e6 + 100.0 * k
        job.receive(1, now_ms, first=k)
        job.keep(job.stage.tick(now_ms + 20))
        for epoch in job.sent:
            sealed.setdefault(epoch, now_ms)
        for epoch in job.sent if job.stage.epoch in published(job) else ():
            seen.setdefault(epoch, now_ms)
    assert len(sealed) == 600, "no epoch more than without it"
    assert max(seen[epoch] - sealed[epoch] for epoch in seen) <= 9_000
    assert len(seen) > 500
    assert len(published(job)) == 7


def test_files_of_a_small_state_close_at_markers_alone() -> None:
    job = Job(CutLog(), publish_ms=10_000, marker_interval_ms=10_000)
    for k in range(600):
        job.receive(4, 1e6 + 100.0 * k, first=4 * k)
    assert marked(job) == [91, 181, 271, 361, 451, 541]
    assert published(job) == [1, *marked(job)]


def test_a_marker_that_comes_first_closes_the_files() -> None:
    job = Job(CutLog(), publish_ms=10_000, marker_interval_ms=1_000)
    for k in range(200):
        job.receive(4, 1e6 + 100.0 * k, first=4 * k)
    assert len(marked(job)) == 19
    assert published(job) == [1]


def test_the_cut_log_brings_back_what_was_published(tmp_path: Path) -> None:
    log = CutLog(tmp_path / "cuts")
    job = Job(log, **LARGE)
    saved = dict(job.entries)
    for k, now_ms in enumerate((20_000, 21_000, 32_000, 33_000)):
        job.receive(4, now_ms, first=4 * k)
        saved = saved if k else dict(job.entries)
    job.keep(job.stage.tick(60_000))
    assert published(job) == [1, 3, 5]
    cuts = log.cuts
    log.close()
    again = CutLog(tmp_path / "cuts")
    assert again.cuts == cuts
    restored = Job(again, saved, **LARGE)
    for k in range(1, 4):
        restored.receive(4, 99_000, first=4 * k)
    assert published(restored) == [1, 3, 5], "the same files, however long it took"
    assert not restored.stage.waiting


@pytest.mark.parametrize("when", ["at the end", "after it"])
def test_the_end_of_the_input_is_in_the_log(when: str) -> None:
    """With --stay the job goes on: what the last epoch held is published again after a crash."""
    log = CutLog()
    job = Job(log, **LARGE)
    saved = dict(job.entries)
    job.receive(6, 20_000)
    if when == "after it":
        saved = dict(job.entries)
    job.keep(job.stage.finish())
    assert job.sent[2][FLAGS] == LAST | PUBLISH
    assert not job.stage.waiting
    restored = Job(log, saved, **LARGE)
    if when == "at the end":
        restored.receive(6, 90_000)
        restored.keep(restored.stage.finish())
    assert published(restored) == [1, 2]
    assert not restored.stage.waiting


def test_an_end_that_finds_nothing_to_seal_leaves_its_epochs_to_the_timer() -> None:
    """Epochs by count stay so: no empty one at the end."""
    log = CutLog()
    job = Job(log, **LARGE)
    for k, now_ms in enumerate((20_000, 20_100)):
        job.receive(4, now_ms, first=4 * k)
    job.keep(job.stage.finish())
    assert ends(log) == [4, 8]
    assert job.stage.waiting


def test_without_an_interval_only_markers_close_files() -> None:
    log = CutLog()
    job = Job(log, marker_interval_ms=10**9)
    job.receive(6, 20_000)
    job.keep(job.stage.tick(20_020))
    assert not job.stage.waiting
    job.keep(job.stage.tick(10**6))
    assert len(log.cuts) == 2
    assert published(job) == []


def test_the_flag_is_written_and_read(tmp_path: Path) -> None:
    log = CutLog(tmp_path / "cuts")
    cuts = [Cut(1, 4, False), Cut(2, 4, False, (), False, True), Cut(3, 9, True, (Share(0, 1, 5, 7),), True, True)]
    for cut in cuts:
        log.append(cut)
    log.close()
    assert list(CutLog(tmp_path / "cuts").cuts.values()) == cuts
