"""What clients get over Flight, HTTP and from the mapped table: the same rows and refusals, never an older epoch."""

from __future__ import annotations

import asyncio
import threading
import time
import types
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet import AsyncEmbeddingClient, BadRequestError, EmbeddingClient, NotReadyError, NotYetError
from freshet.job.folder import run_file
from freshet.job.machine.ports import server_port
from freshet.job.serving.doors.http_front import BODY_BYTES_MAX
from freshet.job.serving.protocol import columns
from freshet.job.serving.tables import place
from freshet.job.serving.tables.health import Health
from tests.support.serving.hand_job import JOB_ID, WIDTH
from tests.support.serving.served import ANSWER_S, Served, key


@pytest.fixture(scope="module", params=["int", "string"])
def served(request, tmp_path_factory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served") / "O", request.param)
    yield one
    one.close()
    assert not list(place.SHM.glob(f"freshet-{JOB_ID}-*"))


@pytest.mark.parametrize("way", ["flight", "mapped"])
def test_rows_tables_and_neighbours(served, way):
    with served.client(way) as client:
        two, three, four, none = (key(served, number) for number in (2, 3, 4, 99))
        table = client.get([two, none, four])
        assert table.column_names == ["id", "epoch", "embedding"]
        assert table["id"].to_pylist() == [two, four]
        assert table["embedding"].to_pylist() == [[1.0] * WIDTH, [3.0] * WIDTH]
        epoch = client.epoch()
        assert table.schema.metadata == {b"epoch": str(epoch).encode(), b"as_of_ms": b"1"}
        ids, epochs, rows = found = client.rows([three, none])
        assert (list(ids), epochs.tolist(), rows.tolist(), found.epoch) == ([three], [1], [[-2.0] * WIDTH], epoch)
        assert [len(part) for part in client.rows([])] == [0, 0, 0]
        with_head = client.get([two], logits=True)
        expected = served.hand.plan.logits(np.full((1, WIDTH), 1.0, np.float32))
        assert np.array_equal(with_head["logits"].to_pylist(), expected)
        assert with_head["class"].to_pylist() == expected.argmax(1).tolist()
        assert set(client.all()["id"].to_pylist()) == {two, three, four}
        near = client.nearest(two, k=2, metric="dot")
        assert (near["id"].to_pylist(), near["score"].to_pylist()) == ([four, two], [12.0, 4.0])
        assert client.nearest(vector=[-1.0] * WIDTH, k=1)["id"].to_pylist() == [three]
        health = client.health()
        assert (health["ready"], health["job"], health["vertices"]) == (True, "running", 3)
        assert health["positions"][0]["next_offset"] == 10 * epoch


@pytest.mark.parametrize("way", ["flight", "mapped"])
def test_waiting_and_what_is_refused(served, way):
    with served.client(way) as client:
        two, epoch = key(served, 2), client.epoch()
        assert client.get([two], min_position={"0": 10 * epoch - 1}).num_rows == 1
        with pytest.raises(NotYetError, match=f"expected epoch {epoch + 9}, the newest complete one is {epoch}"):
            client.get([two], min_epoch=epoch + 9, timeout=0.05)
        with pytest.raises(NotYetError, match="rejected record"):
            client.get([two], min_position={"0": 10 * epoch}, timeout=0.05)
        with pytest.raises(BadRequestError, match="none of the sources"):
            client.get([two], min_position={"other:0": 1})
        with pytest.raises(BadRequestError, match=r"expected (strings|integers)"):
            client.get([2 if served.hand.kind == "string" else "2"])
        with pytest.raises(BadRequestError, match="one kind"):
            client.get([2, "2"])
        with pytest.raises(BadRequestError, match="100,000"):
            client.rows([two] * (EmbeddingClient.ids_max + 1))
        with pytest.raises(BadRequestError, match="k: expected"):
            client.nearest(two, k=0)
        assert client.get([two]).num_rows == 1, "a refusal ends nothing"


def test_a_reader_waits_for_what_is_written(served):
    epoch = served.lookup.table.epoch
    timer = threading.Timer(0.3, lambda: served.hand.apply(epoch + 1, ({2: 1.0}, [])))
    timer.start()
    with served.client("flight") as one, served.client("mapped") as other:
        for client in (one, other):
            found = client.rows([key(served, 2)], min_position={"0": 10 * (epoch + 1) - 1}, timeout=60)
            assert found.epoch == epoch + 1
            assert found[1].tolist() == [epoch + 1]
            none = client.rows([key(served, 99)], min_position={"0": 10 * (epoch + 1) - 1})
            assert (none.epoch, [len(part) for part in none]) == (epoch + 1, [0, 0, 0])
            assert client.get([key(served, 99)], min_position={"0": 0}).num_rows == 0
    timer.join()


@pytest.mark.parametrize("way", ["flight", "mapped"])
def test_calls_that_do_not_block(served, way):
    async def asked():
        address = f"127.0.0.1:{served.port}" if way == "flight" else served.hand.out / "tables"
        async with AsyncEmbeddingClient(address, timeout=ANSWER_S) as client:
            two, epoch = key(served, 2), await client.epoch()
            waiting = asyncio.create_task(client.rows([two], min_epoch=epoch + 1, timeout=60))
            tables = await asyncio.gather(*(client.get([two]) for _ in range(8)))
            assert not waiting.done(), "others are answered while one waits"
            assert {table["id"].to_pylist()[0] for table in tables} == {two}
            served.hand.apply(epoch + 1, ({2: 1.0}, []))
            assert (await waiting).epoch == epoch + 1
            assert (await client.health())["ready"]
            assert len(await client.all()) == len(await client.nearest(two, k=3)) == 3

    asyncio.run(asked())


def test_an_older_table_is_never_answered_from(served):
    with served.client("flight", timeout=0.2) as client:
        client.health()  # connected, for which a call with that little time may be too short
        client._seen = served.lookup.table.epoch + 5  # as if another server had been further
        with pytest.raises(NotYetError):
            client.rows([key(served, 2)])


def test_http(served):
    http, two, none = served.http, key(served, 2), key(served, 99)
    one = http.get(f"/embeddings/{two}").json()
    assert (one["id"], one["embedding"], one["as_of"]) == (two, [1.0] * WIDTH, served.lookup.table.epoch)
    assert one["class"] == int(np.argmax(one["logits"]))
    assert http.get(f"/embeddings/{none}").status_code == 404
    many = http.post("/embeddings", json={"ids": [two, none]}).json()
    assert ([row["id"] for row in many["found"]], many["unknown"]) == ([two], [none])
    asked = {"features": ["embeddings:embedding", "embeddings:epoch"], "entities": {"id": [two, none]}}
    feast = http.post("/get-online-features", json=asked).json()
    assert feast["metadata"]["feature_names"] == ["id", "embedding", "epoch"]
    assert [one["statuses"] for one in feast["results"][1:]] == [["PRESENT", "NOT_FOUND"]] * 2
    assert feast["results"][1]["values"] == [[1.0] * WIDTH, None]
    near = http.post("/nearest", json={"id": two, "k": 1}).json()
    assert len(near["found"]) == 1
    assert http.get("/readyz").status_code == 200
    assert "freshet_epoch" in http.get("/metrics").text
    assert http.get("/openapi.json").json()["info"]["title"] == "Freshet"
    assert [(each["as_of"], each["as_of_ms"], each["event_ts"]) for each in (one, many, near, feast["metadata"])] == [
        (served.lookup.table.epoch, 1, None)
    ] * 4
    late = http.post("/embeddings", json={"ids": [two], "min_epoch": 10**6, "timeout": 0.05})
    assert (late.status_code, late.json()["kind"]) == (504, "not-yet")


def test_every_id_is_found_by_every_interface(tmp_path):
    ids = ["http://example.org/a?b=c#d", "/", "a//b/", "", ".", "..", "../healthz", "a b+%", "é", "\n", "a\n", "7"]
    one = Served(tmp_path / "O", "string")
    try:
        one.hand.names = {100 + k: id_ for k, id_ in enumerate(ids)}
        one.hand.apply(2, ({100 + k: float(k) for k in range(len(ids))}, []))
        one.until(2)
        for k, id_ in enumerate(ids):
            path = quote(id_, safe="").replace(".", "%2E")  # clients leave dots out
            for found in (one.http.get(f"/embeddings/{path}"), one.http.get("/embeddings", params={"id": id_})):
                assert (found.status_code, found.json().get("id")) == (200, id_)
                assert found.json()["embedding"] == [float(k)] * WIDTH
        assert one.http.get("/embeddings/http://example.org/a%3Fb=c%23d").status_code == 200, "slashes as they are"
        assert one.http.get("/embeddings/none/at/all").json()["error"] == "no vertex 'none/at/all'"
        for path in ("/embeddings", "/embeddings/"):
            many = one.http.post(path, json={"ids": ids}, follow_redirects=False).json()
            assert ([row["id"] for row in many["found"]], many["unknown"]) == (ids, [])
        for way in ("flight", "mapped"):
            with one.client(way) as client:
                assert client.get(ids)["id"].to_pylist() == ids
                assert list(client.rows(["..", ""])[0]) == ["..", ""]
    finally:
        one.close()


def test_a_recorded_request_of_feast(served):
    """As Feast's remote online store asks; the answer as it reads it: by position, `PRESENT` or an empty value."""
    recorded = orjson.loads((Path(__file__).parents[3] / "data" / "feast" / "online_read.json").read_bytes())
    body = recorded["body"][served.hand.kind]
    answer = served.http.request(recorded["method"], recorded["path"], content=body, headers=recorded["headers"])
    assert answer.status_code == 200, answer.text
    assert "content-type" not in answer.request.headers
    told, wanted = answer.json(), orjson.loads(body)
    [(entity, ids)] = wanted["entities"].items()
    asked = [feature.partition(":")[2] for feature in wanted["features"]]
    assert told["metadata"]["feature_names"] == [entity, *asked]
    assert [len(one[part]) for one in told["results"] for part in one] == [len(ids)] * 3 * (1 + len(asked))
    for column in told["results"]:
        moments = [datetime.fromisoformat(one.replace("Z", "+00:00")) for one in column["event_timestamps"]]
        assert [1e3 * one.timestamp() for one in moments] == [1, 0, 1], "when the events of the epoch came"
    rows = [
        {
            name: column["values"][k] if column["statuses"][k] == "PRESENT" else None
            for name, column in zip(told["metadata"]["feature_names"], told["results"], strict=True)
            if name in asked
        }
        for k in range(len(ids))
    ]
    own = served.lookup.get(served.lookup.ids_of([ids[0], ids[2]])).epochs.tolist()
    nothing = {"embedding": None, "epoch": None}
    expected = [{"embedding": [value] * WIDTH, "epoch": epoch} for value, epoch in zip((1.0, 3.0), own, strict=True)]
    assert rows == [expected[0], nothing, expected[1]]


def test_bad_requests_over_http(served):
    http = served.http
    for path, body in (
        ("/embeddings", b"{"),
        ("/embeddings", b'{"ids": 5}'),
        ("/embeddings", b'{"ids": [1.5]}'),
        ("/embeddings", b'{"ids": [null]}'),
        ("/embeddings", b'{"ids": [], "more": 1}'),
        ("/nearest", b'{"k": 5}'),
        ("/nearest", b'{"vector": [1], "k": 1000000}'),
        ("/get-online-features", b"[]"),
    ):
        answer = http.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422), (path, body, answer.text)
    answer = http.post("/embeddings", content=b" " * (BODY_BYTES_MAX + 1))
    assert answer.status_code == 413
    assert http.get("/embeddings/..%2f..%2fetc%2fpasswd").status_code in (400, 404)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["ids", "all", "nearest", "min_epoch", "min_position", "timeout", "logits"])


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=20) | st.dictionaries(names, junk, max_size=4).map(lambda d: orjson.dumps(plain(d))))
def test_any_ticket_gets_an_answer_or_an_error(served, raw):
    raw = raw.replace(b'"timeout"', b'"logits"')  # none that would make it wait,
    raw = raw.replace(b'"changes":true', b'"changes":1')  # and not what other servers follow: that has no end
    client = flight.connect(f"grpc://127.0.0.1:{served.port}")
    try:
        table = client.do_get(flight.Ticket(raw), flight.FlightCallOptions(timeout=60)).read_all()
        assert "embedding" in table.column_names
    except (flight.FlightServerError, flight.FlightTimedOutError, pa.ArrowInvalid) as error:
        assert "bad-request" in str(error) or "not-yet" in str(error), error
    finally:
        client.close()


