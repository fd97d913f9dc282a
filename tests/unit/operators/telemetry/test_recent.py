"""Events and latencies of the last seconds, however long ago the status was written."""

from __future__ import annotations

import numpy as np

from freshet.operators.telemetry.recent import Recent, counts_of, events_per_s, recent_percentiles
from freshet.operators.telemetry.status_file import BUCKETS, percentile_ms


def counts(**of: int) -> np.ndarray:
    found = np.zeros(BUCKETS, np.int64)
    for name, number in of.items():
        found[int(name[1:])] = number
    return found


def test_events_a_second_are_those_of_the_last_seconds() -> None:
    recent, status = Recent(), {}
    for at in range(21):  # 100 a second at first, then 10
        events = 100 * at if at <= 10 else 1000 + 10 * (at - 10)
        status = {"time": float(at), "events": events, **recent.figures(float(at), events, counts())}
        if at == 10:
            assert events_per_s(status, 10.0) == 100.0
    assert events_per_s(status, 20.0) == 10.0
    assert events_per_s(status, 25.0) == 5.0, "it falls while nothing comes"
    assert events_per_s(status, 31.0) == 0.0
    assert events_per_s({"time": 3.0, "events": 5}, 3.0) == 0.0, "a status of an earlier version"


def test_a_restore_begins_again() -> None:
    recent = Recent()
    recent.figures(1.0, 5000, counts(b40=7))
    recent.begin(2.0, counts(b40=2))
    assert recent.figures(3.0, 100, counts(b40=4)) == {
        "events_before": (3.0, 100),
        "latency_before": (2.0, ([40], [2])),
    }


def test_freshness_is_that_of_the_last_minute() -> None:
    recent, whole = Recent(), counts()
    for at in range(0, 200, 2):
        whole = whole + (counts(b100=10) if at < 100 else counts(b40=1))
        told = recent.figures(float(at), 0, whole)
    since, before = told["latency_before"]
    assert 198 - 80 <= since <= 198 - 60
    now = recent_percentiles(whole, counts_of(before))
    assert now == {"freshness_ms_p50": percentile_ms(counts(b40=1), 50), "freshness_ms_p99": now["freshness_ms_p50"]}
    of_all = recent_percentiles(whole, whole)
    assert of_all["freshness_ms_p50"] == percentile_ms(counts(b100=1), 50), "no epoch for a minute: since the job began"
