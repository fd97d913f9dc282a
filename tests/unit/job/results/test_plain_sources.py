"""A topic that is read again: what it has lost since is not taken for a fault of the run."""

from __future__ import annotations

import pytest

from freshet.job.kafka import make_topics, read_topics
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicInput
from freshet.job.results.plain_rules import PlainRules
from freshet.job.results.plain_sources import PlainTopic
from freshet.operators.parser.messages import TopicMessage
from freshet.schema import Features

TOPIC = TopicInput(source=0, bootstrap="h:1", topic="t", start={0: 2}, end={0: 20})
LINE = b'{"op":"del_vertex","id":1}'


@pytest.mark.parametrize(
    ("offsets", "policy", "lacks", "said"),
    [
        ([2, 3, 4], "cleanup.policy=compact", True, None),
        ([2, 3, 5, 6, 8], None, True, None),  # transactions end between
        ([2, 3, 9, 10], None, False, None),  # one was aborted
        ([2, 3, 9, 10], None, True, "(compacted before?) has no records at the offsets 4 to 8 of partition 0"),
        ([4, 6], "cleanup.policy=compact", False, "(cleanup.policy=compact) has no records at the offsets 2 to 3 of "),
        (list(range(3, 20, 2)), "cleanup.policy=compact", True, "6 to 6 of partition 0 and 6 gaps more"),
    ],
)
def test_what_is_missing(
    offsets: list[int], policy: str | None, lacks: bool, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [[TopicMessage(0, offset, LINE)] for offset in offsets]
    monkeypatch.setattr(read_topics, "read_partition", lambda *_: iter(pieces))
    monkeypatch.setattr(make_topics, "compaction_of", lambda *_: policy)
    topic = PlainTopic(TOPIC, ClientProperties())
    rules = PlainRules(Features(2), None, (), {}, 1024)
    assert len(list(topic.records(0, rules))) == len(offsets)
    found = topic.why_not_whole(lacks_events=lacks)
    assert found is None if said is None else found is not None and said in found
