"""Epochs that adapt: at once while nothing is under way, larger the more waits, never above the ceiling."""

from typing import Any

import pytest

from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.cutter import EPOCHS_UNDER_WAY, Pace
from freshet.operators.epochs.under_way import UnderWay
from tests.support.stages.cuts import copied
from tests.support.stages.sealed import Job, ends

TARGET = {"epoch_events": 100, "latency_target_ms": 50.0, "marker_interval_ms": 10**9}


def pace(under_way: int | None = 0, **config: Any) -> Pace:
    """One with so many epochs under way."""
    found = Pace(SealingConfig(**{**TARGET, **config}))
    if under_way is not None:
        found.under_way.expect([0])
        found.under_way.note_sealed(under_way)
    return found


def watched(log: CutLog, **config: Any) -> tuple[Job, UnderWay]:
    """A Partitioner that knows of a Sink with one part."""
    job, noted = Job(log, **{**TARGET, **config}), UnderWay()
    noted.expect([0])
    job.stage.watch(noted)
    return job, noted


def test_by_count_alone_without_a_target() -> None:
    one = pace(latency_target_ms=0.0)
    assert [one.events_due(waiting, 1e9) for waiting in (0, 1, 99, 100, 250)] == [0, 0, 0, 100, 100]


@pytest.mark.parametrize("under_way", range(EPOCHS_UNDER_WAY))
def test_an_epoch_at_once_while_few_are_under_way(under_way: int) -> None:
    assert pace(under_way).events_due(1, 0.0) == 1
    assert pace(under_way).events_due(0, 0.0) == 0


def test_events_wait_for_those_before_them_up_to_half_of_the_target() -> None:
    one = pace(EPOCHS_UNDER_WAY)
    assert one.events_due(7, 1000.0) == 0
    assert one.events_due(30, 1024.0) == 0
    one.under_way.note_applied(0, 1)
    assert one.events_due(30, 1024.0) == 30, "there is room again"
    one.under_way.note_applied(0, 0)
    assert one.events_due(40, 1025.0) == 40, "the oldest has waited for long enough"
    one.note_sealed(EPOCHS_UNDER_WAY + 1)
    assert one.events_due(5, 1026.0) == 0, "the next one's time begins with it"
    assert one.events_due(5, 1050.9) == 0
    assert one.events_due(5, 1051.0) == 5


def test_the_ceiling_ends_an_epoch_whatever_is_under_way() -> None:
    one = pace(1000)
    assert one.events_due(99, 0.0) == 0
    assert one.events_due(100, 0.0) == 100
    assert one.events_due(380, 0.0) == 100


def test_without_a_sink_in_sight_the_clock_decides() -> None:
    one = pace(None)
    assert one.events_due(7, 1000.0) == 0
    assert one.events_due(7, 1025.0) == 7


def test_epochs_grow_with_the_backlog_and_shrink_again() -> None:
    log = CutLog()
    job, noted = watched(log)
    first = 0

    def receive(count: int, now_ms: float) -> None:
        nonlocal first
        job.receive(count, now_ms, first)
        first += count

    receive(3, 0.0)
    receive(2, 0.0)
    assert ends(log) == [3, 5], "at once"
    assert not job.stage.holds_back
    for _ in range(4):
        receive(20, 1.0)
    assert ends(log) == [3, 5]
    assert job.stage.holds_back
    assert not job.stage.is_due(1.0)
    noted.note_applied(0, 1)
    assert job.stage.is_due(1.0)
    job.keep(job.stage.tick(1.0))
    assert ends(log) == [3, 5, 85], "what has gathered is one epoch"
    receive(150, 2.0)
    assert ends(log) == [3, 5, 85, 185], "at most the ceiling, and the rest waits"
    assert job.stage.levels["epochs_under_way"].now == 3
    noted.note_applied(0, 4)
    assert (job.stage.levels["epochs_under_way"].now, job.stage.levels["epochs_under_way"].peak) == (0, 3)
    job.keep(job.stage.tick(2.0))
    receive(1, 3.0)
    assert ends(log) == [3, 5, 85, 185, 235, 236]


def test_a_tick_seals_nothing_that_is_not_due() -> None:
    log = CutLog()
    job, noted = watched(log)
    noted.note_sealed(9)
    job.receive(3, 10.0)
    job.keep(job.stage.tick(30.0))
    assert not log.cuts
    job.keep(job.stage.tick(35.0))
    assert ends(log) == [3]


def test_a_pause_still_ends_what_is_open() -> None:
    log = CutLog()
    job, noted = watched(log, publish_ms=1000)
    job.receive(3, 10_000.0)
    job.receive(3, 10_001.0, 3)
    assert job.stage.waiting
    assert not job.stage.holds_back, "no event waits: there is no hurry"
    job.keep(job.stage.tick(12_000.0))
    job.keep(job.stage.finish())
    assert [(cut.end, cut.publish) for cut in log.cuts.values()] == [(3, True), (6, False), (6, True)]
    assert noted.epochs == 3


def test_the_end_of_the_input_waits_for_nobody() -> None:
    log = CutLog()
    job, noted = watched(log)
    noted.note_sealed(9)
    job.receive(3)
    job.keep(job.stage.finish())
    assert ends(log) == [3]


def test_a_replay_is_as_the_log_says_whatever_is_under_way() -> None:
    log = CutLog()
    job, noted = watched(log)
    for first, applied in ((0, 0), (5, 0), (10, 0), (15, 2), (20, 4)):
        noted.note_applied(0, applied)
        job.receive(5, first=first)
    assert ends(log) == [5, 10, 20, 25]
    again, noted = watched(copied(log))
    noted.note_sealed(99)
    for first in range(0, 30, 3):
        again.receive(3, first=first)
    assert ends(again.stage.log) == ends(log)
    assert sorted(again.sent) == sorted(job.sent)
    for epoch, control in job.sent.items():
        assert again.sent[epoch].tolist() == control.tolist()