def plain(value):
    if isinstance(value, dict):
        return {str(k).encode("utf-8", "replace").decode(): plain(v) for k, v in value.items() if k != "min_epoch"}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value if not isinstance(value, int) or abs(value) < 2**60 else 0


def test_flights_are_listed(served):
    client = flight.connect(f"grpc://127.0.0.1:{served.port}")
    [info] = client.list_flights()
    assert info.total_records == 3
    assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 3
    with pytest.raises(flight.FlightServerError, match="expected health"):
        list(client.do_action(flight.Action("other", b"")))
    client.close()


def test_answers_come_in_batches_that_any_client_takes(served, monkeypatch):
    """A limit of 40 bytes has each row, of some 28, come in a batch of its own."""
    with served.client("flight") as client:
        asked = [key(served, number) for number in (2, 3, 4)]
        whole, few = client.all(), client.get(asked)
        monkeypatch.setattr(columns, "PIECE_BYTES", 40)
        assert client.all().equals(whole)
        assert client.get(asked).equals(few) and few.num_rows == 3
        assert client.rows(asked[:1])[0].tolist() == client.rows(asked)[0].tolist()[:1]
    connection = flight.connect(f"grpc://127.0.0.1:{served.port}")
    chunks = list(connection.do_get(flight.Ticket(b'{"all":true}')))
    assert [chunk.data.num_rows for chunk in chunks] == [1] * whole.num_rows
    writer, reader = connection.do_exchange(flight.FlightDescriptor.for_command(b"{}"))
    batch = pa.record_batch({"id": asked})
    writer.begin(batch.schema)
    for _ in range(2):
        writer.write_batch(batch)
        told = [orjson.loads(reader.read_chunk().app_metadata.to_pybytes()) for _ in asked]
        assert told[:-1] == [{"more": True}] * 2 and told[-1]["epoch"] == served.lookup.table.epoch
    writer.close()
    connection.close()


