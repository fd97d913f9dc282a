"""Samples of the last hour: the ring, what a sample has, and that all processes of a server read the same."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from freshet.job.serving.bounds.calls import LOOKUP, begin
from freshet.job.serving.tables.history import FIGURES, SECONDS, History, shared_history, size_of
from freshet.job.serving.view import sampler as sampler_module
from freshet.job.serving.view.sampler import Sampler
from tests.support.serving.served import Served


def times(history: History, since_ms: int = 0) -> list[int]:
    return [one["time_ms"] for one in history.since(since_ms)]


def test_samples_come_back_with_their_types() -> None:
    history = History()
    assert history.since() == []
    history.add({"time_ms": 1_800_000_000_000, "epoch": 3 * 10**12 + 17, "events_per_s": 12.3456, "state": "running"})
    [sample] = history.since()
    assert list(sample) == [*FIGURES, "state"]
    assert (sample["time_ms"], sample["epoch"], sample["events_per_s"]) == (1_800_000_000_000, 3 * 10**12 + 17, 12.346)
    assert (sample["state"], sample["lag"]) == ("running", None)
    assert type(sample["epoch"]) is int
    json.dumps(sample, allow_nan=False)


def test_a_state_of_a_later_version_is_none() -> None:
    history = History()
    history.add({"time_ms": 1, "state": "asleep"})
    assert history.since()[0]["state"] is None


@pytest.mark.parametrize("count", [4, 5, 6, 23])
def test_the_ring_keeps_the_last_ones(count: int) -> None:
    history = History(seconds=5)
    for k in range(count):
        history.add({"time_ms": 1 + k})
    # the oldest of a full ring is where the next sample is written
    assert times(history) == list(range(1, 1 + count))[-4:]
    assert times(history, count - 2) == [count - 1, count]


def test_memory_is_bounded_and_shared() -> None:
    fd = shared_history()
    try:
        assert os.fstat(fd).st_size == size_of() < 1 << 20
        one, other = History(fd), History(fd)
        for k in range(SECONDS + 100):
            one.add({"time_ms": 1 + k})
        assert times(other) == times(one)
        assert times(other)[-1] == SECONDS + 100
        assert len(times(other)) == SECONDS - 1
    finally:
        os.close(fd)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    one = Served(tmp_path_factory.mktemp("history") / "O", "int")
    yield one
    one.close()


def test_a_sample_of_a_job_and_its_server(served: Served) -> None:
    served.hand.settle()
    now = [time.time()]
    sampler = Sampler(served.lookup, served.health, lambda: now[0])
    sampler.take()
    for epoch in (2, 3):
        served.hand.apply(epoch, ({2: float(epoch)}, []))
        served.until(epoch)
    served.hand.settle()
    for _ in range(6):
        served.health.budget.calls.count(LOOKUP, "ok", begin())
    now[0] += 2.0
    sampler.take()
    first, last = served.health.history.since()[-2:]
    assert (first["epoch"], last["epoch"]) == (1, 3)
    assert last["rows"] - first["rows"] == 2
    assert (last["rows_per_s"], last["reads_per_s"]) == (1.0, 3.0)
    assert last["state"] == "running"
    assert last["freshness_ms_p50"] > 0
    assert last["rejected"] == 0
    assert last["generation"] is None


def test_a_sample_that_fails_is_said_once_and_the_next_one_comes(
    served: Served, monkeypatch: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    sampler = Sampler(served.lookup, served.health)
    taken, before = threading.Event(), len(served.health.history.since())
    calls = iter([OSError("no"), OSError("no")])

    def figures() -> dict[str, Any]:
        if (error := next(calls, None)) is not None:
            raise error
        taken.set()
        return {}

    monkeypatch.setattr(served.health, "figures", figures)
    monkeypatch.setattr(sampler_module, "EVERY_S", 0.01)
    sampler.start()
    assert taken.wait(60)
    sampler.stop()
    assert capfd.readouterr().err.count("a sample for /v1/history is left out: OSError: no") == 1
    deadline = time.monotonic() + 60
    while len(served.health.history.since()) == before:
        assert time.monotonic() < deadline


def test_without_a_job_the_server_still_has_its_own_figures(served: Served, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(type(served.lookup), "folder", tmp_path / "elsewhere" / "tables")
    sampler = Sampler(served.lookup, served.health)
    sampler.take()
    last = served.health.history.since()[-1]
    assert last["epoch"] == 3
    assert last["events"] is last["lag"] is last["rejected"] is None
