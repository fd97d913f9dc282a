"""Keys of edges in records: which are taken, and that it does not matter how a record is read."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from freshet.job.results.plain_reader import message_records
from freshet.job.results.plain_replay import with_own_keys
from freshet.job.results.plain_rules import PlainRules
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.keys import KeyRules
from freshet.operators.parser.messages import RawMessage
from freshet.operators.parser.place_keys import SAME_MAX, partitions_max
from freshet.partitioner.events import ALL_KEYS, OP_DEL_EDGES, Events
from freshet.partitioner.ids import NO_KEY
from freshet.schema import Features

FEATURES = Features(1)
GOOD: dict[str, list[Any]] = {"int": [None, 0, 7, -(2**63) + 1, 2**63 - 1], "string": [None, "a", "7", "ä" * 9]}
BAD: dict[str, list[Any]] = {
    "int": ["7", "", 1.5, True, [], {}, 2**70, -(2**63)], "string": [7, "", 1.5, True, [], "x" * 2000],
}  # fmt: skip


def edge(op: str, key: Any, **more: Any) -> dict[str, Any]:
    return {"op": op, "src": 1, "dst": 2, **({} if key is None else {"key": key}), **more}


def parsed(records: list[dict[str, Any]], kind: str, field: str = "", lines_min: int = 64) -> tuple[Events, list[Any]]:
    parser = Parser(FEATURES, "int", lines_min=lines_min, keys=KeyRules(field, kind))
    return parser.parse_jsonl(b"\n".join(json.dumps(one).encode() for one in records), Origin())


def keys_of(events: Events) -> list[Any]:
    """The key of each event, None without, and "*" where it is about all."""
    return [ALL_KEYS if op == OP_DEL_EDGES else events.key_of(k) for k, op in enumerate(events.op.tolist())]


@pytest.mark.parametrize("lines_min", [1, 10**6])
@pytest.mark.parametrize("kind", GOOD)
def test_keys_are_taken_by_columns_and_one_by_one(kind: str, lines_min: int) -> None:
    rng, records = random.Random(kind), list[dict[str, Any]]()
    for _ in range(300):
        op = rng.choice(["add_edge", "del_edge"])
        records.append(edge(op, "*" if op == "del_edge" and rng.random() < 0.2 else rng.choice(GOOD[kind])))
    records += [{"op": "add_vertex", "id": 5, "key": 1.5}, edge("add_edge", None)]
    events, letters = parsed(records, kind, lines_min=lines_min)
    assert not letters
    assert keys_of(events) == [*(record.get("key") for record in records[:300]), None, None]
    assert keys_of(Events.decode(events.encode())) == keys_of(events)
    assert keys_of(Events.concatenate([events.slice(0, 9), events.slice(9, 40), events.slice(40, 302)])) == keys_of(
        events
    )


@pytest.mark.parametrize("lines_min", [1, 10**6])
@pytest.mark.parametrize("kind", GOOD)
def test_bad_keys_are_dead_letters(kind: str, lines_min: int) -> None:
    bad = [edge("add_edge", key) for key in [*BAD[kind], "*"]] + [edge("del_edge", key) for key in BAD[kind]]
    records = [edge("add_edge", GOOD[kind][1]), *bad, edge("del_edge", "*")]
    events, letters = parsed(records, kind, lines_min=lines_min)
    assert keys_of(events) == [GOOD[kind][1], "*"]
    assert len(letters) == len(bad) and all(one.error.startswith("key: ") for one in letters)
    rules = PlainRules(FEATURES, "int", edge_keys=kind)
    judged = [rules.judge(orjson.loads(json.dumps(one))) for one in records]
    assert [one is None for one in judged] == [False, *[True] * len(bad), False]


@pytest.mark.parametrize("lines_min", [1, 10**6])
def test_a_job_without_keys_names_the_option(lines_min: int) -> None:
    records = [
        edge("add_edge", None),
        edge("add_edge", 7),
        edge("del_edge", "*"),
        {"op": "add_vertex", "id": 1, "key": 3},
    ]
    events, letters = parsed(records, "", lines_min=lines_min)
    assert len(events) == 2 and events.keys is None
    assert {one.error for one in letters} == {
        "key: edges of this job have no keys; a new job with --edge-key key takes them"
    }


@pytest.mark.parametrize("kind", GOOD)
def test_columns_of_tables(kind: str) -> None:
    given = [*GOOD[kind], None, *GOOD[kind]]
    table = pa.table({"op": ["add_edge"] * len(given), "src": [1] * len(given), "dst": [2] * len(given), "pay": given})
    for one in [table, table.set_column(3, "pay", table["pay"].dictionary_encode())][: 1 + (kind == "string")]:
        events, letters = Parser(FEATURES, "int", keys=KeyRules("pay", kind)).parse_table(one, Origin())
        assert (keys_of(events), letters) == (given, [])
    wrong = table.set_column(3, "pay", pa.array([1.5] * len(given)))
    events, letters = Parser(FEATURES, "int", keys=KeyRules("pay", kind)).parse_table(wrong, Origin())
    assert (len(events), len(letters)) == (0, len(given))
    assert letters[0].error.startswith("pay: expected ")


def test_whole_floats_of_tables_are_integers() -> None:
    table = pa.table({"op": ["add_edge"] * 2, "src": [1, 2], "dst": [2, 3], "key": [7.0, None]})
    events, letters = Parser(FEATURES, "int", keys=KeyRules("", "int")).parse_table(table, Origin())
    assert (keys_of(events), letters) == ([7, None], [])


def test_each_record_may_have_the_key_of_its_place() -> None:
    records = [edge("add_edge", None), edge("del_edge", "*"), edge("add_edge", None), edge("add_edge", 5)]
    parser = Parser(FEATURES, "int", keys=KeyRules("offset", "int", sources=4))
    events, letters = parser.parse_jsonl(
        b"\n".join(json.dumps(one).encode() for one in records), Origin(3, "topic", 2), first_line=10
    )
    assert len(letters) == 1 and "--edge-key offset" in letters[0].error
    first, star, third = keys_of(events)
    assert star == ALL_KEYS and third - first == 2 << 8 and first == (3 << 13 | 2) << 48 | 10 << 8
    assert events.position.tolist() == [11, 12, 13]


@pytest.mark.parametrize("ids", ["int", "string"])
@pytest.mark.parametrize("lines_min", [1, 10**6])
def test_each_record_of_a_message_has_a_key_of_its_own(ids: str, lines_min: int) -> None:
    rng, messages = random.Random(7), list[RawMessage]()
    for offset in range(40):
        records = [
            edge("add_edge", None, type=rng.choice("ab")) | {"src": rng.randrange(3), "dst": rng.randrange(2)}
            for _ in range(rng.choice([1, 2, 30]))
        ]
        if ids == "string":
            records = [{**one, "src": f"s{one['src']}", "dst": f"d{one['dst']}"} for one in records]
        messages.append(RawMessage(3 * offset, b"\n".join(map(orjson.dumps, [*records, {"op": "fly"}]))))

    def parser() -> Parser:
        return Parser(FEATURES, ids, lines_min=lines_min, keys=KeyRules("offset", "int"))

    events, letters = parser().parse_messages(messages, Origin(0, "topic", 1))
    assert len(letters) == 40 and len(events) > 200
    ends = list(zip(events.a.to_list(), events.b.to_list(), events.etype.tolist(), keys_of(events), strict=True))
    assert len(set(ends)) == len(ends)
    assert {key >> 8 for *_, key in ends} == {1 << 40 | 3 * offset for offset in range(40)}
    later, _ = parser().parse_messages(messages[17:], Origin(0, "topic", 1))
    assert keys_of(later) == keys_of(events)[-len(later) :], "read again, they are the same"


def test_a_message_of_very_many_edges_of_one_pair() -> None:
    records = [edge("add_edge", None)] * (SAME_MAX + 5) + [{"op": "add_vertex", "id": 1, "x": [1.0]}, {}]
    messages = [RawMessage(offset, b"\n".join(map(orjson.dumps, some))) for offset, some in [(4, records), (9, [{}])]]
    parser = Parser(FEATURES, "int", keys=KeyRules("offset", "int"))
    events, letters = parser.parse_messages(messages, Origin(0, "topic"))
    assert [(one.offset, one.records) for one in letters] == [(4, 1), (4, 5), (9, 1)]
    assert f"takes {SAME_MAX} edges" in letters[1].error
    assert events.reject_rows.tolist() == [SAME_MAX] * 5 + [SAME_MAX + 1] * 2
    assert (len(events), len(events.x), events.x_row[-1]) == (SAME_MAX + 1, 1, 0)
    judged = with_own_keys(
        message_records(messages, PlainRules(FEATURES, "int", edge_keys="int", edge_key="offset")), "a"
    )
    taken = [one.event for one in judged if one.event is not None]
    assert len(taken) == len(events) and len({one.key for one in taken}) == len(taken)


def test_places_that_fit_no_key() -> None:
    assert [partitions_max(sources) for sources in (1, 2, 3, 4, 5, 2**15)] == [2**15, 2**14, 2**13, 2**13, 2**12, 1]
    places = set[int]()
    for source in range(5):  # of five sources that came one by one
        for partition in range(4):
            parser = Parser(FEATURES, "int", keys=KeyRules("offset", "int", sources=source + 1))
            events, _ = parser.parse_jsonl(orjson.dumps(edge("add_edge", None)), Origin(source, "t", partition))
            places.update(keys_of(events))
    assert len(places) == 20
    parser = Parser(FEATURES, "int", keys=KeyRules("offset", "int", sources=5))
    with pytest.raises(ValueError, match="partitions below 4096 beside 5 sources"):
        parser.parse_jsonl(orjson.dumps(edge("add_edge", None)), Origin(0, "t", 4096))


@pytest.mark.parametrize(
    ("field", "keys", "expected"),
    [("", [None, 7], ""), ("", [7, None], "int"), ("", ["a"], "string"), ("key", [None, "a"], "string"),
     ("key", [None], "int"), ("", [], "")],
)  # fmt: skip
def test_the_first_edge_decides_whether_there_are_keys(field: str, keys: list[Any], expected: str) -> None:
    parser = Parser(FEATURES, "int", keys=KeyRules(field, None))
    for key in keys:
        parser.parse_jsonl(orjson.dumps(edge("add_edge", key)), Origin())
    assert parser.keys.kind_at_end == expected


def test_keys_of_mapped_records() -> None:
    table = {"op": "'add_edge'", "src": "a", "dst": "b", "key": "payment.id"}
    parser = Parser(FEATURES, "int", events_map=table, keys=KeyRules("", "string"))
    data = orjson.dumps({"a": 1, "b": 2, "payment": {"id": "p7"}})
    events, letters = parser.parse_jsonl(data, Origin())
    assert (keys_of(events), letters) == (["p7"], [])
    assert np.array_equal(events.position, [1]) and NO_KEY == -(2**63)
