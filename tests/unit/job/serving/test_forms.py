"""Fields of requests: what is unknown, twice, or of another type is refused by name; ids may be strings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from freshet.job.commands import query
from tests.support.serving.hand_job import WIDTH
from tests.support.serving.served import Served

BIG = 2**53 + 1  # JavaScript reads it as 2**53


@pytest.fixture(scope="module", params=["int", "string"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served") / "O", request.param)
    one.hand.names = {BIG: str(BIG), BIG - 1: str(BIG - 1)}
    one.hand.apply(2, ({BIG: 5.0, BIG - 1: 6.0}, []))
    one.until(2)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/embeddings/2?min_epoc=1", "min_epoc: no such field; did you mean min_epoch?"),
        ("/embeddings/2?as_of_ms=1", "as_of_ms: no such field; expected generation, id, ids_as, kind, min_epoch"),
        ("/embeddings/2?MIN_EPOCH=1", "MIN_EPOCH: no such field; did you mean min_epoch?"),
        ("/embeddings/2?min_epoch=1&min_epoch=2", "min_epoch: expected it once"),
        ("/embeddings?id=2&id=3", "id: expected it once, got '2' and '3'"),
        ("/embeddings/2?id=3", "id: expected it once, got '2' and '3'"),
        ("/embeddings", "id: expected it, got none"),
        ("/embeddings/2?min_epoch=", "min_epoch: "),
        ("/embeddings/2?min_epoch", "min_epoch: "),
        ("/embeddings/2?min_epoch=1_0", "min_epoch: "),
        ("/embeddings/2?min_epoch=%2B1", "min_epoch: "),
        ("/embeddings/2?min_epoch=1.0", "min_epoch: "),
        ("/embeddings/2?min_epoch=%D9%A3", "min_epoch: "),
        ("/embeddings/2?min_epoch=99999999999999999999", "min_epoch: "),
        ("/embeddings/2?timeout=nan", "timeout: "),
        ("/embeddings/2?timeout=61", "timeout: "),
        ("/embeddings/2?min_position=", "min_position: expected PARTITION:OFFSET"),
        ("/embeddings/2?min_position=41000", "min_position: expected PARTITION:OFFSET"),
        ("/embeddings/2?min_position=0:x", "min_position: expected PARTITION:OFFSET"),
        ("/embeddings/2?min_position=0:1&min_position=0:2", "min_position: expected one offset for partition 0"),
        ("/embeddings/2?ids_as=text", "ids_as: "),
        ("/healthz?stale=ok", "stale: no such field"),
        ("/readyz?stal=ok", "stal: no such field; did you mean stale?"),
        ("/readyz?stale=ok%20", "stale: "),
        ("/readyz?stale=ok&stale=ok", "stale: expected it once"),
        ("/metrics?name=x", "name: no such field; expected none here"),
        ("/openapi.json?x", "x: no such field"),
        ("/embeddings?id=%ff", "the URL: expected UTF-8"),
    ],
)
def test_a_query_is_read_strictly(served: Served, path: str, said: str) -> None:
    answer = served.http.get(path)
    assert (answer.status_code, answer.json()["kind"]) == (422, "bad-request"), answer.text
    assert said in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/embeddings", '{"ids": [], "min_epoc": 1}', "min_epoc: no such field; did you mean min_epoch?"),
        ("/embeddings", '{"ids": [], "as_of_ms": 1}', "as_of_ms: no such field"),
        ("/embeddings", '{"ids": [], "ids": [2]}', "ids: expected it once, got it 2 times"),
        ("/embeddings", '{"ids": [], "min_position": {"0": 1, "0": 2}}', "0: expected it once"),
        ("/embeddings", '{"ids": "2"}', "ids: "),
        ("/embeddings", '{"ids": [], "min_epoch": "1"}', "min_epoch: "),
        ("/embeddings", '{"ids": [], "min_epoch": true}', "min_epoch: "),
        ("/embeddings", '{"ids": [], "min_epoch": 1.0}', "min_epoch: "),
        ("/embeddings", '{"ids": [], "timeout": "1"}', "timeout: "),
        ("/embeddings", '{"ids": [], "timeout": NaN}', "NaN is no number of JSON"),
        ("/embeddings", '{"ids": [], "min_position": {"0": "1"}}', "min_position.0: "),
        ("/embeddings", "[]", "a request: "),
        ("/embeddings?min_epoch=5", '{"ids": []}', "min_epoch: no such field; expected none here"),
        ("/nearest", '{"id": 2, "K": 3}', "K: no such field"),
        ("/nearest", '{"id": 2, "metrics": "dot"}', "metrics: no such field; did you mean metric?"),
        ("/nearest", '{"id": 2, "k": "3"}', "k: "),
        ("/get-online-features", '{"entities": {"id": []}, "feature": ["a:b"]}', "did you mean features?"),
        ("/get-online-features", '{"entities": {"id": [2], "user": [3]}}', "entities: "),
    ],
)
def test_a_body_is_read_strictly(served: Served, path: str, body: str, said: str) -> None:
    answer = served.http.post(path, content=body)
    assert (answer.status_code, answer.json()["kind"]) == (422, "bad-request"), answer.text
    assert said in answer.json()["error"]


@pytest.mark.parametrize(
    ("ticket", "said"),
    [
        (b'{"ids": [], "min_epoc": 1}', "min_epoc: no such field; did you mean min_epoch?"),
        (b'{"all": true, "as_of_ms": 1}', "as_of_ms: no such field"),
        (b'{"ids": [], "ids": []}', "ids: expected it once"),
        (b'{"ids": [], "all": true}', "expected one of"),
        (b'{"all": true, "min_epoch": "1"}', "min_epoch: "),
        (b'{"nearest": {"id": 2, "kk": 3}}', "nearest.kk: no such field; did you mean k?"),
        (b'{"changes": true, "min_epoch": 3}', "min_epoch: does not go with changes"),
        (b'{"all": 1}', "all: "),
        (b'{"min_epoch": 1}', "expected one of"),
    ],
)
def test_a_ticket_is_read_strictly(served: Served, ticket: bytes, said: str) -> None:
    with flight.connect(f"grpc://127.0.0.1:{served.port}") as client:
        with pytest.raises(flight.FlightServerError, match="bad-request") as caught:
            client.do_get(flight.Ticket(ticket)).read_all()
    assert said in str(caught.value)


def test_a_lookup_stream_is_read_strictly(served: Served) -> None:
    ids = pa.record_batch({"id": ["v2"] if served.hand.kind == "string" else [2]})
    with flight.connect(f"grpc://127.0.0.1:{served.port}") as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"{}"))
        writer.begin(ids.schema)
        writer.write_with_metadata(ids, b'{"min_epoc": 1}')
        told = orjson.loads(reader.read_chunk().app_metadata.to_pybytes())
        assert told["kind"] == "bad-request" and "did you mean min_epoch?" in told["error"]
        writer.write_batch(ids)
        assert "epoch" in orjson.loads(reader.read_chunk().app_metadata.to_pybytes()), "the stream goes on"
        writer.close()
        with pytest.raises(flight.FlightServerError, match="logit: no such field; did you mean logits"):
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b'{"logit": true}'))
            writer.begin(ids.schema)
            reader.read_chunk()
        with pytest.raises(flight.FlightServerError, match="min_epoch: no such field; expected none here"):
            list(client.do_action(flight.Action("health", b'{"min_epoch": 1}')))


def test_a_query_has_positions_as_a_body_has(served: Served) -> None:
    upto = served.health.figures()["positions"][0]["next_offset"]
    for asked in (f"min_position=0:{upto - 1}", f"min_position={served.lookup.job.sources[0]}:0:{upto - 1}"):
        assert get(served, 2, asked).status_code == 200, asked
    late = get(served, 2, f"min_position=0:{upto}&timeout=0.05")
    assert (late.status_code, late.json()["kind"]) == (504, "not-yet")
    assert f"expected offset {upto} of partition 0" in late.json()["error"]
    for wrong, said in (("other:0:1", "none of the sources"), ("%D9%A3:1", "expected PARTITION")):
        answer = get(served, 2, f"min_position={wrong}")
        assert answer.status_code == 400 and said in answer.json()["error"], "as POST says it"


def test_a_number_of_a_query_is_one_of_json(served: Served) -> None:
    assert get(served, 2, "timeout=1e1&min_epoch=2").status_code == 200


def test_a_kind_of_a_server_without_kinds_is_refused(served: Served) -> None:
    answer = get(served, 2, "kind=user")
    assert (answer.status_code, answer.json()["kind"]) == (400, "bad-request")
    assert "one kind, which has no name, got 'user'; leave it out" in answer.json()["error"]


def test_neighbours_wait_as_rows_do(served: Served) -> None:
    asked = {"vector": [1.0] * WIDTH, "k": 1}
    late = served.http.post("/nearest", json=asked | {"min_epoch": 10**6, "timeout": 0.02})
    assert (late.status_code, late.json()["kind"]) == (504, "not-yet")
    assert served.http.post("/nearest", json=asked | {"min_epoch": 2}).status_code == 200


def get(served: Served, number: int, query: str) -> Any:
    name = f"v{number}" if served.hand.kind == "string" else number
    return served.http.get(f"/embeddings/{name}?{query}")


def test_ids_go_in_and_come_out_as_strings(served: Served) -> None:
    big, none, strings = str(BIG), str(BIG + 50), served.hand.kind == "string"
    as_stored = str if strings else int
    one = served.http.get(f"/embeddings/{big}?ids_as=string").json()
    assert (one["id"], one["embedding"]) == (big, [5.0] * WIDTH)
    assert served.http.get(f"/embeddings/{big}").json()["id"] == as_stored(big)
    asked: dict[str, Any] = {"ids": [big, none]}
    for more, as_asked in (({}, as_stored), ({"ids_as": "string"}, str)):
        many = served.http.post("/embeddings", json=asked | more).json()
        assert [(row["id"], row["embedding"]) for row in many["found"]] == [(as_asked(big), [5.0] * WIDTH)]
        assert many["unknown"] == [none], "as it was asked for"
    near = served.http.post("/nearest", json={"id": big, "k": 5, "metric": "dot", "ids_as": "string"}).json()
    assert [row["id"] for row in near["found"]][:2] == [str(BIG - 1), big]
    feast = served.http.post("/get-online-features", json={"entities": {"id": [big, none]}}).json()
    assert feast["results"][0]["values"] == [big, none]
    assert feast["results"][1]["statuses"] == ["PRESENT", "NOT_FOUND"]
    with flight.connect(f"grpc://127.0.0.1:{served.port}") as client:
        for ticket in ({"ids": [big]}, {"nearest": {"id": big, "k": 2, "metric": "dot"}}):
            table = client.do_get(flight.Ticket(orjson.dumps(ticket))).read_all()
            assert as_stored(big) in table["id"].to_pylist()


@pytest.mark.parametrize(
    "id_", ["7.0", " 7", "7 ", "+7", "٧", "1_0", "007", "-0", "0x7", "", "9223372036854775808", "1e3", 7.0, True, None]
)
def test_what_is_no_id_is_refused(served: Served, id_: Any) -> None:
    answer = served.http.post("/embeddings", json={"ids": [id_]})
    if isinstance(id_, str) and served.hand.kind == "string":
        assert answer.json()["unknown"] == [id_], "any text is an id there"
        return
    assert (answer.status_code, answer.json()["kind"]) == (400, "bad-request")
    assert "ids: expected" in answer.json()["error"]
    if isinstance(id_, str):
        assert served.http.get("/embeddings", params={"id": id_}).status_code == 400


@pytest.mark.parametrize(
    ("given", "asked"),
    [("7", [7]), ("-7", [-7]), ("007", ["007"]), ("٧", ["٧"]), ("+7", ["+7"]), ("a", ["a"])],
)
def test_query_asks_for_an_integer_only_where_it_is_written_as_one(given: str, asked: list[int | str]) -> None:
    class Client:
        def get(self, ids: list[int | str], **_: object) -> list[int | str]:
            return ids

    assert query.rows_of(Client(), [given], 0) == asked


def test_an_integer_is_no_string(served: Served) -> None:
    answer = served.http.post("/embeddings", json={"ids": [BIG]})
    if served.hand.kind == "string":
        assert answer.status_code == 400 and f"expected strings, got '{BIG}' (int)" in answer.json()["error"]
    else:
        assert answer.json()["found"][0]["id"] == BIG


def test_the_description_has_the_fields_that_are_read(served: Served) -> None:
    paths = served.http.get("/openapi.json").json()["paths"]
    for path in ("/embeddings", "/embeddings/{id}"):
        fields = {one["name"]: one for one in paths[path]["get"]["parameters"]}
        assert fields.keys() == {"generation", "id", "ids_as", "kind", "min_epoch", "min_position", "timeout"}
        assert (fields["id"]["in"], fields["id"]["required"]) == ("path" if "{id}" in path else "query", True)
        assert fields["min_position"]["schema"]["type"] == "array"
    body = paths["/embeddings"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert body.keys() == {"generation", "ids", "ids_as", "kind", "min_epoch", "min_position", "timeout"}
    assert [one["name"] for one in paths["/readyz"]["get"]["parameters"]] == ["stale"]
