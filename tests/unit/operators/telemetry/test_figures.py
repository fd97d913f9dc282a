"""Figures for metrics: put together, and as Prometheus has histograms."""

from __future__ import annotations

import pytest

from freshet.operators.telemetry.figures import Figures, all_figures, cumulative, seconds_of
from freshet.operators.telemetry.status_file import BUCKETS, bucket_of


def test_parts_add_up() -> None:
    some = Figures({"rows": 3}, {"vertices": 5}, {"not JSON": 1}, {"applied_seconds": ([2, 40], [1, 7])})
    more = Figures({"rows": 4, "epochs": 2}, {}, {"dst: missing": 2}, {"applied_seconds": ([7, 40], [1, 2])})
    found = all_figures([some, more, Figures()])
    assert found == Figures(
        {"rows": 7, "epochs": 2},
        {"vertices": 5},
        {"not JSON": 1, "dst: missing": 2},
        {"applied_seconds": ([2, 7, 40], [1, 1, 9])},
    )
    assert Figures.of(found.plain()) == found
    assert Figures().plain() == {}


def test_bounds_of_a_histogram_are_edges_of_buckets() -> None:
    for latency_s in (1e-7, 0.002, 0.0199, 0.021, 3.0, 500.0, 1e6):
        told = cumulative(([bucket_of(latency_s * 1e3)], [4]))
        assert told[-1] == ("+Inf", 4)
        for bound, count in told[:-1]:
            assert count == (4 if latency_s < float(bound) else 0), (latency_s, bound)
    everything = cumulative((list(range(BUCKETS)), [1] * BUCKETS))
    assert [count for _, count in everything] == sorted(count for _, count in everything)
    bounds = [float(bound) for bound, _ in everything]
    assert bounds == sorted(bounds) and len(set(bounds)) == len(bounds)


def test_the_sum_is_right_to_a_bucket() -> None:
    assert seconds_of(([bucket_of(20.0), bucket_of(1000.0)], [3, 1])) == pytest.approx(1.06, rel=0.05)
    assert seconds_of(([], [])) == 0
