"""A served job over days of simulated time: disk and start-up are bounded, and the rows are those of the change log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from freshet.operators.sink.change_log_reader import ChangeLogReader
from tests.support.serving.week import Plan, Week, week
from tests.support.simulation.soaked import judge

DAYS = Plan(days=0.5, stands_for=3_000, marker_s=120.0, compact_s=1_800.0, keep_s=3_600.0, samples=8)


def test_disk_and_start_up_are_bounded(tmp_path: Path) -> None:
    samples = list(week(tmp_path / "O", DAYS))
    assert judge(samples).grew == [], samples
    assert max(sample.files for sample in samples) < 100
    assert all(sample.base_bytes and sample.change_log_bytes and sample.tail_bytes for sample in samples[1:])


def test_without_compaction_they_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above could fail."""
    monkeypatch.setattr(Week, "compact", lambda self: None)
    samples = list(week(tmp_path / "O", replace(DAYS, days=0.25)))
    assert {"files", "change_log_bytes"} & set(judge(samples).grew), samples


def test_what_is_served_is_what_base_and_log_say(tmp_path: Path) -> None:
    one = Week(tmp_path / "O", DAYS)
    try:
        one.run(DAYS.epochs // 2)
        one.sample()
        assert one.compactions > 5
        final = ChangeLogReader(one.hand.out).final()
        served = one.rows()
        assert served == dict(zip(final.ids.tolist(), final.vectors[:, 0].tolist(), strict=True))
        assert len(served) > 1000
        told = one.follower._positions
        assert told == {(0, 0): (10 * one.epoch, one.epoch)}
    finally:
        one.close()
