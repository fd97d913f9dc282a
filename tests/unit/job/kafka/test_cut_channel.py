"""How the operator that writes the cut log reaches its brokers: by the job's settings, whose secrets it alone has."""

from __future__ import annotations

import json

import pytest

from freshet.job.errors import UsageError
from freshet.job.flink.dataflow import with_secrets
from freshet.job.flink.job_spec import JobSpec
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.cut_channel import CarriedProperties, secrets_of

GIVEN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'x.PlainLoginModule required username="u" password="${CUTS_SECRET}";',
}


def test_secrets_travel_beside_the_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTS_SECRET", "a ${b} c")
    secrets = secrets_of(ClientProperties(GIVEN))
    assert secrets == {"CUTS_SECRET": "a ${b} c"}
    monkeypatch.delenv("CUTS_SECRET")
    carried = CarriedProperties(GIVEN, secrets)
    assert carried.kafka_python()["sasl_plain_password"] == "a ${b} c"
    assert "${b}" not in repr(carried)
    with pytest.raises(UsageError, match="the environment variable CUTS_SECRET is not set"):
        secrets_of(ClientProperties(GIVEN))


def test_only_a_partitioner_whose_cut_log_is_a_topic_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTS_SECRET", "hidden")
    spec = JobSpec(out="O", layers=1, kafka_properties=GIVEN)
    beside = json.dumps({"stage": {"cuts": {"folder": "C", "topic": ""}}})
    assert with_secrets(spec, beside) == beside
    found = json.loads(with_secrets(spec, json.dumps({"stage": {"cuts": {"topic": "kafka://h:1/t"}}})))
    assert found["stage"]["cuts"]["secrets"] == {"CUTS_SECRET": "hidden"}
    assert found["stage"]["cuts"]["properties"] == GIVEN
    assert "hidden" not in spec.model_dump_json()
