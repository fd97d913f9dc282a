"""Kinds of vertices and relations by all ways of the Parser: the model's list, or a dead letter with the record."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.errors import InputError
from freshet.kinds import Kinds, Relation
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.event_files import EventFile
from freshet.operators.parser.files import ChunkReader, plan_file
from freshet.operators.parser.letter_box import DeadLetter
from freshet.operators.parser.messages import RawMessage
from freshet.operators.parser.rejects import Refusals
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.events import OP_ADD_EDGE, OP_NAMES, Events
from freshet.schema import ATTR, EDGE_COLUMNS, Features
from tests.support.graphs.shop_kinds import KINDS
from tests.support.malformed.kinds import EDGE, EVERY, REJECTED

FEATURES = Features.of_kinds(KINDS)
ONE = Features.of_kinds(Kinds(("",), (2,), (Relation(0, "cites", 0), Relation(0, "writes", 0))))
ORIGIN = Origin(name="events")
GOOD: list[dict[str, Any]] = [
    {"op": "add_vertex", "id": 1, "kind": "user", "x": [1, 2]},
    {"op": "add_vertex", "id": 1, "kind": "item", "x": [1, 2, 3]},
    {"op": "set_features", "id": 1, "kind": "shop", "x": [4, 5]},
    {"op": "add_vertex", "id": 2, "kind": "item"},
    {"op": "del_vertex", "id": 2, "kind": "item", "x": [1]},
    {**EDGE, "type": "buys", "attr": [1, 2], "weight": 0.5},
    {**EDGE, "type": "buys", "src_kind": "user", "attr": None},
    {**EDGE, "type": "rates", "src_kind": "user", "dst_kind": "item", "attr": [3]},
    {**EDGE, "type": "rates", "src_kind": "user", "dst_kind": "shop", "attr": [3, 4, 5]},
    {**EDGE, "type": "rates", "src_kind": "shop"},
    {**EDGE, "type": "knows", "dst_kind": "user", "kind": "nothing"},
    {**EDGE, "op": "del_edge", "type": "near", "attr": [1]},
    {**EDGE, "op": "del_edge", "type": "rates", "dst_kind": "shop"},
]


def lines_of(records: list[dict[str, Any]]) -> bytes:
    return b"\n".join(map(orjson.dumps, records))


def one_by_one(records: list[dict[str, Any]], features: Features = FEATURES) -> tuple[Events, list[DeadLetter]]:
    return Parser(features, "int", lines_min=10**9).parse_jsonl(lines_of(records), ORIGIN)


def table_of(records: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{"op": None, **record} for record in records], schema=SCHEMA)


SCHEMA = pa.schema(
    {
        **dict.fromkeys(("op", "kind", "type", "src_kind", "dst_kind"), pa.string()),
        **dict.fromkeys(("id", "src", "dst"), pa.int64()),
        **{"weight": pa.float64(), "x": pa.list_(pa.float64()), "attr": pa.list_(pa.float64())},
    }
)


def is_typed(record: dict[str, Any]) -> bool:
    """True if a table of this schema can have it."""
    try:
        return table_of([record]).num_rows == 1
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False


@pytest.mark.parametrize(("record", "reason"), REJECTED)
def test_a_bad_record_is_a_letter_with_its_reason(record: dict[str, Any], reason: str) -> None:
    records = [GOOD[0], record, GOOD[5]] * 30
    for few in (1, 10**9):
        events, letters = Parser(FEATURES, "int", lines_min=few).parse_jsonl(lines_of(records), ORIGIN)
        assert len(events) == 60
        assert [letter.offset for letter in letters] == list(range(1, 90, 3))
        assert letters[0].error.startswith(reason)
        assert letters[0].raw == orjson.dumps(record)
    if is_typed(record):
        events, letters = Parser(FEATURES, "int").parse_table(table_of(records), ORIGIN)
        assert len(events) == 60 and letters[0].error.startswith(reason)
        shown = orjson.loads(letters[0].raw)
        assert shown == {name: one for name, one in record.items() if one is not None}


def test_events_have_the_kinds_of_their_relations() -> None:
    events, letters = one_by_one(GOOD)
    assert letters == []
    assert events.kind is not None
    vertices = events.op < OP_ADD_EDGE
    assert [KINDS.names[k] for k in events.kind[vertices]] == ["user", "item", "shop", "item", "item"]
    assert events.etype[~vertices].tolist() == [0, 0, 2, 3, 4, 5, 6, 3]
    assert events.types == KINDS.relation_names
    assert [events.x.row(k).tolist() for k in range(len(events.x))] == [[1, 2], [1, 2, 3], [4, 5]]
    assert events.values.full_attr(2)[~vertices].tolist()[:4] == [[1, 2], [0, 0], [3, 0], [0, 0]]
    sizes = events.values.column(next(one for one in EDGE_COLUMNS if one.name == ATTR))
    assert sizes[~vertices].tolist() == [-1, -1, -1, 3, -1, -1, -1, -1], "a relation without attributes drops them"


def drawn(seed: int, count: int = 300) -> list[dict[str, Any]]:
    """Records with fields of any of the values above."""
    rng = random.Random(seed)
    every = [*GOOD, *(record for record, _ in REJECTED if is_typed(record))]
    values = {name: [one[name] for one in every if name in one] for name in SCHEMA.names}
    records = []
    for _ in range(count):
        record = dict(rng.choice(GOOD if rng.random() < 0.8 else every))
        if rng.random() < 0.2:
            name = rng.choice(list(values))
            record[name] = rng.choice(values[name])
        records.append(record)
    return records


def seen(events: Events, letters: list[DeadLetter]) -> tuple[Any, ...]:
    x = [events.x.row(row).tolist() if row >= 0 else None for row in events.x_row]
    kind = [0] * len(events) if events.kind is None else events.kind.tolist()
    columns = [
        [OP_NAMES[op] for op in events.op],
        events.a.to_list(),
        events.b.to_list(),
        events.etype.tolist(),
        kind,
        x,
    ]
    return (*columns, events.values.rows(), events.reject_rows.tolist(), [letter.error for letter in letters])


@pytest.mark.parametrize("seed", range(6))
def test_all_ways_agree(seed: int, tmp_path: Path) -> None:
    records = drawn(seed)
    expected, letters = one_by_one(records)
    assert 0 < len(letters) < len(records)
    found = [Parser(FEATURES, "int", lines_min=1).parse_jsonl(lines_of(records), ORIGIN)]
    found += [Parser(FEATURES, "int").parse_table(table_of(records), ORIGIN)]
    pq.write_table(table_of(records).append_column("junk", pa.array([1] * len(records))), tmp_path / "e.parquet")
    parser = Parser(FEATURES, "int")
    reader = ChunkReader(fields=parser.fields)
    for chunk in plan_file(EventFile(str(tmp_path / "e.parquet"), "e.parquet", 0, "parquet")):
        found.append(parser.parse_chunk(chunk, reader.read(chunk)))
    messages = [RawMessage(k, orjson.dumps(record)) for k, record in enumerate(records)]
    found.append(Parser(FEATURES, "int").parse_messages(messages, ORIGIN))
    names = {name: name for name in ("op", "id", "x", "src", "dst", "weight", "type", "attr")}
    names |= {"kind": "kind", "src_kind": "not_null(src_kind)", "dst_kind": "dst_kind"}
    mapped = Parser(FEATURES, "int", events_map=names).parse_jsonl(lines_of(records), ORIGIN)
    assert seen(mapped[0], [])[:-1] == seen(expected, [])[:-1]
    for one in found:
        assert seen(*one) == seen(expected, letters)
        again = Events.decode(one[0].encode())
        assert seen(again, letters) == seen(expected, letters)
    cut = Events.concatenate([expected.slice(0, 7), expected.slice(7, 100), expected.slice(100, len(expected))])
    assert seen(cut, letters) == seen(expected, letters)


def test_a_model_of_one_kind_with_relations_has_no_field_of_kinds() -> None:
    records = [{"op": "add_vertex", "id": 1, "kind": 7, "x": [1, 2]}, {**EDGE, "type": "writes", "src_kind": 3}]
    records += [EDGE, {**EDGE, "op": "del_edge", "type": None}, {**EDGE, "type": "sells"}]
    for few in (1, 10**9):
        events, letters = Parser(ONE, "int", lines_min=few).parse_jsonl(lines_of(records), ORIGIN)
        assert (events.kind, events.x.matrix.tolist(), events.etype.tolist()) == (None, [[1, 2]], [0, 1, 0, 0])
        assert [letter.error for letter in letters] == [
            "type: expected one of the model's edge types cites, writes, got the string 'sells'"
        ]


def test_edges_of_the_one_relation_of_a_model_without_kinds_need_no_type() -> None:
    features = Features.of_kinds(Kinds(("",), (2,), (Relation(0, "edge", 0, 1), Relation(0, "rev_edge", 0, 0, 0))))
    records = [EDGE, {**EDGE, "type": "edge"}, {**EDGE, "type": None, "op": "del_edge"}, {**EDGE, "type": "other"}]
    for few in (1, 10**9):
        events, letters = Parser(features, "int", lines_min=few).parse_jsonl(lines_of(records), ORIGIN)
        assert events.etype.tolist() == [0, 0, 0]
        assert [letter.offset for letter in letters] == [3]


def test_a_map_of_kinds_needs_a_model_of_kinds() -> None:
    maps: dict[str, str] = {"op": "op", "id": "id", "kind": "'user'"}
    events, _ = Parser(FEATURES, "int", events_map=maps).parse_jsonl(b'{"op":"del_vertex","id":1}', ORIGIN)
    assert len(events) == 1
    _, (letter,) = Parser(FEATURES, events_map={"op": "op", "id": "id"}).parse_jsonl(
        b'{"op":"del_vertex","id":1}', ORIGIN
    )
    assert letter.error == f"kind: missing, expected one of {EVERY}: events_map has no expression for it"
    with pytest.raises(
        InputError, match="events_map: kind: the model has no kinds of vertices, so leave this field out"
    ):
        Parser(Features(2), "int", events_map=[maps])


def test_a_job_without_kinds_does_not_read_them() -> None:
    """A column of that name may be of any type, and is no field of an event."""
    table = pa.table({"op": ["del_vertex"], "id": [1], "kind": [{"a": 1}]})
    events, letters = Parser(Features(2), "int").parse_table(table, ORIGIN)
    assert (len(events), letters, list(Parser(Features(2)).fields)[-1]) == (1, [], "ts")


def test_events_that_the_partitioner_refuses_are_shown_with_their_kinds() -> None:
    far = [GOOD[k] | {"ts": 10**12} for k in (0, 2, 3, 5, 7, 9, 10)]
    near = [{"op": "add_vertex", "id": 9, "kind": "user", "ts": 0}]
    core = Partitioner(1, FEATURES, PartitionerConfig(ts_jump_ms=1000))
    core.partition(one_by_one(near * 20)[0])
    events, _ = one_by_one([*far, *near * 9])
    letters = list(Refusals(["t"], lambda *_: None, FEATURES).letters(events, core.partition(events).rejected))
    rates = {"type": "rates", "src_kind": "shop", "dst_kind": "item"}
    shown = [*far[:5], far[5] | rates, {name: one for name, one in far[6].items() if name not in ("kind", "dst_kind")}]
    assert [orjson.loads(letter.raw) for letter in letters] == shown
    events, letters_again = one_by_one([orjson.loads(letter.raw) for letter in letters])
    assert (len(events), letters_again) == (7, [])


def test_a_kind_without_features_takes_empty_lists() -> None:
    kinds = Kinds(("user", "tag"), (2, 0), (Relation(0, "has", 1),))
    records = [{"op": "set_features", "id": k, "kind": "tag", "x": []} for k in range(3)]
    records += [
        {"op": "add_vertex", "id": 1, "kind": "user", "x": [1, 2]},
        {"op": "add_vertex", "id": 1, "kind": "tag"},
    ]
    records += [{"op": "add_vertex", "id": 9, "kind": "tag", "x": [1]}]
    expected = one_by_one(records, Features.of_kinds(kinds))
    found = Parser(Features.of_kinds(kinds), "int", lines_min=1).parse_jsonl(lines_of(records), ORIGIN)
    assert seen(*found) == seen(*expected)
    assert (len(found[0]), [one.error for one in found[1]]) == (5, ["x: expected 0 numbers for the kind 'tag', got 1"])
