"""How many subtasks read a topic: as many as there are processes, as options say, and no more than partitions."""

from __future__ import annotations

import pytest

from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicInput
from freshet.job.run.source_kinds import FileSource, TopicSource
from freshet.job.run.sources import Processes, Sources, file_readers_of, readers_of
from freshet.operators.parser.files import Chunk


def topic(partitions: int, *, ends: int | None = None) -> TopicSource:
    end = None if ends is None else dict.fromkeys(range(ends), 9)
    spec = TopicInput(source=0, bootstrap="h:1", topic="t", start=dict.fromkeys(range(partitions), 0), end=end)
    return TopicSource(spec, "kafka://h:1/t", ClientProperties())


def readers(
    *topics: TopicSource, given: int | None = None, count: int = 1, subtasks: int = 1, cluster: bool = False
) -> tuple[int, ...]:
    return readers_of(topics, given, Processes(count, subtasks, cluster), resumes=False)


@pytest.mark.parametrize(
    ("count", "subtasks", "cluster", "partitions", "expected"),
    [
        (1, 1, False, 12, 1),
        (2, 1, False, 12, 2),
        (2, 2, False, 12, 2),
        (4, 1, False, 3, 3),
        (4, 1, False, 1, 1),
        (4, 2, False, 3, 2),  # beside whole groups of processes
        (4, 2, False, 1, 1),
        (4, 1, True, 12, 1),  # that has no slots for more, as far as one knows
        (4, 2, True, 12, 2),
    ],
)
def test_by_default_each_process_reads(
    count: int, subtasks: int, cluster: bool, partitions: int, expected: int
) -> None:
    assert readers(topic(partitions), count=count, subtasks=subtasks, cluster=cluster) == (expected,)


def test_each_topic_has_as_many_as_are_given_and_it_has_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    assert readers(topic(2), topic(8), topic(1), given=4) == (2, 4, 1)
    said = capsys.readouterr().err
    assert "--readers 4: kafka://h:1/t has 2 partitions, so 2 readers" in said
    assert "--readers 4: kafka://h:1/t has 1 partition, so one reader" in said
    assert readers(topic(8), given=3, count=4, subtasks=2) == (4,), "beside whole groups of processes"
    assert readers(topic(8), given=5, count=4, subtasks=2) == (5,)
    assert readers(topic(8), given=3, count=4, subtasks=2, cluster=True) == (3,)


def test_partitions_that_were_added_count_at_a_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicSource, "ends_now", lambda self: dict.fromkeys(range(6), 0))
    assert readers(topic(2), given=4) == (2,)
    assert readers_of([topic(2), topic(2, ends=3)], 4, Processes(1, 1), resumes=True) == (4, 3)


@pytest.mark.parametrize(
    ("name", "is_told"), [("e.jsonl", False), ("e.jsonl.gz", True), ("e.parquet", True), ("e.arrow", True)]
)
def test_threads_that_have_nothing_to_parse_are_told(
    name: str, is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    form = "jsonl" if "jsonl" in name else name.removeprefix("e.")
    files = FileSource(0, name, 0, (Chunk(name, name, 0, form, 0, 10),))
    assert file_readers_of(Sources((files,)), None, 2) == 2
    assert file_readers_of(Sources((files,), (topic(1),)), 3, 2) == 3
    assert not capsys.readouterr().err
    assert file_readers_of(Sources((files,)), 3, 1) == 3
    assert ("--readers 3: one reads these files" in capsys.readouterr().err) == is_told
