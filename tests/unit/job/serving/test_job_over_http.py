"""Status, last hour, rejected records and times of epochs over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from freshet.job.folder import run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.serving.doors.http_front import as_json
from freshet.job.serving.view.sampler import Sampler
from freshet.job.status.report import report
from freshet.operators.parser.letter_box import DeadLetter, DeadLetterFile, LetterBox
from tests.support.serving.served import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("job") / "O", "int")
    run_file.update_run(one.hand.out, state=run_file.STOPPED, parts=2, runtime="local", started_ms=1)
    letters = DeadLetterFile(one.hand.out / "dead_letters.jsonl")
    letters.write(DeadLetter(f"x: expected 8 numbers, got {k}", "events.jsonl", 0, k, b"{}") for k in range(30))
    LetterBox(letters, one.hand.out, "partitioner").report({"x: expected 8 numbers": 30}, read=90)
    yield one
    one.close()


def got(served: Served, path: str, status: int = 200) -> Any:
    answer = served.http.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_the_status_is_that_of_the_command(served: Served) -> None:
    found = got(served, "/v1/status")
    expected = orjson.loads(as_json(report(served.hand.out)))
    changing = {"checkpoint_age_s"}
    assert list(found) == list(expected)
    assert {name: found[name] for name in found.keys() - changing} == {
        name: expected[name] for name in expected.keys() - changing
    }
    assert (found["state"], found["rejected"]) == ("stopped", 30)


def test_rejected_records(served: Served) -> None:
    found = got(served, "/v1/rejected")
    assert [one["offset"] for one in found["letters"]] == list(range(29, 9, -1))
    assert found["letters"][0]["reason"] == "x: expected 8 numbers"
    assert (found["rejected"], found["reasons"]) == (30, {"x: expected 8 numbers": 30})
    assert len(got(served, "/v1/rejected?limit=3")["letters"]) == 3
    for wrong in ("limit=0", "limit=201", "limit=x", "most=3"):
        assert got(served, f"/v1/rejected?{wrong}", 422)["kind"] == "bad-request"


def test_records_that_go_to_a_topic_are_not_here(served: Served) -> None:
    out, settings = served.hand.out, served.hand.settings
    saved = SavedJob.read(out)
    assert saved is not None
    to_topic = replace(settings, letters=replace(settings.letters, target="kafka://one:9092/letters"))
    replace(saved, settings=to_topic).write(out)
    try:
        found = got(served, "/v1/rejected", 404)
        assert found == {
            "error": "rejected records are in the topic kafka://one:9092/letters, not in a file: read them there",
            "kind": "no-job",
        }
    finally:
        saved.write(out)


def test_the_last_hour(served: Served) -> None:
    now = [1000.0]
    sampler = Sampler(served.lookup, served.health, lambda: now[0])
    for _ in range(5):
        sampler.take()
        now[0] += 1
    found = got(served, "/v1/history")
    assert (found["every_s"], found["seconds"]) == (1.0, 3600)
    times = [one["time_ms"] for one in found["samples"]]
    assert times == [1_000_000, 1_001_000, 1_002_000, 1_003_000, 1_004_000]
    assert found["samples"][-1]["rejected"] == 30
    assert got(served, "/v1/history?since_ms=1003000")["samples"] == found["samples"][-1:]
    assert got(served, "/v1/history?since_ms=-1", 422)["kind"] == "bad-request"


def test_the_server(served: Served) -> None:
    found = got(served, "/v1/server")
    assert (found["feed"], found["job_here"], found["letters_here"]) == ("job", True, True)
    assert found["kinds"] == [
        {"kind": "", "epoch": 1, "vertices": 3, "width": 4, "classes": 3, "some_ids": ["2", "3", "4"]}
    ]


def test_times_of_an_epoch(served: Served) -> None:
    assert got(served, "/v1/epochs/1") == {"epoch": 1, "arrived_ms": 1, "event_ts": None}
    assert got(served, "/v1/epochs/x", 422)["kind"] == "bad-request"
    assert got(served, "/v1/epochs/1?kind=user", 400)["kind"] == "bad-request"


def test_without_a_job_there_is_no_status(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(served.lookup), "folder", tmp_path / "elsewhere" / "tables")
    for path in ("/v1/status", "/v1/rejected"):
        found = got(served, path, 404)
        assert found["kind"] == "no-job"
        assert str(tmp_path) in found["error"]
    assert got(served, "/v1/server")["job_here"] is False