def test_a_lookup_that_is_interrupted_leaves_nothing_to_the_next_one(served, monkeypatch):
    def interrupted(_: object) -> object:
        raise KeyboardInterrupt

    first, second, third = (key(served, number) for number in (2, 3, 4))
    with served.client("flight") as client:
        client.get([first])
        monkeypatch.setattr(columns, "PIECE_BYTES", 40)
        with monkeypatch.context() as amid:
            its = types.SimpleNamespace(dumps=orjson.dumps, loads=interrupted)
            amid.setattr("freshet.job.serving.clients.flight_client.orjson", its)
            with pytest.raises(KeyboardInterrupt):
                client.get([first, second])
        assert client.get([third])["id"].to_pylist() == [third]


def test_a_token_is_asked_for(tmp_path):
    one = Served(tmp_path / "O", "int", token="secret")
    try:
        with one.client("flight", token="secret") as client:
            assert client.rows([2])[0].tolist() == [2]
        for wrong in (None, "other"):
            with one.client("flight", token=wrong) as client, pytest.raises(BadRequestError, match="authorization"):
                client.rows([2])
        assert one.http.get("/embeddings/2").status_code == 401
        assert one.http.get("/embeddings/2", headers={"authorization": "Bearer secret"}).status_code == 200
        assert one.http.get("/readyz").status_code == 200
    finally:
        one.close()


