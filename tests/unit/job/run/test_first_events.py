"""First events of files and topics: the kinds of ids and of keys that they decide, and how long they are waited for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.job.kafka import read_topics
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicInput
from freshet.job.run import first_events
from freshet.job.run.first_events import decide_kinds
from freshet.job.run.source_kinds import FileSource, TopicSource
from freshet.job.run.sources import Sources
from freshet.operators.parser.core import Parser
from freshet.operators.parser.event_files import list_files
from freshet.operators.parser.keys import KeyRules
from freshet.operators.parser.messages import TopicMessage
from freshet.schema import Features

SPEC = TopicInput(source=0, bootstrap="h:1", topic="t", start={0: 0})
VERTEX = {"op": "add_vertex", "id": 1}
KEYLESS = {"op": "add_edge", "src": 1, "dst": 2}
KEYED: dict[str, Any] = {**KEYLESS, "key": 7}
NAMED: dict[str, Any] = {**KEYLESS, "key": "a"}
WRONG: dict[str, Any] = {**KEYLESS, "key": 1.5}
Records = list[dict[str, Any]]


class Topic:
    """Messages that are there, and then one after each poll; the clock goes on by a second with each of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, there: Records, later: Records) -> None:
        self.there, self.later, self.said, self.now = there, later, list[str](), itertools.count()
        monkeypatch.setattr(read_topics, "first_messages", self.first_messages)
        monkeypatch.setattr(TopicSource, "ends_now", lambda _: {0: len(there)})
        monkeypatch.setattr(first_events, "say", self.said.append)
        # Not that of the process, which other threads read as well.
        clock = SimpleNamespace(monotonic=lambda: float(next(self.now)))
        monkeypatch.setattr(first_events, "time", clock)

    def first_messages(self, *_: Any) -> Iterator[tuple[TopicInput, list[TopicMessage], bool]]:
        every = [[one] for one in [*self.there, *self.later]] + [[]] * 100
        for number, records in enumerate(every):
            yield SPEC, [TopicMessage(0, number, orjson.dumps(one)) for one in records], number + 1 < len(self.there)

    def decided(self, field: str = "", id_kind: str | None = None) -> tuple[str | None, str | None]:
        parser = Parser(Features(1), id_kind, keys=KeyRules(field, None))
        decide_kinds(Sources(topics=(TopicSource(SPEC, "kafka:t", ClientProperties()),)), parser)
        return parser.id_kind, parser.keys.kind


@pytest.mark.parametrize("id_kind", [None, "int"])
@pytest.mark.parametrize(
    ("there", "kind"),
    [
        ([VERTEX] * 30 + [KEYED, KEYLESS], "int"),
        ([VERTEX] * 30 + [NAMED], "string"),
        ([VERTEX] * 30 + [KEYLESS, KEYED], ""),
        ([WRONG, {**KEYED, "dst": None}, NAMED, KEYED], "string"),
        ([{"op": "del_edge", "src": 1, "dst": 2, "key": "a"}, KEYED], "int"),
    ],
)
def test_the_first_edge_of_a_topic_decides(
    monkeypatch: pytest.MonkeyPatch, there: Records, kind: str, id_kind: str | None
) -> None:
    topic = Topic(monkeypatch, there, [])
    assert topic.decided(id_kind=id_kind) == ("int", kind)
    assert all("none in" in line for line in topic.said)


def test_an_edge_is_waited_for_a_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(monkeypatch, [VERTEX] * 40, [VERTEX, VERTEX, KEYED])
    assert topic.decided() == ("int", "int")
    assert any("none in 10 messages" in line for line in topic.said)
    topic = Topic(monkeypatch, [VERTEX], [VERTEX] * 50 + [KEYED])
    assert topic.decided() == ("int", None)
    assert "--edge-key" in topic.said[-1] and len(topic.said) == 1
    topic = Topic(monkeypatch, [], [VERTEX, KEYED])
    assert topic.decided() == ("int", "int"), "the first event is waited for, and then the edge"


def test_nothing_is_waited_for_that_options_say(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(monkeypatch, [], [KEYED])
    assert topic.decided(id_kind="int") == ("int", None)
    assert topic.said == ["no messages yet: edges of this job have no keys without --edge-key"]
    assert Topic(monkeypatch, [], [VERTEX] * 60 + [KEYLESS] * 20 + [NAMED]).decided("key") == ("int", "string")


@pytest.mark.parametrize(("first", "kind"), [([KEYLESS], ""), ([WRONG], "int"), ([], "int"), ([NAMED], "string")])
def test_lines_decide_by_their_first_edge(tmp_path: Path, first: Records, kind: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, [*[VERTEX] * 300, *first, *[KEYED] * 300])))
    assert decided([path]) == ("int", kind)


@pytest.mark.parametrize(("first", "kind"), [([KEYLESS], ""), ([WRONG, KEYED], "int"), ([], "int"), ([WRONG], "int")])
def test_tables_decide_by_their_first_edge(tmp_path: Path, first: Records, kind: str) -> None:
    path = tmp_path / "a.parquet"
    nothing: dict[str, Any] = dict.fromkeys(("id", "src", "dst", "key"))
    rows = [nothing | one for one in [*[VERTEX] * 300, *first, *[{**KEYED, "key": 7.0}] * 300]]
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert decided([path]) == ("int", kind)
    pq.write_table(pa.table({"op": ["add_edge"], "src": [1], "dst": [2]}), before := tmp_path / "0.parquet")
    assert decided([before, path]) == ("int", ""), "a table without the column has edges without keys"


def decided(paths: list[Path]) -> tuple[str | None, str | None]:
    parser = Parser(Features(1), None, keys=KeyRules("", None))
    files = list_files(list(map(str, paths)))
    decide_kinds(Sources(tuple(FileSource.plan(file, 0) for file in files)), parser)
    return parser.id_kind, parser.keys.kind
