"""What a job still has before it: records of files, messages of topics."""

import threading
from pathlib import Path

from job.errors import JobFailed
from job.kafka.client import ClientProperties
from job.kafka.topic_specs import TopicInput
from job.run.lag import Lag
from operators.parser.core import Origin, Parser
from operators.parser.topic_stage import MessageStage, TopicMessage
from tests.support.batches import batch_of

TOPIC = TopicInput(source=0, bootstrap="h:1", topic="t", start={0: 10, 1: 5})


def read(out: Path, *messages: tuple[int, int]) -> None:
    stage = MessageStage(Parser(1), Origin(0, str(TOPIC.address)), None, 1000, out)
    stage.parse(batch_of(TopicMessage(partition, offset, b"") for partition, offset in messages))


def test_of_files() -> None:
    with Lag(Path(), 100, (), ClientProperties()) as lag:
        assert [lag.of(events) for events in (0, 40, 100, 120)] == [100, 60, 0, 0]


def test_of_a_topic_that_ends(tmp_path: Path) -> None:
    bounded = TOPIC.model_copy(update={"end": {0: 30, 1: 5}})
    lag = Lag(tmp_path, 0, [bounded], ClientProperties())
    assert lag.of(0) == 20
    read(tmp_path, (0, 11))
    assert lag.of(0) == 18


def test_of_a_topic_that_grows(tmp_path: Path) -> None:
    """A partition may be new; brokers may be away."""
    answers = [{0: 20, 1: 6}, {0: 30, 1: 6, 2: 3}]
    asked = threading.Event()

    def ask(topic: TopicInput, properties: ClientProperties) -> dict[int, int]:
        if answers:
            return answers.pop(0)
        asked.set()
        raise JobFailed("no broker")

    lag = Lag(tmp_path, 0, [TOPIC, TOPIC.model_copy(update={"source": 1})], ClientProperties(), ask)
    assert lag.of(0) is None, "not known yet"
    with lag:
        assert asked.wait(10.0)
    assert lag.of(0) == (10 + 1) + (20 + 1 + 3)
    read(tmp_path, (0, 14), (1, 5))
    assert lag.of(0) == 5 + (15 + 3)