def test_a_silent_job_is_stale_and_one_that_ended_is_not(tmp_path):
    one = Served(tmp_path / "O", "int")
    try:
        health = Health(one.lookup, stale_after_s=2.0)
        run_file.update_run(one.hand.out, state=run_file.RUNNING)
        deadline = time.monotonic() + 60
        while health.figures()["job"] != "running":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        one.hand.close()  # its heart has stopped, and nobody has said that this is its end
        while (figures := health.figures())["ready"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert (figures["job"], figures["behind_s"] >= 2) == ("lost", True)
        assert "nothing was heard" in figures["reason"]
        assert one.lookup.get(one.lookup.ids_of([2])).epoch == 1, "what there is can be read"
        for state, said in ((run_file.STOPPED, "stopped"), (run_file.FINISHED, "ended")):
            run_file.update_run(one.hand.out, state=state)
            while (figures := health.figures())["job"] != said or not figures["ready"]:
                assert time.monotonic() < deadline
                time.sleep(0.05)
    finally:
        one.close()


def test_no_server_is_said(tmp_path):
    with EmbeddingClient(f"127.0.0.1:{server_port()}", timeout=0.2) as client, pytest.raises(NotReadyError):
        client.rows([1])
    with EmbeddingClient(tmp_path / "tables", timeout=0.1) as client, pytest.raises(NotReadyError, match="O/tables"):
        client.rows([1])
