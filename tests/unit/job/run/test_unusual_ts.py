"""A `ts` that looks like one of another unit than the job's is said, with the unit that would fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest

from freshet.job.folder import layout
from freshet.job.lifecycle.summary import live_remarks, remarks
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.telemetry.figures import HAS_TS, UNUSUAL_TS
from freshet.operators.telemetry.status_file import PROFILE_PREFIX, StatusFile
from freshet.partitioner.events import NO_TS
from freshet.partitioner.times.units import first_unusual, unusual_in_words
from tests.support.stages.sealed import Job, events

T = 1_700_000_000_123


@pytest.mark.parametrize(
    ("ts", "unit", "words"),
    [
        (T // 1000, "ms", "1700000000, 1970-01-20 in milliseconds; in seconds it is 2023-11-14: --ts-unit s"),
        (T * 1000, "ms", "in microseconds it is 2023-11-14: --ts-unit us"),
        (
            T * 10**6,
            "ms",
            "no day of the years 1 to 9999 in milliseconds; in nanoseconds it is 2023-11-14: --ts-unit ns",
        ),
        (T * 1000, "s", "1700000000123, no day of the years 1 to 9999 in seconds; in milliseconds it is 2023-11-14"),
        (T // 1000, "us", "in milliseconds it is 2023-11-14: --ts-unit ms"),
        (5, "ms", "5, 1970-01-01 in milliseconds, and in no other unit from 2000 to 2100 either"),
        (788_918_400_000, "ms", "788918400000, 1995-01-01 in milliseconds, and in no other unit"),
    ],
)
def test_the_unit_that_would_fit(ts: int, unit: str, words: str) -> None:
    assert words in unusual_in_words(ts, unit)


def test_the_first_unusual_one() -> None:
    good = [NO_TS, 946_684_800_000, T, 4_102_444_799_999]
    assert first_unusual(np.array(good), NO_TS) is None
    assert first_unusual(None, NO_TS) is None
    for odd in (946_684_799_999, 4_102_444_800_000, 0, -1):
        assert first_unusual(np.array([*good, odd, 7]), NO_TS) == odd


def test_the_partitioner_tells_of_it() -> None:
    for times, found in (((T, T), None), ((T, T // 1000, 7), T // 1000), ((7,), 7)):
        job = Job(CutLog())
        job.stage.receive(events({"op": "add_edge", "src": 1, "dst": 2, "ts": ts} for ts in times), 0.0)
        job.stage.finish()
        assert job.stage.figures.gauges.get(UNUSUAL_TS) == found


@pytest.mark.parametrize("ttl", [0, 1])
def test_a_run_says_it_as_it_shows_and_at_its_end(tmp_path: Path, ttl: int) -> None:
    (tmp_path / layout.RUN).write_bytes(orjson.dumps({"edge_ttl_ms": ttl}))
    told = {"figures": {"gauges": {UNUSUAL_TS: T // 1000}}}
    assert not list(live_remarks(tmp_path, ()))
    StatusFile(tmp_path, f"{PROFILE_PREFIX}partitioner-0").write(told, 0.0)
    ((name, words),) = live_remarks(tmp_path, ())
    assert "--ts-unit s" in words
    assert ("--edge-ttl" in words) == bool(ttl)
    assert not list(live_remarks(tmp_path, {name}))
    assert list(remarks(tmp_path, {})) == [words]


def test_epochs_by_event_time_without_any_ts_are_said_after_many_events_and_at_the_end(tmp_path: Path) -> None:
    def warnings_of(events: int, has_ts: int) -> tuple[list[str], list[str]]:
        figures = {"counts": {"events": events, "rejected": 5}, "gauges": {HAS_TS: has_ts}}
        StatusFile(tmp_path, f"{PROFILE_PREFIX}partitioner-0").write({"figures": figures}, 0.0)
        return [words for _, words in live_remarks(tmp_path, ())], list(remarks(tmp_path, {}))

    words = "warning: --epoch-event-time: none of the {} events had a ts, so no epoch ended by it"
    assert warnings_of(5, 0) == ([], [])
    assert warnings_of(105, 0) == ([], [words.format(100)])
    assert warnings_of(20_005, 0) == ([words.format("20,000")],) * 2
    assert warnings_of(20_005, 1) == ([], [])
    assert not list(live_remarks(tmp_path, {HAS_TS}))
