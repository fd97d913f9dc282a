"""The lag of a job without a process that watches it, such as one that was detached."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from freshet.job.errors import JobFailed
from freshet.job.folder import run_file
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicInput, as_recorded
from freshet.job.lifecycle.job_state import RUNNING, JobState
from freshet.job.lifecycle.lag_file import Noted, read_lag
from freshet.job.run.source_kinds import TopicSource
from freshet.job.run.sources import Sources
from freshet.job.run.watching import Lag
from freshet.job.status import asked_lag, report
from freshet.job.status.asked_lag import AskedLag
from freshet.job.status.page import page

TOPIC = TopicInput(source=1, bootstrap="moved:1", topic="t", start={0: 10, 1: 5})
NAME = "kafka://h:1/t"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_lag, "ANSWER_S", 60.0)  # which a thread needs on a busy machine


def noted(out: Path, *specs: TopicInput, **properties: str) -> dict[str, Any]:
    """Note where the topics of a job begin, as it does that submits it; return what `run.json` says."""
    given = ClientProperties({name.replace("_", "."): value for name, value in properties.items()})
    Lag(out, Sources(topics=tuple(TopicSource(one, NAME, given) for one in specs)))
    return {"sources": ["a.jsonl", NAME], "topics": as_recorded(specs)}


def test_the_brokers_are_asked_where_no_process_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = noted(tmp_path, TOPIC, security_protocol="SSL", ssl_truststore_location="ca.pem", client_id="${ME}")
    assert read_lag(tmp_path, 0) is None
    asked: list[tuple[Any, Mapping[str, str]]] = []

    def ask(one: Noted, topic: Mapping[str, Any]) -> dict[int, int]:
        asked.append((topic["bootstrap"], one.get("kafka", {})))
        return {0: 30, 1: 5 + len(asked)}

    monkeypatch.setattr(asked_lag, "FRESH_S", 600.0)
    lag = AskedLag(ask)
    assert lag.read(tmp_path, run, 0) == ({"0": 20, "1": 1}, None)
    assert lag.read(tmp_path, run, 0) == ({"0": 20, "1": 1}, None)
    settings = {"security.protocol": "SSL", "ssl.truststore.location": "ca.pem", "client.id": "${ME}"}
    assert asked == [("moved:1", settings)], "once in some seconds, where the brokers are now"
    monkeypatch.setattr(asked_lag, "FRESH_S", 0.0)
    assert lag.read(tmp_path, run, 0) == ({"0": 20, "1": 2}, None)


def test_of_a_job_that_has_ended_the_brokers_say_what_came_since(tmp_path: Path) -> None:
    run = noted(tmp_path, TOPIC.model_copy(update={"end": {0: 30, 1: 9}}))
    lag = AskedLag(lambda *_: {0: 180, 1: 9, 2: 4})
    assert lag.read(tmp_path, run, 0) == ({"0": 20, "1": 4}, None), "while it runs, up to its ends"
    assert lag.read(tmp_path, run | {"state": "finished"}, 0)[0] != {"0": 150, "1": 0, "2": 4}, "asked a moment ago"
    ended = AskedLag(lambda *_: {0: 180, 1: 9, 2: 4})
    assert ended.read(tmp_path, run | {"state": "finished"}, 0) == ({"0": 150, "1": 0, "2": 4}, None)


def test_why_it_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(_one: Noted, _topic: object) -> dict[int, int]:
        text = "no broker"
        raise JobFailed(text)

    assert AskedLag(ask).read(tmp_path, {}, 0) == (None, "no process has noted yet where the input begins")
    run = noted(tmp_path, TOPIC)
    assert AskedLag(ask).read(tmp_path, run, 0) == (None, f"{NAME}: no broker")
    assert AskedLag(ask).read(tmp_path, {}, 0) == (None, f"{NAME}: run.json does not say where it is")
    monkeypatch.setattr(asked_lag, "ANSWER_S", 0.05)
    over = threading.Event()

    def late(_one: Noted, _topic: object) -> dict[int, int]:
        over.wait(60)
        return {}

    assert AskedLag(late).read(tmp_path, run, 0) == (None, f"{NAME}: its brokers have not answered within 0.05 s")
    over.set()


def test_secrets_are_neither_noted_nor_guessed(tmp_path: Path) -> None:
    secrets = {"sasl_jaas_config": 'x required username="u" password="hush";', "ssl_key_password": "hush too"}
    run = noted(tmp_path, TOPIC, sasl_mechanism="PLAIN", max_poll_records="7", **secrets)
    assert "hush" not in (tmp_path / "status" / "lag.json").read_text()
    why = f"{NAME}: its brokers want sasl.jaas.config, ssl.key.password, which no file of the job has"
    assert AskedLag(lambda *_: {0: 9}).read(tmp_path, run, 0) == (None, why)


def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    run = noted(tmp_path, TOPIC, sasl_jaas_config="${FRESHET_TEST_NO_SUCH_LOGIN}")
    lag, why = AskedLag().read(tmp_path, run, 0)
    assert lag is None
    assert why is not None
    assert "sasl.jaas.config: the environment variable FRESHET_TEST_NO_SUCH_LOGIN is not set" in why


def test_a_status_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_file.update_run(tmp_path, state="running", **noted(tmp_path, TOPIC))
    state = JobState(RUNNING, "RUNNING on the cluster c:1, without a client", run_file.read_run(tmp_path))
    monkeypatch.setattr(report, "state_of", lambda _out: state)
    for answer, shown in (({0: 30, 1: 5}, "lag         20  (0: 20, 1: 0)"), (JobFailed("gone"), "lag         -  (")):

        def ask(*_: object, answer: Any = answer) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(report, "lag_asker", lambda _out, ask=ask: AskedLag(ask))
        found = report.report(tmp_path)
        assert (found["lag_total"] is None) == (found["lag_unknown"] is not None)
        assert shown in page(tmp_path, found)
