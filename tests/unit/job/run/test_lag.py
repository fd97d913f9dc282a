"""What a job still has before it: records of files, messages of topics."""

import threading
from pathlib import Path

from freshet.job.errors import JobFailed
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicInput
from freshet.job.run.source_kinds import FileSource, TopicSource
from freshet.job.run.sources import Sources
from freshet.job.run.watching import Lag
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.files import Chunk
from freshet.operators.parser.messages import TopicMessage
from freshet.operators.parser.stages import MessageStage
from freshet.schema import Features
from tests.support.kafka.batches import batch_of

TOPIC = TopicInput(source=0, bootstrap="h:1", topic="t", start={0: 10, 1: 5})


def topics(*specs: TopicInput, name: str = "kafka://h:1/t") -> Sources:
    return Sources(topics=tuple(TopicSource(spec, name, ClientProperties()) for spec in specs))


def read(out: Path, *messages: tuple[int, int]) -> None:
    stage = MessageStage(Parser(Features(1)), Origin(0, "kafka://h:1/t"), None, 1000, out)
    stage.parse(batch_of(TopicMessage(partition, offset, b"") for partition, offset in messages))


def test_of_files(tmp_path: Path) -> None:
    chunk = Chunk("a.jsonl", "a.jsonl", 0, "jsonl", 0, 100)
    with Lag(tmp_path, Sources((FileSource(0, "a.jsonl", 0, (chunk,)),))) as lag:
        assert [lag.of(events) for events in (0, 40, 100, 120)] == [100, 60, 0, 0]


def test_of_a_topic_that_ends(tmp_path: Path) -> None:
    bounded = TOPIC.model_copy(update={"end": {0: 30, 1: 5}})
    lag = Lag(tmp_path, topics(bounded))
    assert lag.of(0) == 20
    read(tmp_path, (0, 11))
    assert lag.of(0) == 18


def test_of_a_topic_that_grows(tmp_path: Path) -> None:
    """A partition may be new; brokers may be away."""
    answers = [{0: 20, 1: 6}, {0: 30, 1: 6, 2: 3}]
    asked = threading.Event()

    def ask(topic: TopicSource) -> dict[int, int]:
        if answers:
            return answers.pop(0)
        asked.set()
        raise JobFailed("no broker")

    lag = Lag(tmp_path, topics(TOPIC, TOPIC.model_copy(update={"source": 1})), ask)
    assert lag.of(0) is None, "not known yet"
    with lag:
        assert asked.wait(60.0)
    assert lag.of(0) == (10 + 1) + (20 + 1 + 3)
    read(tmp_path, (0, 14), (1, 5))
    assert lag.of(0) == 5 + (15 + 3)


def test_of_a_topic_whose_brokers_moved(tmp_path: Path) -> None:
    """What was read is told by the name that the topic had when the job began."""
    moved = TOPIC.model_copy(update={"bootstrap": "new:1", "end": {0: 30, 1: 5}})
    read(tmp_path, (0, 11))
    assert Lag(tmp_path, topics(moved)).of(0) == 18


def test_a_partition_that_a_resume_does_not_read_has_no_lag(tmp_path: Path) -> None:
    """It was read to its end before, and no message comes of it that would say so again."""
    read(tmp_path, (0, 29), (1, 5))
    lag = Lag(tmp_path, topics(TOPIC.model_copy(update={"end": {0: 30, 1: 8}})))
    read(tmp_path, (1, 6))
    assert lag.of(0) == 1
