"""Whatever clients ask for and don't take, a server's memory stays bounded, and it answers the others meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from freshet.job.serving.bounds import waiting, whole_table
from freshet.job.serving.bounds.budget import ALL_BYTES_MAX, KEPT_FOR_SMALL, ONE_BYTES_MAX, SMALL_BYTES
from freshet.job.serving.bounds.whole_table import WholeTable
from freshet.job.serving.doors import json_answers
from freshet.job.serving.doors.feast import feast_bytes
from freshet.job.serving.protocol.errors import ExhaustedError, TooSlowError
from tests.support.serving.hand_job import WIDTH
from tests.support.serving.served import Served, key

MIB = 1 << 20
EXHAUSTED = "RESOURCE_EXHAUSTED"


@pytest.fixture(scope="module", params=["int", "string"])
def served(request, tmp_path_factory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served") / "O", request.param)
    yield one
    one.close()


@pytest.fixture
def large(tmp_path) -> Iterator[Served]:
    one = Served(tmp_path / "O", "int")
    one.hand.apply(2, ({number: 1.0 for number in range(10, 30_000)}, []))
    one.until(2)
    yield one
    one.close()


@contextmanager
def connected(address: str) -> Iterator[flight.FlightClient]:
    client = flight.connect(f"grpc://{address}", generic_options=[("grpc.use_local_subchannel_pool", 1)])
    try:
        yield client
    finally:
        client.close()


@contextmanager
def full(one: Served) -> Iterator[None]:
    """All that may be in flight is so, but for a few bytes."""
    budget = one.lookup.budget
    sizes = [ONE_BYTES_MAX] * 3 + [ALL_BYTES_MAX - KEPT_FOR_SMALL - 3 * ONE_BYTES_MAX]
    sizes += [SMALL_BYTES] * (KEPT_FOR_SMALL // SMALL_BYTES)
    held = [budget.hold(size, "what others took") for size in sizes]
    try:
        yield
    finally:
        for each in held:
            each.release()


def until(what: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ask(client: flight.FlightClient, column: pa.Array, **options: object) -> dict[str, object]:
    """One lookup by a stream of its own; what stands beside the answer."""
    batch = pa.RecordBatch.from_arrays([column], ["id"])
    writer, reader = client.do_exchange(
        flight.FlightDescriptor.for_command(b"{}"), flight.FlightCallOptions(timeout=60)
    )
    writer.begin(batch.schema, options=pa.ipc.IpcWriteOptions(**options))
    writer.write_batch(batch)
    return orjson.loads(reader.read_chunk().app_metadata.to_pybytes())


def test_features_are_not_multiplied_by_ids(served):
    two = key(served, 2)
    asked = {"features": ["embedding"] * 3000, "entities": {"id": [two] * 3000}}
    body = orjson.dumps(asked)
    assert len(body) < 64 << 10
    refused = served.lookup.budget.refused
    answer = served.http.post("/get-online-features", content=body)
    assert (answer.status_code, answer.json()["kind"]) == (429, EXHAUSTED)
    assert "retry-after" not in answer.headers, "it is too large, now and later"
    assert served.lookup.budget.refused == refused + 1
    metrics = served.http.get("/metrics").text
    assert f"freshet_refused {float(refused + 1)}" in metrics
    assert f"freshet_bytes_in_flight_limit {float(ALL_BYTES_MAX):.10g}".split()[0] in metrics
    assert "freshet_bytes_in_flight 0.0" in metrics


@pytest.mark.parametrize("missing", [False, True])
def test_large_answers_are_what_small_ones_are(served, monkeypatch, missing):
    """The same answer at once and in parts, no longer than was expected."""
    two, three, none = (key(served, number) for number in (2, 3, 99))
    ids = [two, three, *([none] if missing else []), two] * 20
    requests = [
        ("/embeddings", {"ids": ids}),
        ("/get-online-features", {"features": ["v:embedding", "epoch", "x"], "entities": {"id": ids}}),
        ("/get-online-features", {"features": ["v:epoch"], "entities": {"id": ids}, "full_feature_names": True}),
        ("/nearest", {"id": two, "k": 3}),
    ]

    def answers() -> list[dict[str, object]]:
        as_it_is = {"accept-encoding": "identity"}
        found = [served.http.post(path, json=asked, headers=as_it_is) for path, asked in requests]
        assert [one.status_code for one in found] == [200] * len(requests)
        sizes.extend(len(one.content) for one in found)
        lengths.extend("content-length" in one.headers for one in found)
        return [one.json() for one in found]

    sizes: list[int] = []
    lengths: list[bool] = []
    small = answers()
    for name in ("FREE_BYTES", "INLINE_BYTES", "PART_BYTES"):
        monkeypatch.setattr(json_answers, name, 300)
    for module in ("asking", "features"):
        monkeypatch.setattr(f"freshet.job.serving.doors.routes.{module}.INLINE_BYTES", 300)
    monkeypatch.setattr("freshet.job.serving.doors.feast._PART_BYTES", 300)
    monkeypatch.setattr("freshet.job.serving.doors.routes.asking.FREE_BYTES", 0)
    large = answers()
    assert lengths == [True] * 4 + [False] * 4
    for one, other in zip(small, large, strict=True):
        for each in (one, other):
            for column in each.get("results", []):
                column.pop("event_timestamps")
        assert one == other
    assert sizes[1] <= feast_bytes(WIDTH, [("v", "embedding"), ("", "epoch"), ("", "x")], len(ids)) + 2 * 40 * len(ids)
    assert served.lookup.budget.in_flight == 0


def test_past_the_budget_is_said_and_later_it_is_answered(large):
    ids = list(range(10, 20_000))
    requests = [
        ("/embeddings", {"ids": ids}),
        ("/get-online-features", {"features": ["embedding"], "entities": {"id": ids}}),
        ("/nearest", {"id": 10, "k": 10_000}),
    ]
    tickets = [{"all": True}, {"ids": ids}, {"nearest": {"id": 10, "k": 10_000}}, {"changes": True}]
    with connected(f"127.0.0.1:{large.port}") as client, large.client("flight") as lookups:

        def take(ticket: dict[str, object]) -> int:
            return client.do_get(flight.Ticket(orjson.dumps(ticket))).read_chunk().data.num_rows

        with full(large):
            for path, asked in requests:
                answer = large.http.post(path, json=asked)
                assert (answer.status_code, answer.headers["retry-after"]) == (429, "1"), answer.text
                assert answer.json()["error"].startswith(EXHAUSTED)
            for ticket in tickets:
                with pytest.raises(flight.FlightUnavailableError, match=f"^{EXHAUSTED}: .*try again"):
                    take(ticket)
            for asked in (lookups.all, lambda: lookups.rows(ids)):
                with pytest.raises(ExhaustedError, match="try again"):
                    asked()
            assert lookups.rows([2])[0].tolist() == [2]
            assert large.http.get("/embeddings/2").status_code == 200
            assert large.http.get("/healthz").json()["bytes_in_flight"] > 800 * MIB
            assert lookups.health()["refused"] >= 8
        for path, asked in requests:
            assert large.http.post(path, json=asked).status_code == 200
        assert all(take(ticket) for ticket in tickets)
        assert (len(lookups.all()), len(lookups.rows(ids)[0])) == (29_993, len(ids))
    until(lambda: large.lookup.budget.in_flight == 0)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_batch_that_unpacks_to_too_much(served, codec):
    """Arrow unpacks it before it can be asked; it is refused then, the stream ends, and nothing of it stays."""
    bomb = pa.array(np.zeros(40 * MIB, np.int64))
    began = pa.total_allocated_bytes()
    with connected(f"127.0.0.1:{served.port}") as client:
        with pytest.raises(flight.FlightServerError, match=f"^{EXHAUSTED}: a batch: up to 335,544,320 bytes"):
            ask(client, bomb, compression=codec)
        del bomb
        until(lambda: pa.total_allocated_bytes() - began < 32 * MIB)
        if served.hand.kind == "int":
            assert "epoch" in ask(client, pa.array([2]), compression=codec), "a small one is answered"
    until(lambda: served.lookup.budget.in_flight == 0)


def test_other_large_requests_over_flight(served):
    names = pa.array(["x" * MIB] * 17)
    with connected(f"127.0.0.1:{served.port}") as client:
        if served.hand.kind == "string":
            assert "bytes of text" in str(ask(client, names)["error"])
        for ticket, said in (
            (b" " * (17 << 20), "bad-request: a request: expected at most 16,777,216 bytes"),
            (b'{"ids":[' + b"[]," * (3 << 20) + b"1]}", f"{EXHAUSTED}: a ticket"),
        ):
            with pytest.raises(flight.FlightServerError, match=f"^{said}"):
                client.do_get(flight.Ticket(ticket)).read_all()
        command = flight.FlightDescriptor.for_command(b" " * (17 << 20))
        with pytest.raises(flight.FlightServerError, match="bad-request: a request"):
            client.get_flight_info(command)
        with pytest.raises((flight.FlightServerError, pa.ArrowException), match="bad-request: a request"):
            client.do_exchange(command)[1].read_chunk()
    until(lambda: served.lookup.budget.in_flight == 0)


def test_waiting_calls_are_bounded_and_woken(served, monkeypatch):
    monkeypatch.setattr(waiting, "THREADS_MAX", 3)
    epoch, two = served.lookup.table.epoch + 1, key(served, 2)
    ticket = flight.Ticket(orjson.dumps({"ids": [two], "min_epoch": epoch, "timeout": 50}))
    room = served.lookup.room
    assert room is not None
    with connected(f"127.0.0.1:{served.port}") as client, ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(lambda: client.do_get(ticket).read_all()) for _ in range(3)]
        later = threads.submit(served.http.get, f"/embeddings/{two}?min_epoch={epoch}&timeout=50")
        until(lambda: len(room) == 4)
        with pytest.raises(flight.FlightUnavailableError, match=f"^{EXHAUSTED}: .*3 calls wait already"):
            client.do_get(ticket).read_all()
        assert served.health.figures()["waiting"] == 4
        served.hand.apply(epoch, ({2: 1.0}, []))
        assert {call.result(60).schema.metadata[b"epoch"] for call in calls} == {str(epoch).encode()}
        assert later.result(60).json()["as_of"] == epoch
        until(lambda: len(room) == 0)
        never = flight.Ticket(ticket.ticket.replace(b"%d" % epoch, b"%d" % (epoch + 9)))
        with pytest.raises(flight.FlightTimedOutError):
            client.do_get(never, flight.FlightCallOptions(timeout=1)).read_all()
        until(lambda: len(room) == 0, 40)  # long before its time is up: nobody waits for it any more


def part_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_table, "_PART_BYTES", 32 << 10)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[WholeTable]:
    """Who was looked after, one entry a look."""
    found, keep = list[WholeTable](), WholeTable.keep_if_due

    def keep_if_due(one: WholeTable) -> None:
        keep(one)
        found.append(one)

    monkeypatch.setattr(WholeTable, "keep_if_due", keep_if_due)
    return found


def churn(one: Served, epoch: int) -> None:
    one.hand.apply(epoch, ({number: float(epoch) for number in range(10, 8_010)}, []))
    one.until(epoch)


def looked_at(looks: list[WholeTable]) -> None:
    """Wait for a look that began after this call."""
    before = len(looks)
    until(lambda: len(looks) >= before + 2)


def test_a_slow_reader_gets_the_epoch_that_it_began_with(large, monkeypatch, looks):
    """What the ring is about to give up is kept for it, within the budget, and given back."""
    part_bytes(monkeypatch)
    budget, expected = large.lookup.budget, large.lookup.all()
    whole = WholeTable(large.lookup.table, budget)
    parts = iter(whole)
    begun = [next(parts)]
    assert budget.in_flight < MIB
    epoch = 3
    while budget.in_flight < 900_000:  # nearly all of its rows
        churn(large, epoch)
        looked_at(looks)
        epoch += 1
        assert epoch < 40
    for later in range(epoch, epoch + 4):
        churn(large, later)
    begun += parts
    assert whole.epoch == expected.epoch
    assert np.concatenate([part.ids for part in begun]).tolist() == expected.ids.tolist()
    assert np.array_equal(np.concatenate([part.rows for part in begun]), expected.rows)
    assert [part.last for part in begun] == [False] * (len(begun) - 1) + [True]
    assert budget.in_flight == 0


def test_a_slow_reader_beside_a_full_budget_is_ended(large, monkeypatch, looks):
    part_bytes(monkeypatch)
    whole = WholeTable(large.lookup.table, large.lookup.budget)
    parts = iter(whole)
    next(parts)
    with full(large):
        epoch = 3
        while not whole._failure:
            churn(large, epoch)
            looked_at(looks)
            epoch += 1
            assert epoch < 40
        with pytest.raises(TooSlowError, match=r"all rows at epoch 2: RESOURCE_EXHAUSTED: .* --history"):
            list(parts)
    assert large.lookup.budget.in_flight == 0
    assert len(large.lookup.all().epochs) == 29_993
