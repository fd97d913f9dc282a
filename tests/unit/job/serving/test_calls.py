"""Counts of a server's requests, in memory that its processes share."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight
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
    Begun,
    Calls,
    add_waited,
    begin,
    end_of_status,
    kind_of_path,
)
from tests.support.serving.served import Served


def test_calls_of_all_processes_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = shared_memory(2)
    first, second = (Budget(number, 2, shared) for number in range(2))
    now = 1000.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    first.calls.count(LOOKUP, OK, Begun(now, 0.0))
    second.calls.count(LOOKUP, OK, Begun(now - 0.2, 0.0))
    second.calls.count(LOOKUP, REFUSED, Begun(now - 100.0, 0.0))
    second.calls.count(GET, FAILED, Begun(now, 0.0))
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
    third.calls.count(GET, OK, Begun(now, 0.0))
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
    ends = {200: OK, 304: OK, 404: REFUSED, 422: REFUSED, 429: REFUSED, 500: FAILED, 503: FAILED, 504: REFUSED}
    assert {status: end_of_status(status) for status in ends} == ends


def test_time_that_a_caller_asked_to_wait_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a call over Flight, one of a lookup stream, and one over HTTP."""
    counted: list[tuple[str, str, bool]] = []

    def count(_: Calls, kind: str, end: str, begun: Begun) -> None:
        counted.append((kind, end, begin().waited_s > begun.waited_s))

    one = Served(tmp_path / "O", "int")
    try:
        monkeypatch.setattr(Calls, "count", count)
        late: dict[str, Any] = {"min_epoch": 9, "timeout": 0.02}
        for more, waits in ((late, True), ({}, False)):
            one.http.post("/embeddings", json={"ids": [2], **more})
            with flight.connect(f"grpc://127.0.0.1:{one.port}") as client:
                with suppress(flight.FlightTimedOutError):
                    client.do_get(flight.Ticket(orjson.dumps({"ids": [2], **more}))).read_all()
                writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"{}"))
                batch = pa.record_batch({"id": [2]})
                writer.begin(batch.schema)
                writer.write_with_metadata(batch, orjson.dumps(more))
                reader.read_chunk()
                writer.close()
            end = REFUSED if waits else OK
            assert counted == [("http embeddings", end, waits), (GET, end, waits), (LOOKUP, end, waits)]
            counted.clear()
    finally:
        one.close()


def test_the_wait_is_taken_off_the_time_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    budget, begun = Budget(), begin()
    now += 5.5
    add_waited(5.0)
    budget.calls.count(GET, OK, begun)
    assert next(budget.calls.all()).seconds == pytest.approx(0.5)
