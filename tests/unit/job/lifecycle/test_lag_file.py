"""The lag of a job, as others read it."""

from __future__ import annotations

import time
from pathlib import Path

from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicInput
from freshet.job.lifecycle.lag_file import read_lag
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


def sources(*specs: TopicInput) -> Sources:
    return Sources(topics=tuple(TopicSource(one, f"kafka://h:1/{one.topic}", ClientProperties()) for one in specs))


def read(out: Path, *messages: tuple[int, int]) -> None:
    stage = MessageStage(Parser(Features(1)), Origin(0, "kafka://h:1/t"), None, 1000, out)
    stage.parse(batch_of(TopicMessage(partition, offset, b"") for partition, offset in messages))


def test_of_files(tmp_path: Path) -> None:
    assert read_lag(tmp_path, 0) is None, "no run has begun"
    chunk = Chunk("a.jsonl", "a.jsonl", 0, "jsonl", 0, 100)
    Lag(tmp_path, Sources((FileSource(0, "a.jsonl", 0, (chunk,)),)))
    assert [read_lag(tmp_path, events) for events in (0, 40, 120)] == [{"files": n} for n in (100, 60, 0)]


def test_of_a_topic_by_partition(tmp_path: Path) -> None:
    bounded = TOPIC.model_copy(update={"end": {0: 30, 1: 5}})
    Lag(tmp_path, sources(bounded))
    read(tmp_path, (0, 11))
    assert read_lag(tmp_path, 0, time.time() + 3600) == {"0": 18, "1": 0}, "an end that was given stays"


def test_partitions_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    ends = dict.fromkeys((11, 2, 0, 10), 7)
    Lag(tmp_path, sources(TOPIC.model_copy(update={"start": dict.fromkeys(ends, 5), "end": ends})))
    assert list(read_lag(tmp_path, 0) or ()) == ["0", "2", "10", "11"]


def test_ends_that_nobody_has_asked_for_lately_say_nothing(tmp_path: Path) -> None:
    other = TopicInput(source=1, bootstrap="h:1", topic="u", start={})
    lag = Lag(tmp_path, sources(TOPIC, other), lambda topic: {0: 40, 1: 6} if topic.index == 0 else {7: 3})
    assert read_lag(tmp_path, 0) is None, "no broker has answered yet"
    read(tmp_path, (0, 11))
    lag.look()
    assert read_lag(tmp_path, 0) == {"kafka://h:1/t:0": 28, "kafka://h:1/t:1": 1, "kafka://h:1/u:7": 3}
    assert read_lag(tmp_path, 0, time.time() + 40) is None
    Lag(tmp_path, sources(TOPIC.model_copy(update={"end": {0: 40, 1: 6}})))
    (tmp_path / "status" / "kafka-0.json").unlink()
    assert read_lag(tmp_path, 0) == {"0": 28, "1": 1}, "what an earlier attempt had read"
