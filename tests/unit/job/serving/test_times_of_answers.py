"""Times that answers say: of the epoch that they are of, and over Feast those of the epochs of rows."""

from __future__ import annotations

import time
from typing import Any

from fastapi.testclient import TestClient

from freshet.job.serving.doors.http_front import Front
from freshet.job.serving.doors.http_server import make_app
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.tables.compaction import compact_log
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import CurrentTable, JobHere
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.control import LAST
from tests.support.serving.served import Served


def test_answers_and_rows_have_the_times_of_their_epochs(tmp_path):
    """An answer those up to its epoch, a row those of its own; also after a start from the change log, and a base."""
    one = Served(tmp_path / "O", "int")

    def times(http: Any) -> tuple[Any, ...]:
        feast = http.post("/get-online-features", json={"entities": {"id": [2, 3, 4, 99]}, "features": ["v:epoch"]})
        told = feast.json()["metadata"]
        moments = feast.json()["results"][1]["event_timestamps"]
        return told["as_of"], told["as_of_ms"], told["event_ts"], [one[17:-1] for one in moments]

    try:
        one.hand.apply(2, ({3: 1.0}, []), event_ts=5_000, last_arrival_ms=200)
        one.hand.apply(3, ({}, []), ({4: 1.0}, []), event_ts=3_000, last_arrival_ms=300)
        one.until(3)
        expected = 3, 300, 5_000, ["00.001", "05.000", "03.000", "00.000"]
        assert times(one.http) == expected
        with one.client("flight") as client, one.client("mapped") as mapped:
            for table in (
                client.get([2]),
                client.all(),
                client.nearest(2),
                mapped.get([2]),
                client.get([2], min_epoch=3),
            ):
                assert table.schema.metadata == {b"epoch": b"3", b"as_of_ms": b"300", b"event_ts": b"5000"}
        one.hand.apply(4, ({}, []), events=0, last_arrival_ms=0)
        one.until(4)
        assert times(one.http) == (4, *expected[1:]), "an epoch without events has the times before it"
        one.hand.apply(5, ({2: 5.0}, []), last_arrival_ms=500, flags=LAST)
        one.until(5)
        expected = 5, 500, 5_000, ["00.500", *expected[-1][1:]]
        assert times(one.http) == expected
    finally:
        one.close()
    for compacts in (False, True):
        if compacts:
            compact_log(one.hand.out, 0, time.time() + 1e6)
        job = ServedJob.read(one.hand.out)
        assert job is not None
        follower = Follower(job, one.hand.out / "tables", 1 << 20)
        follower.start()
        lookup = Lookup(CurrentTable(one.hand.out / "tables", JobHere.of(job)))
        health = Health(lookup)
        assert times(TestClient(Front(health, None, make_app(lookup, health)))) == expected
        follower.close(forget=True)


def test_the_description_of_answers_has_what_they_say(tmp_path):
    one = Served(tmp_path / "O", "int")
    described = one.http.get("/openapi.json").json()
    one.close()
    schemas = described["components"]["schemas"]
    answers = [("/embeddings/{id}", "get"), ("/embeddings", "post"), ("/nearest", "post"), ("/score", "post")]
    for path, way in answers:
        for prefix in ("", "/v1"):
            found = described["paths"][prefix + path][way]["responses"]["200"]["content"]["application/json"]["schema"]
            answer = schemas[found["$ref"].rpartition("/")[2]]
            assert {"as_of", "as_of_ms", "event_ts"} <= set(answer["required"])
    assert schemas["FeatureColumns"]["properties"]["metadata"]["$ref"].endswith("/FeatureNames")
    assert {"as_of", "as_of_ms", "event_ts"} <= set(schemas["FeatureNames"]["required"])
