"""Files and topics as the sources of one job: numbered together, written down, and found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.job.errors import UsageError
from freshet.job.folder.job_file import paths_of
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicInput
from freshet.job.run.source_kinds import FileSource, TopicSource
from freshet.job.run.sources import Sources, find_sources, load_sources
from freshet.operators.epochs.cut import FILES
from freshet.operators.epochs.event_time import NO_END
from freshet.operators.parser.core import Parser
from freshet.operators.settings import Settings
from freshet.schema import Features

TOPIC = "kafka://h:1/t"
LINES = [b'{"op": "add_vertex", "id": %d}' % k for k in range(10)]


def mixed(folder: Path) -> Sources:
    """A file that is read from its fourth record on, a topic, and an empty file."""
    for name, lines in (("a.jsonl", LINES), ("b.jsonl", [])):
        (folder / name).write_bytes(b"\n".join(lines))
    found = find_sources([str(folder / "a.jsonl"), TOPIC, str(folder / "b.jsonl")])
    assert found.names == (str(folder / "a.jsonl"), TOPIC, str(folder / "b.jsonl"))
    spec = TopicInput(source=1, bootstrap="h:1", topic="t", start={0: 5, 1: 0}, end={0: 9, 1: 3})
    files = tuple(FileSource.plan(file, first) for file, first in zip(found.files, (3, 0), strict=True))
    return Sources(files, (TopicSource(spec, TOPIC, ClientProperties()),))


def test_they_stand_in_the_order_of_events_with_where_each_begins_and_ends(tmp_path: Path) -> None:
    sources = mixed(tmp_path)
    assert [(one.index, dict(one.start), one.end) for one in sources] == [
        (0, {0: 3}, {0: 10}),
        (1, {0: 5, 1: 0}, {0: 9, 1: 3}),
        (2, {0: 0}, {0: 0}),
    ]
    assert str(sources) == "7 records of input, topic t (2 partitions, 7 messages)"
    assert str(Sources(topics=sources.topics)) == "topic t (2 partitions, 7 messages)"
    assert str(Sources()) == "0 records of input"


def test_the_lanes_with_something_to_read_and_where_they_end(tmp_path: Path) -> None:
    sources = mixed(tmp_path)
    assert sources.lane_ends == ((*FILES, 0, 10), (1, 0, 1, 9), (1, 1, 1, 3))
    spec = TopicInput(source=1, bootstrap="h:1", topic="t", start={0: 5, 1: 3}, end={0: 5, 1: 3, 2: 4})
    topic = TopicSource(spec, TOPIC, ClientProperties())
    assert Sources(topics=(topic,)).lane_ends == ((1, 2, 1, 4),), "one that was added later begins at 0"
    topic = TopicSource(spec.model_copy(update={"end": None}), TOPIC, ClientProperties())
    assert Sources(topics=(topic,)).lane_ends == ((1, 0, 1, NO_END), (1, 1, 1, NO_END))


def test_they_are_as_they_were_when_they_are_loaded_again(tmp_path: Path) -> None:
    sources = mixed(tmp_path)
    sources.save(tmp_path)
    names = tuple(one.name for one in sources)
    settings = Settings(model="M", parts=1, sources=names, topics=(1,), **paths_of(tmp_path))
    assert load_sources(settings, sources.topic_specs, ClientProperties()) == sources


def test_a_file_is_read_again_from_where_it_began(tmp_path: Path) -> None:
    file = mixed(tmp_path).files[0]
    (events,) = file.events(0, Parser(Features(1), "int"))
    assert events.position.tolist() == list(range(4, 11))


def test_an_epoch_may_end_within_a_message_and_not_within_a_record_of_a_file(tmp_path: Path) -> None:
    sources = mixed(tmp_path)
    assert [sources.files[0].ends_at(position, 5) for position in (4, 5, 6)] == [False, True, False]
    assert [sources.topics[0].ends_at(position, 5) for position in (4, 5, 6, 7)] == [False, True, True, False]


def test_a_topic_is_named_once() -> None:
    with pytest.raises(UsageError, match="the topic t is named twice"):
        find_sources([TOPIC, "kafka://other:1/t"])
