"""The embeddings of a snapshot in the topic: all of them, once, and noted when the brokers have them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from freshet.job.errors import JobFailed, UsageError
from freshet.job.folder import layout
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicOutput
from freshet.job.options.config_file import load_run_config
from freshet.job.run import topic_start
from freshet.job.run.outputs import Outputs
from freshet.job.run.resume import _with_former_options
from freshet.job.run.topic_start import put_start
from freshet.operators.settings import OutletConfig
from tests.support.kafka.records import parse
from tests.support.serving.hand_job import WIDTH, HandJob


class Client:
    """Takes two messages at a time, and acknowledges them when it is polled; `error` fails them."""

    def __init__(self, error: Any = None) -> None:
        self.error, self.held, self.taken = error, [], {}

    def produce(self, topic: str, value: bytes, key: bytes, on_delivery: Any, headers: Any = None) -> None:
        if len(self.held) == 2:
            raise BufferError
        self.headers = headers
        self.held.append((key, value, on_delivery))

    def poll(self, seconds: float) -> None:
        for key, value, report in self.held if seconds else ():
            if self.error is None:
                self.taken[key] = value
            report(self.error, None)
        if seconds:
            self.held = []

    def flush(self, seconds: float) -> int:
        self.poll(seconds)
        return len(self.held)

    def purge(self) -> None:
        self.held = []


@pytest.mark.parametrize("kind", ["int", "string"])
def test_once(tmp_path, monkeypatch, kind):
    hand = HandJob(tmp_path / "O", kind)
    hand.apply(0, ({2: 1.0, 3: -2.0}, []), ({4: 3.0}, []))
    hand.close()
    settings = SimpleNamespace(outlet=OutletConfig(model_tag="m0"))
    job: Any = SimpleNamespace(
        settings=settings, outputs=Outputs(TopicOutput(bootstrap="h:1", topic="t", mark="j all"))
    )
    for error in (KafkaError(KafkaError._MSG_TIMED_OUT), None):
        client = Client(error)
        monkeypatch.setattr(topic_start, "producer_to", lambda *_, client=client: client)
        if error is not None:
            with pytest.raises(JobFailed, match=r"^embeddings-from-start: .*--resume latest"):
                put_start(job, ClientProperties(), hand.out)
            assert not (hand.out / layout.IN_TOPIC).exists()
            continue
        for _ in range(2):
            put_start(job, ClientProperties(), hand.out)
            found = {key: parse(value) for key, value in client.taken.items()}
            name = "v" if kind == "string" else ""
            assert {key.decode(): record["embedding"].tolist() for key, record in found.items()} == {
                f"{name}2": [1.0] * WIDTH,
                f"{name}3": [-2.0] * WIDTH,
                f"{name}4": [3.0] * WIDTH,
            }
            assert {(record["epoch"], record["model"]) for record in found.values()} == {(0, "m0")}
            assert client.headers == [("job", b"j all")]
            monkeypatch.setattr(topic_start, "producer_to", lambda *_: pytest.fail("it is there already"))


def test_where_it_does_not_belong(tmp_path):
    flags = {"model": "M", "events": ["changes.jsonl"], "out": "O", "embeddings_from_start": True}
    with pytest.raises(UsageError, match="goes with --embeddings-to"):
        load_run_config(flags)
    config = load_run_config(flags | {"embeddings_to": "kafka://h:1/t", "resume": "latest"})
    saved: Any = SimpleNamespace(runtime="flink", options={"embeddings_to": "kafka://h:1/t"})
    with pytest.raises(UsageError, match="began without it"):
        _with_former_options(config, saved)
    again = _with_former_options(config, SimpleNamespace(runtime="flink", options={"embeddings_from_start": True}))
    assert again.embeddings_from_start
