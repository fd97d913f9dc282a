"""Attributes of edges by all ways of the Parser: those of the model's width, or a dead letter with the record."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from freshet.job.results.plain_rules import PlainRules
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.letter_box import DeadLetter
from freshet.partitioner.events import Events
from freshet.schema import Features, attr_of

FEATURES = Features(2, 3)
ORIGIN = Origin(name="events")
GOOD: list[dict[str, Any]] = [
    {"attr": [1.5, -2, 0.1]},
    {},
    {"attr": None},
    {"attr": [0.0, 0.0, 0.0]},
    {"attr": [2**53, 16777217, -0.0], "weight": 2.5},
    {"attr": [1e-50, 3.4e38, 7]},
    {"op": "del_edge", "attr": [1.0]},
]
BAD: list[tuple[Any, str]] = [
    ([1.0, 2.0], "attr: expected 3 numbers, got 2"),
    ([], "attr: expected 3 numbers, got 0"),
    ([1.0] * 4, "attr: expected 3 numbers, got 4"),
    ([1.0, None, 2.0], "attr: expected numbers, got null at index 1"),
    ([0.0, 1e39, 0.0], "attr: not finite in float32 at index 1, got the number 1e+39"),
    ([[1.0], [2.0], [3.0]], "attr: expected numbers, got a list at index 0"),
    (["1", "2", "3"], "attr: expected numbers, got the string '1' at index 0"),
    ("1,2,3", "attr: expected a list of numbers, got the string '1,2,3'"),
    (1.0, "attr: expected a list of numbers, got the number 1.0"),
    ({"a": 1}, "attr: expected a list of numbers, got an object"),
]


def edge(k: int, **more: Any) -> dict[str, Any]:
    return {"op": "add_edge", "src": k, "dst": k + 1, **more}


def parsed(
    records: list[dict[str, Any]], lines_min: int, features: Features = FEATURES
) -> tuple[Events, list[DeadLetter]]:
    return Parser(features, lines_min=lines_min).parse_jsonl(b"\n".join(map(orjson.dumps, records)), ORIGIN)


def carried(events: Events) -> list[list[float]]:
    return events.values.full_attr(FEATURES.edge_width).tolist()


def test_both_ways_and_tables_give_the_same_bytes() -> None:
    records = [edge(k, **more) for k, more in enumerate(GOOD)] * 40
    records[3:3] = [{"op": "add_vertex", "id": 1, "x": [1.0, 2.0]}]
    one_by_one, letters = parsed(records, 10**9)
    assert not letters
    by_columns, letters = parsed(records, 1)
    assert not letters
    assert by_columns.encode() == one_by_one.encode()
    assert Events.decode(one_by_one.encode()).values.attr.tolist() == carried(one_by_one)  # type: ignore[union-attr]
    bits = np.float32([2.0**53, 16777216, -0.0]).view(np.int32).tolist()
    at = records.index(next(record for record in records if record.get("weight")))
    assert one_by_one.values.attr[at].view(np.int32).tolist() == bits  # type: ignore[index]
    assert one_by_one.values.attr_sizes is None, "lengths are only told where they are all that is kept"
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float64(), 3), pa.large_list(pa.float64())):
        given = [record for record in records if record["op"] != "del_edge"]
        rows = {name: [record.get(name) for record in given] for name in ("op", "id", "src", "dst", "x", "weight")}
        attr = pa.array([record.get("attr") for record in given], kind)
        table, letters = Parser(FEATURES).parse_table(pa.table({**rows, "attr": attr}), ORIGIN)
        assert not letters
        np.testing.assert_array_equal(carried(table), carried(parsed(given, 1)[0]))


@pytest.mark.parametrize("lines_min", [1, 10**9])
@pytest.mark.parametrize(("attr", "error"), BAD, ids=[str(attr) for attr, _ in BAD])
def test_others_are_dead_letters_as_they_came(attr: Any, error: str, lines_min: int) -> None:
    records = [edge(1, attr=[1.0, 2.0, 3.0]), edge(2, attr=attr), edge(3)]
    events, letters = parsed(records, lines_min)
    assert [(letter.error, letter.raw) for letter in letters] == [(error, orjson.dumps(records[1]))]
    assert carried(events) == [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]
    rules = PlainRules(FEATURES)
    judged = [rules.judge(record) for record in records]
    assert judged[1] is None and [attr_of(one.values) for one in judged if one] == [(1.0, 2.0, 3.0), ()]


@pytest.mark.parametrize("lines_min", [1, 10**9])
def test_attributes_that_number_categories_are_whole_and_in_range(lines_min: int) -> None:
    features = Features(2, 3, categories=(0, 5, 2))
    given = [[0.5, 4.0, 1], [0.0, 5.0, 0.0], [0.0, 1.5, 0.0], [0.0, -1.0, 0.0], [9.0, 0.0, 1 + 1e-9], [0.0, 0.0, 2]]
    records = [edge(k, attr=attr) for k, attr in enumerate(given)] + [edge(9)]
    events, letters = parsed(records, lines_min, features)
    assert [letter.error for letter in letters] == [
        "attr: expected a whole number from 0 to 4 at index 1, got 5.0",
        "attr: expected a whole number from 0 to 4 at index 1, got 1.5",
        "attr: expected a whole number from 0 to 4 at index 1, got -1.0",
        "attr: expected a whole number from 0 to 1 at index 2, got 2",
    ]
    assert carried(events) == [[0.5, 4.0, 1.0], [9.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    judged = [PlainRules(features).judge(record) for record in records]
    assert [attr_of(one.values) for one in judged if one] == [(0.5, 4.0, 1.0), (9.0, 0.0, 1.0), ()]
    table = pa.table({"op": ["add_edge"] * 6, "src": [1] * 6, "dst": [2, 3, 4, 5, 6, 7], "attr": given})
    assert len(Parser(features).parse_table(table, ORIGIN)[1]) == 4


def test_tables_refuse_nan_and_infinity_and_another_width() -> None:
    ends = {"op": ["add_edge"] * 5, "src": [1] * 5, "dst": [2] * 5}
    attr = [[1.0, 2.0, 3.0], [float("nan"), 0.0, 0.0], [0.0, float("inf"), 0.0], [1.0], None]
    events, letters = Parser(FEATURES).parse_table(pa.table({**ends, "attr": attr}), ORIGIN)
    assert [letter.error.split(",")[0] for letter in letters] == [
        "attr: not finite in float32 at index 0",
        "attr: not finite in float32 at index 1",
        "attr: expected 3 numbers",
    ]
    assert carried(events) == [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]
    fixed = pa.array([[1.0, 2.0]] * 5, pa.list_(pa.float32(), 2))
    assert len(Parser(FEATURES).parse_table(pa.table({**ends, "attr": fixed}), ORIGIN)[1]) == 5


def test_a_map_finds_attributes_in_foreign_records() -> None:
    told = {"op": "`add_edge`", "src": "a", "dst": "b", "attr": "[amount, hour, `1`]"}
    parser = Parser(FEATURES, None, None, told)
    lines = [b'{"a":1,"b":2,"amount":0.5,"hour":9}', b'{"a":1,"b":3,"hour":9}']
    events, letters = parser.parse_jsonl(b"\n".join(lines), ORIGIN)
    assert carried(events) == [[0.5, 9.0, 1.0]]
    assert [(letter.error, letter.raw) for letter in letters] == [
        ("attr: expected numbers, got null at index 0", lines[1])
    ]


@pytest.mark.parametrize("lines_min", [1, 10**9])
def test_models_without_attributes_keep_lengths_alone(lines_min: int) -> None:
    records = [edge(1, attr=[1.0, 2.0]), edge(2), edge(3, attr=[])]
    events, _ = parsed(records, lines_min, Features(2))
    assert events.values.attr is None
    assert events.values.attr_sizes.tolist() == [2, -1, 0]  # type: ignore[union-attr]
