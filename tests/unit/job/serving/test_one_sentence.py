"""Clients hear one sentence of an error that nobody expected; the server's log has the rest, by the same id."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from fastapi.testclient import TestClient

from freshet.errors import FreshetError
from freshet.job.serving.clients import flight_client
from freshet.job.serving.doors.http_front import Front
from freshet.job.serving.doors.one_sentence import logged
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.tables.lookup import Lookup
from freshet.state.served.mapped import HistoryTooShortError, WriterGoneError
from freshet.state.served.reader import TableReader
from tests.support.serving.served import Served

HIDDEN = "Traceback", ".py", "secret", "pyarrow._flight", "Python exception"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served") / "O", "int")
    yield one
    one.close()


def broken(*_: object, **__: object) -> Any:
    msg = "secret /home/me/model"
    raise RuntimeError(msg)


def break_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("served", "whole", "table"):
        monkeypatch.setattr(Lookup, name, property(broken))


def exchange(client: flight.FlightClient) -> None:
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b""))
    writer.begin(pa.schema([("id", pa.int64())]))
    writer.write_batch(pa.record_batch([pa.array([2])], ["id"]))
    reader.read_chunk()


def put(client: flight.FlightClient) -> None:
    writer, _ = client.do_put(flight.FlightDescriptor.for_path("x"), pa.schema([("a", pa.int64())]))
    writer.close()


def _raise(text: str) -> None:
    raise RuntimeError(text)


ANYTHING = flight.FlightDescriptor.for_path("x")
CALLS: dict[str, Callable[[flight.FlightClient], object]] = {
    "ids": lambda client: client.do_get(flight.Ticket(b'{"ids": [2]}')).read_all(),
    "all": lambda client: client.do_get(flight.Ticket(b'{"all": true}')).read_all(),
    "nearest": lambda client: client.do_get(flight.Ticket(b'{"nearest": {"id": 2}}')).read_all(),
    "changes": lambda client: client.do_get(flight.Ticket(b'{"changes": true}')).read_all(),
    "exchange": exchange,
    "flights": lambda client: list(client.list_flights()),
    "info": lambda client: client.get_flight_info(ANYTHING),
    "schema": lambda client: _raise(client.get_schema(ANYTHING).schema.metadata[b"error"].decode()),
    "job": lambda client: list(client.do_action(flight.Action("job", b""))),
    "health": lambda client: list(client.do_action(flight.Action("health", b""))),
}


@pytest.mark.parametrize("call", CALLS)
def test_over_flight(
    served: Served, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], call: str
) -> None:
    break_tables(monkeypatch)
    for name in ("get", "few", "all", "ids_of"):
        monkeypatch.setattr(Lookup, name, broken)
    with flight.connect(f"grpc://127.0.0.1:{served.port}") as client, pytest.raises(Exception) as caught:
        CALLS[call](client)
    text = str(caught.value)
    found = re.search(r"internal error ([0-9a-f]{8})", text)
    assert found is not None, text
    assert not [word for word in HIDDEN if word in text]
    said = capfd.readouterr().err
    assert f"internal error {found[1]}: RuntimeError: secret /home/me/model" in said


def test_what_a_server_does_not_do_is_a_sentence(served: Served) -> None:
    with flight.connect(f"grpc://127.0.0.1:{served.port}") as client:
        for wrong in (put, lambda client: list(client.do_action(flight.Action("fly", b"")))):
            with pytest.raises(flight.FlightServerError) as caught:
                wrong(client)
            assert not [word for word in HIDDEN if word in str(caught.value)]
        assert client.get_schema(ANYTHING).schema.names == ["id", "epoch", "embedding"]
        assert {one.type for one in client.list_actions()} == {"health", "job", "model"}


def test_the_client_says_that_it_was_the_server(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with served.client("flight") as client:
        assert client.epoch() >= 1
        monkeypatch.setattr(Lookup, "wait", broken)
        with pytest.raises(FreshetError, match=r"^internal error [0-9a-f]{8}: the server's log has it by that id"):
            client.all(timeout=1.0)


@pytest.mark.parametrize("path", ["/embeddings/2", "/metrics", "/readyz"])
def test_over_http(
    served: Served, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], path: str
) -> None:
    break_tables(monkeypatch)
    answer = served.http.get(path)
    assert (answer.status_code, answer.json()["kind"]) == (500, "failed")
    assert not [word for word in HIDDEN if word in answer.text]
    found = re.search(r"internal error ([0-9a-f]{8})", answer.text)
    assert found is not None
    assert capfd.readouterr().err.count(f"internal error {found[1]}: RuntimeError: secret") == 1


def test_over_http_before_the_application_is_there(served: Served) -> None:
    answer = TestClient(Front(served.health, None, broken), raise_server_exceptions=False).get("/embeddings/2")
    assert answer.status_code == 500
    assert not [word for word in HIDDEN if word in answer.text]


def test_a_call_without_the_token(tmp_path: Path) -> None:
    one = Served(tmp_path / "O", "int", token="secret")
    try:
        with flight.connect(f"grpc://127.0.0.1:{one.port}") as client:
            for call in CALLS.values():
                with pytest.raises((flight.FlightUnauthenticatedError, OSError), match="authorization") as caught:
                    call(client)
                assert not [word for word in HIDDEN if word in str(caught.value)]
    finally:
        one.close()


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize("token", [None, "secret"])
def test_health_that_fails_before_anything_else(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str, token: str | None
) -> None:
    break_tables(monkeypatch)
    answer = TestClient(Front(served.health, token), raise_server_exceptions=False).get(path)
    assert (answer.status_code, answer.json()["kind"]) == (500, "failed")
    assert not [word for word in HIDDEN if word in answer.text]


def test_the_log_does_not_grow_by_the_same_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(50):
        try:
            broken()
        except RuntimeError as error:
            assert logged(error) == logged(error)
    said = capfd.readouterr().err
    assert said.count("internal error") == 50
    assert said.count("Traceback") <= 1


@pytest.mark.parametrize(
    ("error", "kind", "status"), [(HistoryTooShortError, "too-slow", 503), (WriterGoneError, "not-ready", 503)]
)
def test_what_is_wrong_with_a_table_is_said(
    served: Served, monkeypatch: pytest.MonkeyPatch, error: type[FreshetError], kind: str, status: int
) -> None:
    """A table's errors say what to do: give the server more --history, or start it again."""
    said = "the table: give the server more --history"

    def fails(*_: object, **__: object) -> Any:
        raise error(said)

    for name in ("get", "few_into", "part", "all"):
        monkeypatch.setattr(TableReader, name, fails)
    monkeypatch.setattr(flight_client, "ANSWER_S", 60.0)  # this process may wait long for a core
    answer = served.http.post("/embeddings", json={"ids": [2]})
    assert (answer.status_code, answer.json()) == (status, {"error": said, "kind": kind})
    with flight.connect(f"grpc://127.0.0.1:{served.port}") as client:
        for call in ("ids", "all"):
            with pytest.raises(flight.FlightError, match=f"^{kind}: {said}"):
                CALLS[call](client)
    with served.client("flight", timeout=1) as asking:
        for ask in (asking.get, asking.rows):
            with pytest.raises(NotReadyError, match=said):
                ask([2])


@pytest.mark.parametrize(
    "key", ["9" * 5000, "events.jsonl:" + "9" * 5000, "x" * 5000 + ":1"], ids=["", "source", "no source"]
)
def test_partitions_that_are_none(served: Served, key: str) -> None:
    answer = served.http.post("/embeddings", json={"ids": [2], "min_position": {key: 1}, "timeout": 0})
    assert (answer.status_code, answer.json()["kind"]) == (400, "bad-request")
    assert len(answer.json()["error"]) < 200
