"""Integers in the place of text: ids that are strings, and types that are numbers; as `freshet check` has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.job.results.plain_kinds import PlainKindsRules
from freshet.job.results.plain_reader import message_records
from freshet.job.results.plain_rules import PlainRules
from freshet.kinds import Kinds, Relation
from freshet.operators.parser.core import Parser
from freshet.operators.parser.messages import RawMessage
from freshet.operators.snapshot.reader import SnapshotError, open_snapshot
from freshet.operators.snapshot.writer import write_snapshot
from freshet.partitioner.events import Events
from freshet.partitioner.ids import STRING
from freshet.schema import Features
from tests.support.stages.parsed import ORIGIN, jsonl

NUMBERED = Kinds(("",), (1,), (Relation(0, "0", 0), Relation(0, "1", 0)))
NAMED = Kinds(("",), (1,), (Relation(0, "cites", 0), Relation(0, "writes", 0)))


def edge(src: Any, dst: Any, **more: Any) -> dict[str, Any]:
    return {"op": "add_edge", "src": src, "dst": dst, **more}


def ends_of(events: Events) -> list[tuple[Any, Any]]:
    return list(zip(events.a.to_list(), events.b.to_list(), strict=True))


@pytest.mark.parametrize("lines_min", [1, 1000])
def test_integers_become_the_strings_that_write_them(lines_min: int) -> None:
    large = 2**64 - 1
    rows = [edge(1, "b"), edge("b", 2), edge(large, -5), {"op": "add_vertex", "id": 7}, edge(1.0, 2), edge(True, 2)]
    parser = Parser(Features(1), STRING, lines_min=lines_min, cast_ids=True)
    events, letters = parser.parse_jsonl(jsonl(rows), ORIGIN)
    assert ends_of(events) == [("1", "b"), ("b", "2"), (str(large), "-5"), ("7", "")]
    assert [letter.offset for letter in letters] == [4, 5]
    rules = PlainRules(Features(1), STRING, cast_ids=True)
    judged = [one.event for one in message_records([(0, jsonl(rows))], rules)]
    assert [event and (event.a, event.b or "") for event in judged] == [*ends_of(events), None, None]
    _, refused = Parser(Features(1), STRING).parse_messages([RawMessage(0, jsonl(rows[:1]))], ORIGIN)
    assert refused, "it is asked for"


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, 2**64 - 1], pa.uint64()), ["1", "18446744073709551615"]),
        (pa.array([1.0, 2.5]), ["1"]),
        (pa.array([-1, 20]).dictionary_encode(), ["-1", "20"]),
    ],
)
def test_columns_of_numbers_are_ids_that_are_strings(column: pa.Array, expected: list[str]) -> None:
    table = pa.table({"op": ["add_edge"] * 2, "src": column, "dst": ["b"] * 2})
    events, letters = Parser(Features(1), STRING, cast_ids=True).parse_table(table, ORIGIN)
    assert events.a.to_list() == expected
    assert len(letters) == 2 - len(expected)


def test_a_snapshot_of_integers_has_ids_that_are_strings(tmp_path: Path) -> None:
    write_snapshot(tmp_path, [1, 2], np.ones((2, 1)), [1], [2])
    pq.write_table(pa.table({"src": ["1"], "dst": ["b"]}), tmp_path / "edges.parquet")
    with pytest.raises(SnapshotError, match=r"ids of one kind, .*; --id-type string takes integers as strings"):
        open_snapshot(tmp_path, Features(1))
    snapshot = open_snapshot(tmp_path, Features(1), cast_ids=True)
    assert snapshot.id_kind == STRING
    assert [block.a.to_list() for block in snapshot.blocks()] == [["1", "2"], ["1"]]


@pytest.mark.parametrize("lines_min", [1, 1000])
def test_integers_are_types_that_are_numbers(lines_min: int) -> None:
    rows = [edge(1, 2, type=kind) for kind in (1, "1", 0, None, 2, 1.0, True)]
    features = Features.of_kinds(NUMBERED)
    events, letters = Parser(features, "int", NUMBERED.relation_names, lines_min=lines_min).parse_jsonl(
        jsonl(rows), ORIGIN
    )
    assert [events.types[code] for code in events.etype.tolist()] == ["1", "1", "0", "0"]
    assert [letter.offset for letter in letters] == [4, 5, 6]
    judged = [one.event for one in message_records([(0, jsonl(rows))], PlainKindsRules(features, "int"))]
    assert [event and event.type for event in judged] == ["1", "1", "0", "0", None, None, None]
    _, refused = Parser(Features.of_kinds(NAMED), "int").parse_jsonl(jsonl(rows[:1]), ORIGIN)
    assert refused[0].error == "type: expected a string, got the integer 1"
    typed, _ = Parser(Features(1), "int", ("0", "1")).parse_jsonl(jsonl(rows[:1]), ORIGIN)
    assert typed.types[typed.etype[0]] == "1"


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float64()])
def test_a_column_of_integers_is_one_of_types_that_are_numbers(kind: pa.DataType) -> None:
    """One null makes doubles of integers in pandas."""
    types = pa.array([1, None, 0, 7, *([0.5] if pa.types.is_floating(kind) else [])], kind)
    n = len(types)
    table = pa.table({"op": ["add_edge"] * n, "src": [1] * n, "dst": [2] * n, "type": types})
    parser = Parser(Features.of_kinds(NUMBERED), "int", NUMBERED.relation_names)
    events, letters = parser.parse_table(table, ORIGIN)
    assert [events.types[code] for code in events.etype.tolist()] == ["1", "0", "0"]
    assert [letter.offset for letter in letters] == list(range(3, n))
    _, refused = Parser(Features.of_kinds(NAMED), "int", NAMED.relation_names).parse_table(table, ORIGIN)
    assert len(refused) == n - 1
