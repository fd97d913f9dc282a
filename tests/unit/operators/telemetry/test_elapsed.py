"""Durations through steps of the wall clock: by the monotonic clock, whatever the stamps' clock was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from freshet.job.lifecycle import checkpoint_age
from freshet.operators.sink import core
from freshet.operators.telemetry.elapsed import Elapsed
from freshet.operators.telemetry.latency import Latencies
from freshet.operators.telemetry.recent import Recent
from freshet.operators.telemetry.status_file import BUCKETS, percentile_ms
from freshet.state.table import TableSet

HOUR = 3_600_000.0
BEGAN = 1_700_000_000_000.0


class Clocks:
    """A wall clock that can be set, and the monotonic one."""

    def __init__(self) -> None:
        self.monotonic, self.offset = 50_000.0, BEGAN - 50_000.0

    @property
    def wall(self) -> float:
        return self.monotonic + self.offset

    def elapsed(self) -> Elapsed:
        return Elapsed(self.wall, lambda: self.monotonic)


@pytest.mark.parametrize("step", [-HOUR, HOUR, -30 * HOUR, 2_000.0, -2_000.0, 0.0])
@pytest.mark.parametrize("before", [0.0, 500.0, HOUR])
def test_the_time_since_a_stamp_is_that_which_passed(step: float, before: float) -> None:
    """Of stamps from before and after the step, by processes that began before it and after it."""
    clocks = Clocks()
    elapsed = clocks.elapsed()
    clocks.monotonic += 2 * HOUR
    stamp = clocks.wall
    clocks.monotonic += before
    clocks.offset += step
    clocks.monotonic += 10.0
    if before + 10 < abs(step) or step >= 0:  # else the stamp may as well be one of the new clock
        assert elapsed.since_ms(stamp, clocks.wall) == pytest.approx(before + 10)
    after = clocks.wall
    clocks.monotonic += 7.0
    assert elapsed.since_ms(after, clocks.wall) == pytest.approx(7)
    assert clocks.elapsed().since_ms(after, clocks.wall) == pytest.approx(7)


def test_a_clock_that_is_corrected_little_by_little_is_followed() -> None:
    clocks = Clocks()
    elapsed = clocks.elapsed()
    for _ in range(100):
        stamp = clocks.wall
        clocks.offset += 100.0
        clocks.monotonic += 5.0
        assert elapsed.since_ms(stamp, clocks.wall) == pytest.approx(105)


def test_a_stamp_of_a_host_whose_clock_is_ahead() -> None:
    clocks = Clocks()
    elapsed = clocks.elapsed()
    assert elapsed.since_ms(clocks.wall + 500, clocks.wall) == 0.0
    assert elapsed.since_ms(clocks.wall + HOUR, clocks.wall) is None


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_freshness_through_a_step(step: float) -> None:
    """An epoch that took 20 ms, through which the clock was set; one of the future is not counted."""
    clocks = Clocks()
    latencies = Latencies(TableSet(), clocks.elapsed())
    arrived = int(clocks.wall)
    clocks.monotonic += 20.0
    clocks.offset += step
    latencies.applied(arrived, clocks.wall)
    latencies.readable([arrived, int(clocks.wall + 30 * HOUR)], clocks.wall)
    for kind in ("applied", "readable"):
        counts = latencies.counts(kind)
        assert counts.sum() == 1
        assert percentile_ms(counts, 50) == pytest.approx(20, rel=0.1)


def test_the_sink_goes_by_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clocks = Clocks()
    monkeypatch.setattr("time.time", lambda: clocks.wall / 1e3)
    monkeypatch.setattr("time.monotonic", lambda: clocks.monotonic / 1e3)
    sink = core.Sink(0, tmp_path, [], "int")
    arrived = int(clocks.wall)
    clocks.monotonic += 40.0
    clocks.offset -= HOUR
    assert sink._latencies.since_ms(arrived, core.wall_ms()) == pytest.approx(40, abs=2)


def test_rates_begin_again_when_the_clock_was_set_back() -> None:
    recent = Recent()
    counts = np.zeros(BUCKETS, np.int64)
    for second in range(5):
        recent.figures(BEGAN / 1e3 + second, second, counts)
    assert recent.figures(BEGAN / 1e3 - 3600, 9, counts)["events_before"] == (BEGAN / 1e3 - 3600, 9)


@pytest.mark.parametrize(("ahead_s", "age"), [(-5.0, 5.0), (0.5, 0.0), (3600.0, None)])
def test_a_checkpoint_of_the_future_has_no_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float, age: float | None
) -> None:
    """Where the clock was set back since, 0 s would be a lie."""
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.0)
    monkeypatch.setattr(checkpoint_age, "written_here", lambda _: [1_700_000_000.0 + ahead_s])
    state = type("State", (), {"run": {"runtime": "local"}, "flink": None})()
    assert checkpoint_age.checkpoint_age_s(tmp_path, state) == age
