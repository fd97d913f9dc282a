"""Rules of keys by options and snapshot: which combinations are refused, and with which words."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from freshet.job.errors import UsageError
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicInput
from freshet.job.run.key_rules import key_rules
from freshet.job.run.source_kinds import TopicSource
from freshet.job.run.sources import FoundSources, Sources

MAP = {"op": "`add_edge`", "src": "a", "dst": "b"}


def rules(
    field: str | None, *names: str, key_kind: str | None = None, info: dict[str, Any] | None = None, **options: Any
) -> Any:
    config: Any = SimpleNamespace(edge_key=field, **{"events_map": {}, "ignore_positions": False} | options)
    config.id_bytes_max = 100
    graph: Any = SimpleNamespace(folder=Path("/graph"), key_kind=key_kind, info=info or {})
    return key_rules(config, config, None if key_kind is None else graph, FoundSources(names or ("/a",)), Sources())


def test_the_kind_is_that_of_the_snapshot_or_open() -> None:
    found = [rules(None), rules("pay"), rules("pay", key_kind="string"), rules(None, key_kind=""), rules("offset")]
    assert [(one.field, one.kind, one.by_offset) for one in found] == [
        ("key", None, False), ("pay", None, False), ("pay", "string", False), ("key", None, False),
        ("key", "int", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "options", "words"),
    [
        ("src", {}, "a field of events"),
        ("pay", {"events_map": MAP}, "give `key: pay` in events_map"),
        ("key", {"events_map": MAP}, "events_map has no `key`"),
        ("key", {"events_map": [MAP, {"when": "x"}]}, "events_map has no `key`"),
    ],
)
def test_fields_that_can_have_no_keys(field: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        rules(field, **options)
    assert rules("key", events_map=[MAP, {**MAP, "key": "c"}]).field == "key"


def test_places_go_on_after_a_snapshot_in_the_same_sources_alone() -> None:
    begun = {"key_sources": ["/a", "kafka://h:1/t"]}
    assert rules("offset", "/a", "kafka://other:2/t", "/c", key_kind="int", info=begun).sources == 3
    for names in (("kafka://h:1/t", "/a"), ("/a",), ("/c", "/a", "kafka://h:1/t")):
        with pytest.raises(UsageError, match="expected these first in --events, in this order"):
            rules("offset", *names, key_kind="int", info=begun)
    with pytest.raises(UsageError, match="no ignore-positions"):
        rules("offset", "/a", "kafka://h:1/t", key_kind="int", info=begun, ignore_positions=True)
    for kind in ("int", "string"):
        with pytest.raises(UsageError, match="keys that no job gave them by places"):
            rules("offset", "/a", key_kind=kind)


def test_more_sources_or_partitions_than_places_have_numbers_for() -> None:
    config: Any = SimpleNamespace(edge_key="offset", events_map={}, ignore_positions=False, id_bytes_max=100)
    spec = TopicInput(source=0, bootstrap="h:1", topic="t", start=dict.fromkeys(range(5000), 0))
    topics = Sources(topics=(TopicSource(spec, "kafka://h:1/t", ClientProperties()),))
    assert key_rules(config, config, None, FoundSources(("t", "u", "v", "w")), topics).sources == 4
    with pytest.raises(UsageError, match="at most 4,096 partitions of a topic beside 5"):
        key_rules(config, config, None, FoundSources(("t", "u", "v", "w", "x")), topics)
    with pytest.raises(UsageError, match="at most 32,768 files"):
        key_rules(config, config, None, FoundSources(("t",) * 40_000), Sources())
