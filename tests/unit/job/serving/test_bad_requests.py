"""Requests that nobody should send: a clear error each, no crash, and other clients do not notice."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.serving.hand_job import WIDTH
from tests.support.serving.served import Served, key
from tests.unit.job.serving.test_servers import junk, plain

POSTS = ("/embeddings", "/get-online-features", "/nearest")
ANSWER_S = 120.0  # for an answer, on a machine that is busy with other tests
LEFT_ALONE = [HealthCheck.function_scoped_fixture]
names = st.sampled_from(["ids", "entities", "features", "id", "vector", "k", "metric", "min_position", "timeout", "x"])
bodies = st.binary(max_size=30) | st.dictionaries(names, junk, max_size=4).map(lambda told: orjson.dumps(plain(told)))


@pytest.fixture(scope="module", params=["int", "string"])
def served(request, tmp_path_factory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served") / "O", request.param)
    yield one
    one.close()


def assert_unharmed(served: Served) -> None:
    two = key(served, 2)
    assert served.http.get(f"/embeddings/{two}").json()["embedding"] == [1.0] * WIDTH
    with served.client("flight", timeout=ANSWER_S) as client:
        assert client.rows([two])[2].tolist() == [[1.0] * WIDTH]


@settings(deadline=None, max_examples=150, suppress_health_check=LEFT_ALONE)
@given(
    st.sampled_from([*POSTS, *(f"/v1{path}" for path in POSTS)]),
    bodies,
    st.sampled_from(["application/json", "text/plain", "", "multipart/form-data", "application/x-www-form-urlencoded"]),
)
def test_any_body_over_http(served, path, body, kind):
    answer = served.http.post(path, content=body, headers={"content-type": kind} if kind else {})
    assert answer.json()
    late = answer.json().get("kind") == "not-yet"  # of a position that it names
    wrong = path.startswith("/v1") and kind in ("text/plain", "multipart/form-data")
    if path.startswith("/v1") and kind == "application/x-www-form-urlencoded":  # as curl says of any body
        wrong = not body.lstrip().startswith(b"{")
    expected = (504,) if late else (415,) if wrong else (200, 400, 404, 422)
    assert answer.status_code in expected, (path, body, answer.text)


@pytest.mark.parametrize(
    "path",
    [
        "/embeddings/--5",
        "/embeddings/-",
        "/embeddings/" + "9" * 5000,
        "/embeddings/%00",
        "/embeddings/%ff%fe",
        "/embeddings/%D9%A3",  # a digit, in Arabic
        "/embeddings/2/../../etc/passwd",
        "/embeddings/..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/docs/../../etc/passwd",
        "/embeddings/2?min_epoch=x",
        "/embeddings/2?timeout=1e9",
    ],
)
def test_paths(served, path):
    answer = served.http.get(path)
    assert answer.status_code in (400, 404, 422), (path, answer.status_code, answer.text)
    assert "root:" not in answer.text


columns = st.sampled_from(
    [
        pa.array([2, 3]),
        pa.array([2, None]),
        pa.array(["v2", "\u0000"]),
        pa.array([1.5]),
        pa.array([b"\xff"]),
        pa.array([[2]]),
        pa.array([2], pa.uint64()),
        pa.array([2**64 - 1], pa.uint64()),
        pa.array(["v2"], pa.large_string()),
        pa.array(["v2"]).dictionary_encode(),
        pa.array([], pa.int64()),
    ]
)
metadata = st.binary(max_size=12) | st.dictionaries(st.sampled_from(["min_position", "timeout", "logits"]), junk).map(
    lambda told: orjson.dumps(plain(told))
)


@settings(deadline=None, max_examples=80, suppress_health_check=LEFT_ALONE)
@given(columns, metadata, st.sampled_from(["id", "ID"]), st.binary(max_size=8) | st.just(b'{"logits":true}'))
def test_any_exchange(served, column, told, name, command):
    batch = pa.RecordBatch.from_arrays([column], [name])
    client = flight.connect(f"grpc://127.0.0.1:{served.port}")
    try:
        descriptor = flight.FlightDescriptor.for_command(command)
        writer, reader = client.do_exchange(descriptor, flight.FlightCallOptions(timeout=ANSWER_S))
        writer.begin(batch.schema)
        writer.write_with_metadata(batch, told)
        found = orjson.loads(reader.read_chunk().app_metadata.to_pybytes())
        assert "epoch" in found or found["kind"] in ("bad-request", "not-yet"), found
    except (flight.FlightError, pa.ArrowException) as error:
        assert "bad-request" in str(error), error
    finally:
        client.close()


def test_nobody_was_harmed(served):
    assert_unharmed(served)


@pytest.mark.parametrize(
    "header", [b"", b"Bearer", b"Bearer secre", b"Bearer secret2", b"Basic secret", b"Bearersecret", b"\xc3\xa9"]
)
def test_wrong_tokens(tmp_path, header):
    one = Served(tmp_path / "O", "int", token="secret")
    try:
        client = flight.connect(f"grpc://127.0.0.1:{one.port}")
        headers = [(b"authorization", header)] if header.isascii() and header else []
        options = flight.FlightCallOptions(headers=headers, timeout=ANSWER_S)
        for call in (
            lambda: client.do_get(flight.Ticket(b'{"all":true}'), options).read_all(),
            lambda: client.do_get(flight.Ticket(b'{"changes":true}'), options).read_chunk(),
            lambda: list(client.do_action(flight.Action("model", b""), options)),
            lambda: list(client.do_action(flight.Action("job", b""), options)),
            lambda: list(client.list_flights(options=options)),
        ):
            with pytest.raises(flight.FlightUnauthenticatedError, match="authorization"):
                call()
        client.close()
        for path in ("/embeddings/2", "/metrics", "/openapi.json", "/no-such-path"):
            for prefix in ("", "/v1"):
                assert one.http.get(prefix + path, headers={"authorization": header}).status_code == 401
        for path in ("/readyz", "/v1/readyz"):
            assert (one.http.get(path).status_code, one.http.get(path).json()) == (200, {"ready": True})
    finally:
        one.close()


def test_a_client_that_stops_reading(tmp_path):
    """It holds what gRPC holds for it, and nobody else waits."""
    one = Served(tmp_path / "O", "int")
    try:
        one.hand.apply(2, ({number: 1.0 for number in range(10, 60_000)}, []))
        one.until(2)
        slow = flight.connect(f"grpc://127.0.0.1:{one.port}")
        standing = [slow.do_get(flight.Ticket(b'{"all":true}')) for _ in range(4)]
        standing += [slow.do_get(flight.Ticket(b'{"changes":true}')) for _ in range(4)]
        standing[0].read_chunk()
        with one.client("flight", timeout=ANSWER_S) as client:
            for _ in range(50):
                assert client.rows([2])[0].tolist() == [2], "the reader that waits has not read by then"
            one.hand.apply(3, ({2: 5.0}, []))
            assert client.rows([2], min_epoch=3)[2][0, 0] == 5.0, "the table goes on"
        rows = sum(chunk.data.num_rows for chunk in standing[1])
        assert rows == 59_993, "what it was answered from stands, at one epoch"
        for each in standing:
            each.cancel()
        slow.close()
    finally:
        one.close()
