"""Counts of a server's requests, in memory that its processes share."""

from __future__ import annotations

import time

import pytest

from freshet.job.serving.bounds.budget import Budget, shared_memory
from freshet.job.serving.bounds.calls import (
    BOUNDS_S,
    FAILED,
    GET,
    LOOKUP,
    OK,
    OTHER,
    REFUSED,
    end_of_status,
    kind_of_path,
)


def test_calls_of_all_processes_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = shared_memory(2)
    first, second = (Budget(number, 2, shared) for number in range(2))
    now = 1000.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    first.calls.count(LOOKUP, OK, now)
    second.calls.count(LOOKUP, OK, now - 0.2)
    second.calls.count(LOOKUP, REFUSED, now - 100.0)
    second.calls.count(GET, FAILED, now)
    first.take(1 << 20, "an answer")
    for budget in (first, second):
        lookup, get = budget.calls.all()
        assert (lookup.kind, lookup.ends) == (LOOKUP, {OK: 2, REFUSED: 1, FAILED: 0})
        assert (get.kind, get.ends) == (GET, {OK: 0, REFUSED: 0, FAILED: 1})
        assert sum(lookup.within) == 3 and lookup.within[-1] == 1, "one took longer than the last bound"
        assert sum(lookup.within[: BOUNDS_S.index(0.1) + 1]) == 1
        assert lookup.seconds == pytest.approx(100.2)
        assert budget.in_flight == 1 << 20, "and the budget has words of its own"
    second.forget(0)
    assert second.in_flight == 0
    assert sum(next(second.calls.all()).ends.values()) == 3, "a process that ended has answered what it has"
    third = Budget(1, 2, shared)
    third.calls.count(GET, OK, now)
    assert [one.ends[OK] for one in third.calls.all()] == [2, 1], "one that is started again goes on"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/embeddings", "http embeddings"),
        ("/embeddings/a/b", "http embeddings"),
        ("/nearest", "http nearest"),
        ("/readyz", "http health"),
        ("/", OTHER),
        ("/x", OTHER),
    ],
)
def test_kinds_are_few_whatever_is_asked(path: str, kind: str) -> None:
    assert kind_of_path(path) == kind


def test_ends() -> None:
    assert [end_of_status(status) for status in (200, 304, 404, 429, 500, 503)] == [
        OK,
        OK,
        REFUSED,
        REFUSED,
        FAILED,
        FAILED,
    ]
