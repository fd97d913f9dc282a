"""Where the cut log is: beside the checkpoints, or a topic where these are on another store."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.job.kafka import cut_topic
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.run.settings import cuts_of_new_job, cuts_of_resumed_job, cuts_of_run
from freshet.operators.epochs.config import CutLogConfig

JOB, NONE = "0123456789abcdef", ClientProperties()
TOPICS = [
    ("--events", KafkaAddress("one:9092", "events")),
    ("--embeddings-to", KafkaAddress("two:9092", "embeddings")),
]
OUT = Path("/O")
AWAY = cuts_of_run(CutLogConfig(), f"s3://bucket/{JOB}", OUT, by_flink=True)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the brokers."""
    asked: list[str] = []
    monkeypatch.setattr(cut_topic, "make_cut_topic", lambda address, *_: asked.append(f"made {address}") or "id-1")
    monkeypatch.setattr(
        cut_topic, "check_cut_topic", lambda address, topic_id, *_: asked.append(f"checked {address} {topic_id}")
    )
    return asked


def test_beside_checkpoints_in_a_folder(brokers: list[str]) -> None:
    here = cuts_of_run(CutLogConfig(), "/C/jobs", OUT, by_flink=True)
    assert here == CutLogConfig("/C/jobs/cuts", checkpoints="/C/jobs")
    assert cuts_of_new_job(here, TOPICS, NONE, JOB) is here
    assert not cuts_of_run(CutLogConfig(), "s3://bucket", OUT, by_flink=False).checkpoints_away
    assert brokers == []


def test_a_topic_of_the_first_brokers_where_they_are_on_another_store(brokers: list[str]) -> None:
    made = cuts_of_new_job(AWAY, TOPICS, NONE, JOB)
    assert (made.topic, made.topic_id) == (f"kafka://one:9092/freshet-cuts-{JOB}", "id-1")
    assert brokers == [f"made {made.topic}"]


def test_without_brokers_it_stays_here_with_a_warning(brokers: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cuts_of_new_job(AWAY, [], NONE, JOB) is AWAY
    assert "the cut log is in /O/checkpoints/cuts, on this one" in capsys.readouterr().err
    assert brokers == []


def test_a_job_keeps_its_kind(brokers: list[str]) -> None:
    assert cuts_of_resumed_job(AWAY, TOPICS, NONE, JOB, OUT) is AWAY, "of a job that began with a folder"
    made = cuts_of_new_job(AWAY, TOPICS, NONE, JOB)
    moved = [("--events", KafkaAddress("three:9092", "events"))]
    resumed = cuts_of_resumed_job(cuts_of_run(made, f"s3://other/{JOB}", OUT, by_flink=True), moved, NONE, JOB, OUT)
    assert resumed.topic == f"kafka://three:9092/freshet-cuts-{JOB}"
    assert cuts_of_resumed_job(made, [], NONE, JOB, OUT) == made
    assert brokers[1:] == [f"checked {resumed.topic} id-1", f"checked {made.topic} id-1"]
