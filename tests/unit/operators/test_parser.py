"""Every rule of the interface's event section, in all three formats."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.dead_letters import DeadLetter
from operators.event_files import ChunkReader, plan_chunks
from operators.parser import Origin, Parser
from partitioner.events import DEFAULT_TYPE, OP_NAMES, Events

ORIGIN = Origin(source=3, name="stream.jsonl", partition=2)
ACCEPTED: list[dict[str, Any]] = [
    {"op": "add_vertex", "id": 7, "x": [0.5, 1]},
    {"op": "add_vertex", "id": 8},
    {"op": "add_vertex", "id": 8, "x": None},
    {"op": "del_vertex", "id": -(2**63)},
    {"op": "set_features", "id": 2**63 - 1, "x": [3.4028234e38, -1e-46]},
    {"op": "add_edge", "src": 7, "dst": 9, "weight": 0.5, "type": "cites", "attr": [1, 2.5]},
    {"op": "add_edge", "src": 7, "dst": 7, "weight": 3},
    {"op": "add_edge", "src": 9, "dst": 7, "weight": None, "type": None, "attr": None, "ts": None},
    {"op": "add_edge", "src": 9, "dst": 7, "type": "", "ts": 1_700_000_000_000},
    {"op": "add_edge", "src": 9, "dst": 7, "type": "writes", "weight": -0.0},
    {"op": "del_edge", "src": 7, "dst": 9, "type": "cites"},
    {"op": "del_edge", "src": 7, "dst": 9, "unknown": 1},
    # fields that an event has no use for are ignored, whatever they hold
    {"op": "del_vertex", "id": 7, "x": [1, 2, 3], "weight": "heavy"},
    {"op": "del_edge", "src": 7, "dst": 9, "weight": "heavy", "attr": "none", "id": True},
    {"op": "set_features", "id": 1, "x": [1, 2], "src": 1.5, "type": 5},
]
REJECTED: list[tuple[dict[str, Any], str]] = [
    ({}, "op: missing"),
    ({"op": None, "id": 1}, "op: missing"),
    ({"op": "add", "id": 1}, "op: expected one of add_vertex, del_vertex, set_features, add_edge, del_edge, got the "),
    ({"op": 3, "id": 1}, "op: expected a string, got the integer 3"),
    ({"op": ["add_vertex"], "id": 1}, "op: expected a string, got a list"),
    ({"op": "add_vertex"}, "id: missing"),
    ({"op": "del_vertex", "id": None}, "id: missing"),
    ({"op": "del_vertex", "id": True}, "id: expected an integer, got the boolean true"),
    ({"op": "del_vertex", "id": 7.0}, "id: expected an integer, got the number 7.0"),
    ({"op": "del_vertex", "id": [7]}, "id: expected an integer, got a list"),
    ({"op": "del_vertex", "id": {"a": 7}}, "id: expected an integer, got an object"),
    ({"op": "del_vertex", "id": 2**63}, "id: expected an integer within int64, got 9223372036854775808"),
    ({"op": "del_vertex", "id": "7"}, "id: expected an integer like the job's other ids, got the string '7'"),
    ({"op": "set_features", "id": 1}, "x: missing, set_features needs it"),
    ({"op": "set_features", "id": 1, "x": None}, "x: missing"),
    ({"op": "set_features", "id": 1, "x": []}, "x: expected 2 numbers, got 0"),
    ({"op": "set_features", "id": 1, "x": [1.0]}, "x: expected 2 numbers, got 1"),
    ({"op": "add_vertex", "id": 1, "x": [1.0, 2.0, 3.0]}, "x: expected 2 numbers, got 3"),
    ({"op": "add_vertex", "id": 1, "x": 1.5}, "x: expected a list of numbers, got the number 1.5"),
    ({"op": "add_vertex", "id": 1, "x": "12"}, "x: expected a list of numbers, got the string '12'"),
    ({"op": "add_vertex", "id": 1, "x": [True, False]}, "x: expected numbers, got the boolean true at index 0"),
    ({"op": "add_vertex", "id": 1, "x": [1.0, None]}, "x: expected numbers, got null at index 1"),
    ({"op": "add_vertex", "id": 1, "x": ["1", "2"]}, "x: expected numbers, got the string '1' at index 0"),
    ({"op": "add_vertex", "id": 1, "x": [[1], [2]]}, "x: expected numbers, got a list at index 0"),
    ({"op": "add_vertex", "id": 1, "x": [0.5, 1e39]}, "x: not finite in float32 at index 1, got the number 1e+39"),
    ({"op": "add_vertex", "id": 1, "x": [-3.4028236e38, 0]}, "x: not finite in float32 at index 0"),
    ({"op": "add_edge", "src": 1}, "dst: missing"),
    ({"op": "add_edge", "dst": 1}, "src: missing"),
    ({"op": "del_edge", "src": 1, "dst": None}, "dst: missing"),
    ({"op": "add_edge", "src": 1, "dst": "1"}, "dst: expected an integer like the job's other ids, got the string"),
    ({"op": "add_edge", "src": False, "dst": 1}, "src: expected an integer, got the boolean false"),
    ({"op": "add_edge", "src": 1, "dst": 2**64 - 1}, "dst: expected an integer within int64"),
    ({"op": "add_edge", "src": 1, "dst": 1e300}, "dst: expected an integer within int64, got 1e+300"),
    ({"op": "del_vertex", "id": -(2.0**63)}, "id: expected an integer within int64, got -9.223372036854776e+18"),
    ({"op": "add_edge", "src": 1, "dst": 2, "weight": "1"}, "weight: expected a number, got the string '1'"),
    ({"op": "add_edge", "src": 1, "dst": 2, "weight": True}, "weight: expected a number, got the boolean true"),
    ({"op": "add_edge", "src": 1, "dst": 2, "weight": [1]}, "weight: expected a number, got a list"),
    ({"op": "add_edge", "src": 1, "dst": 2, "weight": 1e39}, "weight: not finite in float32, got the number 1e+39"),
    ({"op": "add_edge", "src": 1, "dst": 2, "type": 5}, "type: expected a string, got the integer 5"),
    ({"op": "del_edge", "src": 1, "dst": 2, "type": ["a"]}, "type: expected a string, got a list"),
    ({"op": "add_edge", "src": 1, "dst": 2, "attr": 1}, "attr: expected a list of numbers, got the integer 1"),
    ({"op": "add_edge", "src": 1, "dst": 2, "attr": [True]}, "attr: expected numbers, got the boolean true"),
    ({"op": "add_edge", "src": 1, "dst": 2, "attr": [0.0, 1e39]}, "attr: not finite in float32 at index 1"),
    ({"op": "del_vertex", "id": 1, "ts": 1.5}, "ts: expected an integer (ms), got the number 1.5"),
    ({"op": "add_edge", "src": 1, "dst": 2, "ts": "now"}, "ts: expected an integer (ms), got the string 'now'"),
    ({"op": "add_edge", "src": 1, "dst": 2, "ts": True}, "ts: expected an integer (ms), got the boolean true"),
]
NOT_JSON = [
    (b"{", "not JSON"),
    (b"nonsense", "not JSON"),
    (b'{"op":"del_vertex","id":1} x', "not JSON"),
    (b'{"op":"del_vertex","id":1}{"op":"del_vertex","id":1}', "not JSON"),
    (b'{"op":"add_vertex","id":1,"x":[NaN,1]}', "not JSON"),
    (b'{"op":"add_vertex","id":1,"x":[1,Infinity]}', "not JSON"),
    (b'{"op":"add_edge","src":1,"dst":2,"weight":1e400}', "not JSON: number is infinity"),
    (b'{"op":"del_vertex","id":' + b"9" * 400 + b"}", "not JSON: number is infinity"),
    (b'{"op":"del_vertex","id":"\xff"}', "not UTF-8: invalid start byte at byte 25"),
    (b'{"op":"del_vertex","id":"\\ud800"}', "not JSON"),
    (b"[" * 100_000, "not JSON"),
    (b'{"op":' + b"[" * 900 + b"]" * 900 + b"}", "op: expected a string, got a list"),
    (b"[]", "expected a JSON object, got a list"),
    (b"7", "expected a JSON object, got the integer 7"),
    (b'"op"', "expected a JSON object, got the string 'op'"),
    (b"null", "expected a JSON object, got null"),
    (b"true", "expected a JSON object, got the boolean true"),
]


def as_rows(events: Events) -> list[tuple[Any, ...]]:
    return [
        (OP_NAMES[op], a, b, weight, events.types[etype], events.x[row].tolist() if row >= 0 else None, position)
        for op, a, b, weight, etype, row, position in zip(
            events.op,
            events.a.to_list(),
            events.b.to_list(),
            events.weight.tolist(),
            events.etype,
            events.x_row,
            events.position.tolist(),
            strict=True,
        )
    ]


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def table(rows: list[dict[str, Any]], **types: pa.DataType) -> pa.Table:
    """The rows as a table; a column that holds several Python types is left to fail."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        integers = [value for value in values if type(value) is int]
        inferred = pa.uint64() if integers and max(integers) >= 2**63 else None
        kind = types.get(name, inferred)
        if kind is not None and pa.types.is_dictionary(kind):  # pyarrow makes few kinds of these by itself
            encoded = pa.array(values, kind.value_type).dictionary_encode()
            columns[name] = pa.DictionaryArray.from_arrays(encoded.indices.cast(kind.index_type), encoded.dictionary)
        else:
            columns[name] = pa.array(values, kind)
    return pa.table(columns)


def the_same_as_jsonl(rows: list[dict[str, Any]], batch: pa.Table, **options: Any) -> list[DeadLetter]:
    plain, plain_letters = Parser(2, **options).parse_jsonl(jsonl(rows), ORIGIN, 100)
    parsed, letters = Parser(2, **options).parse_table(batch, ORIGIN, 100)
    assert as_rows(parsed) == as_rows(plain)
    assert [letter[:4] for letter in letters] == [letter[:4] for letter in plain_letters]
    assert parsed.reject_rows.tolist() == plain.reject_rows.tolist()
    assert parsed.end_position == plain.end_position == 100 + len(rows)
    assert parsed.types == plain.types
    assert parsed.a.kind == plain.a.kind
    assert len(parsed) + len(letters) == len(rows)
    return letters


def test_accepted_events() -> None:
    events, letters = Parser(2).parse_jsonl(jsonl(ACCEPTED), ORIGIN, first_line=10, arrival_ms=5.0)
    assert letters == []
    rows = as_rows(events)
    assert [row[6] for row in rows] == list(range(11, 11 + len(ACCEPTED)))
    assert rows[0][:6] == ("add_vertex", 7, 0, 1.0, DEFAULT_TYPE, [0.5, 1.0])
    assert [row[5] for row in rows[1:4]] == [None, None, None]
    assert rows[4][5] == [np.float32(3.4028234e38), 0.0]
    assert rows[5][:6] == ("add_edge", 7, 9, 0.5, "cites", None)
    assert [(row[3], row[4]) for row in rows[6:10]] == [(3, ""), (1, ""), (1, ""), (0, "writes")]
    assert rows[10][:5] == ("del_edge", 7, 9, 1.0, "cites")
    assert all(row[3] == 1 for row in rows[10:])
    assert (set(events.source.tolist()), set(events.partition.tolist())) == ({3}, {2})
    assert (events.end_source, events.end_partition, events.end_position) == (3, 2, 10 + len(ACCEPTED))
    assert (events.arrival_ms, events.types) == (5.0, (DEFAULT_TYPE, "cites", "writes"))


@pytest.mark.parametrize(("record", "reason"), REJECTED)
def test_a_rejected_record_is_set_aside_with_its_reason(record: dict[str, Any], reason: str) -> None:
    line = orjson.dumps(record)
    good = b'{"op":"del_vertex","id":1}'
    events, letters = Parser(2, "int").parse_jsonl(b"\n".join([good, line, good]), ORIGIN, 40)
    assert len(letters) == 1
    assert reason in letters[0].error
    assert letters[0][1:] == ("stream.jsonl", 2, 41, line)
    assert events.position.tolist() == [41, 43]
    assert events.reject_rows.tolist() == [1]


@pytest.mark.parametrize(("record", "reason"), REJECTED[1:])
def test_tables_reject_the_same(record: dict[str, Any], reason: str) -> None:
    events, letters = Parser(2, "int").parse_table(table([record]), ORIGIN, 40)
    assert len(events) == 0
    assert len(letters) == 1
    assert reason in letters[0].error
    assert letters[0][1:4] == ("stream.jsonl", 2, 40)
    assert json.loads(letters[0].raw) == {name: value for name, value in record.items() if value is not None}


@pytest.mark.parametrize(("line", "reason"), NOT_JSON)
def test_what_is_no_json_object(line: bytes, reason: str) -> None:
    events, letters = Parser(2).parse_jsonl(line + b"\n", ORIGIN)
    assert len(events) == 0
    assert [(letter.offset, letter.raw) for letter in letters] == [(0, line)]
    assert reason in letters[0].error
    assert len(letters[0].error) < 200


def test_blank_lines_are_skipped_and_counted_as_lines() -> None:
    data = b'\n  \t\r\n{"op":"del_vertex","id":1}\r\n\n \n{"op":"del_vertex","id":2}\n\n'
    events, letters = Parser(2).parse_jsonl(data, ORIGIN)
    assert letters == []
    assert events.position.tolist() == [3, 6]
    assert events.end_position == 7


def test_duplicate_keys_are_fine() -> None:
    events, letters = Parser(2).parse_jsonl(b'{"op":"del_vertex","id":1,"id":2}', ORIGIN)
    assert (events.a.to_list(), letters) == ([2], [])


@pytest.mark.parametrize("first", [5, "five"])
def test_the_first_accepted_event_decides_the_kind_of_ids(first: int | str) -> None:
    other: int | str = "a" if first == 5 else 7
    rows = [
        {"op": "set_features", "id": other, "x": [1]},  # rejected for its width, so it decides nothing
        {"op": "add_edge", "src": first, "dst": other},
        {"op": "del_vertex", "id": first},
        {"op": "del_vertex", "id": other},
    ]
    parser = Parser(2)
    assert parser.id_kind is None
    events, letters = parser.parse_jsonl(jsonl(rows), ORIGIN)
    assert parser.id_kind == ("int" if first == 5 else "string")
    assert events.a.to_list() == [first]
    assert [letter.offset for letter in letters] == [0, 1, 3]
    assert "like the job's other ids" in letters[1].error


def test_columns_of_two_id_kinds_in_a_table() -> None:
    rows = [
        {"op": "set_features", "id": 1, "x": [1.0]},
        {"op": "add_edge", "src": "a", "dst": "b"},
        {"op": "del_vertex", "id": 1},
    ]
    letters = the_same_as_jsonl(rows, table(rows))
    assert [letter.offset for letter in letters] == [100, 102]


def test_types_of_a_typed_model_are_its_relation_index() -> None:
    rows = [
        {"op": "add_edge", "src": 1, "dst": 2, "type": "writes"},
        {"op": "add_edge", "src": 1, "dst": 2},
        {"op": "add_edge", "src": 1, "dst": 2, "type": "likes"},
        {"op": "del_edge", "src": 1, "dst": 2, "type": "cites"},
    ]
    events, letters = Parser(2, edge_types=["cites", "writes"]).parse_jsonl(jsonl(rows), ORIGIN)
    assert events.etype.tolist() == [1, 0, 0]
    assert events.types == ("cites", "writes")
    assert [letter.error for letter in letters] == [
        "type: expected one of the model's edge types cites, writes, got the string 'likes'"
    ]
    the_same_as_jsonl(rows, table(rows), edge_types=["cites", "writes"])


@pytest.mark.parametrize("kind", ["int", "string"])
@pytest.mark.parametrize(
    ("features", "text"),
    [
        (pa.list_(pa.float32()), pa.string()),
        (pa.list_(pa.float64()), pa.large_string()),
        (pa.large_list(pa.float32()), pa.dictionary(pa.int8(), pa.string())),
        (pa.list_(pa.float32(), 2), pa.dictionary(pa.int32(), pa.large_string())),
        (pa.list_(pa.float64(), 2), pa.string()),
    ],
)
def test_tables_give_the_events_of_json_lines(kind: str, features: pa.DataType, text: pa.DataType) -> None:
    rng = random.Random(7)
    rows = random_rows(rng, kind, 3000, fixed=pa.types.is_fixed_size_list(features))
    types = {"x": features, "op": text, "type": text, "weight": pa.float64(), "attr": pa.list_(pa.float64())}
    if kind == "string":
        types |= dict.fromkeys(("id", "src", "dst"), text)
        if pa.types.is_dictionary(text) and text.index_type == pa.int8():
            rows = rows[:60]
    batch = table(rows, **types)
    letters = the_same_as_jsonl(rows, batch)
    assert letters
    # neither a slice nor several chunks change anything
    half = len(rows) // 2
    the_same_as_jsonl(rows[half:], batch.slice(half))
    the_same_as_jsonl(rows, pa.concat_tables([batch.slice(0, half), batch.slice(half)]))


def random_rows(rng: random.Random, kind: str, n: int, fixed: bool = False) -> list[dict[str, Any]]:
    """Events of all kinds, a tenth of them bad in some way that a typed table can hold."""

    def vertex() -> Any:
        number = rng.randrange(30)
        return number - 15 if kind == "int" else f"{'ü' * (number % 3)}{number}"

    rows: list[dict[str, Any]] = []
    for _ in range(n):
        op = rng.choice(OP_NAMES)
        if op.endswith("edge"):
            row = {"op": op, "src": vertex(), "dst": vertex()}
            row |= {} if rng.random() < 0.5 else {"weight": rng.choice([0.5, 2.0, 1e-3])}
            row |= {} if rng.random() < 0.5 else {"type": rng.choice(["a", "b", "", "c"])}
            row |= {} if rng.random() < 0.7 else {"attr": [1.0] * rng.randrange(3)}
        else:
            row = {"op": op, "id": vertex()}
            if op != "del_vertex" or rng.random() < 0.2:
                row["x"] = [rng.random(), rng.randrange(5) * 1.0]
        if rng.random() < 0.1:
            bad: dict[str, Any] = rng.choice(
                [{"op": "x"}, {"op": None}, {"id": None}, {"src": None}, {"dst": None}, {"weight": 1e300}]
                + [{"x": [1e39, 0.0]}, {"x": None}, {"attr": [1.0, 1e200]}]
                + ([] if fixed else [{"x": [1.0]}, {"x": []}, {"x": [1.0, 2.0, 3.0]}])
            )
            row |= {name: value for name, value in bad.items() if name in row}
        if "x" in row and row["x"] and max(row["x"]) > 1e38 and not fixed:
            row["x"] = [0.0, 1.0]  # float32 columns cannot hold it; the fixed ones below can
        rows.append({name: value for name, value in row.items() if value is not None})
    if fixed:
        rows = [{**row, "x": [0.0, 1.0]} if max(row.get("x") or [0]) > 1e38 else row for row in rows]
    return rows


def test_values_that_only_tables_can_hold() -> None:
    nan, inf = float("nan"), float("inf")
    batch = pa.table(
        {
            "op": ["set_features", "set_features", "set_features", "add_edge", "add_edge", "add_edge", "add_edge"],
            "id": pa.array([1, 2, 3, None, None, None, None], pa.int8()),
            "src": pa.array([None, None, None, 1, 2, 2**64 - 1, 4], pa.uint64()),
            "dst": pa.array([None, None, None, 1, 2, 3, 4], pa.int32()),
            "x": pa.array([[1, nan], [inf, 1], [1, 2], None, None, None, None], pa.list_(pa.float32())),
            "weight": pa.array([None, nan, None, nan, 2, 1, -inf], pa.float32()),
        }
    )
    events, letters = Parser(2).parse_table(batch, ORIGIN)
    assert [row[:4] for row in as_rows(events)] == [("set_features", 3, 0, 1.0), ("add_edge", 2, 2, 2.0)]
    assert [(letter.offset, letter.error) for letter in letters] == [
        (0, "x: not finite in float32 at index 1, got the number nan"),
        (1, "x: not finite in float32 at index 0, got the number inf"),
        (3, "weight: not finite in float32, got the number nan"),
        (5, "src: expected an integer within int64, got 18446744073709551615"),
        (6, "weight: not finite in float32, got the number -inf"),
    ]
    assert letters[0].raw == b'{"op":"set_features","id":1,"x":[1.0,NaN]}'


def test_a_null_list_may_hide_values() -> None:
    offsets = pa.array([0, 2, 4, 6], pa.int32())
    hidden = pa.ListArray.from_arrays(offsets, pa.array([1, 2, np.nan, 3, 4, 5], pa.float32()))
    buffers = hidden.buffers()
    x = pa.ListArray.from_buffers(
        hidden.type, 3, [pa.py_buffer(b"\x05"), buffers[1]], null_count=1, children=[hidden.values]
    )
    batch = pa.table({"op": ["set_features", "add_vertex", "set_features"], "id": [1, 2, 3], "x": x, "attr": x})
    events, letters = Parser(2).parse_table(batch, ORIGIN)
    assert letters == []
    assert [row[5] for row in as_rows(events)] == [[1, 2], None, [4, 5]]


def test_strings_that_are_not_utf8_in_a_table() -> None:
    def broken(*texts: bytes) -> pa.Array:
        binary = pa.array(texts, pa.binary())
        return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())

    batch = pa.table(
        {
            "op": broken(b"add_edge", b"add_edge", b"add_\xff", b"add_edge", b"add_edge"),
            "src": broken(b"\xc3", b"a", b"b", b"c", "ä".encode()),
            "dst": broken(b"\xa4", b"b", b"c", b"d", b""),
            "type": broken(b"t", b"\xff", b"t", b"t", b"t"),
        }
    )
    events, letters = Parser(2).parse_table(batch, ORIGIN)
    assert [row[:5] for row in as_rows(events)] == [("add_edge", "c", "d", 1, "t"), ("add_edge", "ä", "", 1, "t")]
    assert [letter.error for letter in letters] == [
        "src: expected an integer or a string, got bytes that are not UTF-8",
        "type: expected a string, got bytes that are not UTF-8",
        "op: expected a string, got bytes that are not UTF-8",
    ]
    assert json.loads(letters[0].raw)["src"] == "\\xc3"


def test_columns_of_a_wrong_type_are_named() -> None:
    now = pa.array([1_700_000_000_000_000_001], pa.timestamp("ns"))
    batch = pa.table({"op": ["del_vertex"], "id": now})
    _, letters = Parser(2).parse_table(batch, ORIGIN)
    assert letters[0].error == "id: expected an integer or a string, got a value of type timestamp[ns]"
    batch = pa.table({"op": ["del_vertex"], "id": [1], "ts": now})
    _, letters = Parser(2).parse_table(batch, ORIGIN)
    assert letters[0].error == "ts: expected an integer (ms), got a value of type timestamp[ns]"
    _, letters = Parser(2).parse_table(pa.table({"id": [1, 2]}), ORIGIN)
    assert [letter.error for letter in letters] == ["op: missing", "op: missing"]


def test_a_block_with_too_many_edge_types_rejects_the_last() -> None:
    n = 32_770
    batch = pa.table(
        {"op": ["add_edge"] * n, "src": np.arange(n), "dst": np.arange(n), "type": [f"t{k}" for k in range(n)]}
    )
    events, letters = Parser(1).parse_table(batch, ORIGIN)
    assert (len(events), len(letters)) == (n - 3, 3)
    assert "at most 32767 edge types" in letters[0].error
    assert int(events.etype.max()) == 32_767
    assert events.types[int(events.etype[-1])] == f"t{n - 4}"


def test_foreign_records_by_jmespath() -> None:
    mapping = {"op": "kind && 'add_edge'", "src": "user.id", "dst": "merchant", "weight": "to_number(amount)"}
    rows = [
        {"kind": 1, "user": {"id": 5}, "merchant": 6, "amount": "2.5", "type": 7, "op": "nonsense"},
        {"user": {"id": 5}},
        {"kind": 1, "user": "?", "merchant": 6},
    ]
    parser = Parser(2, events_map=mapping)
    events, letters = parser.parse_jsonl(jsonl(rows), ORIGIN)
    assert [row[:5] for row in as_rows(events)] == [("add_edge", 5, 6, 2.5, DEFAULT_TYPE)]
    assert [letter.error for letter in letters] == ["op: missing", "src: missing"]
    batch = pa.table({"kind": [1], "user": [{"id": 5}], "merchant": [6], "amount": ["2.5"]})
    events, letters = Parser(2, events_map=mapping).parse_table(batch, ORIGIN)
    assert [row[:5] for row in as_rows(events)] == [("add_edge", 5, 6, 2.5, DEFAULT_TYPE)]


def test_an_expression_that_fails_rejects_the_record() -> None:
    parser = Parser(2, events_map={"op": "`add_edge`", "src": "length(a)", "dst": "a"})
    events, letters = parser.parse_jsonl(jsonl([{"a": 5}, {"a": "b"}]), ORIGIN)
    assert len(events) == 0
    assert letters[0].error.startswith("src: events_map does not apply: ")
    assert "dst: expected" in letters[1].error


@pytest.mark.parametrize(
    ("mapping", "error"),
    [({"source": "a"}, "got source"), ({"src": "a["}, "src: 'a\\['"), ({"src": 5}, "src: 5 is no JMESPath")],
)
def test_a_bad_map_is_refused(mapping: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Parser(2, events_map=mapping)


def test_an_unknown_id_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="got 'uuid'"):
        Parser(2, "uuid")


def test_nothing_is_fine() -> None:
    for events, letters in [Parser(2).parse_jsonl(b"", ORIGIN, 4), Parser(2).parse_table(pa.table({}), ORIGIN, 4)]:
        assert (len(events), letters, events.end_position, events.in_width) == (0, [], 4, 2)


FRAGMENTS = st.sampled_from(
    [
        *(b'{"op":"add_edge","src":1,"dst":2}', b'{"op":"add_vertex","id":1,"x":[1,2]}', b'"', b"{", b"}", b"[1,"),
        *(
            b'"op":',
            b'"add_edge"',
            b",",
            b"\\u",
            b"1e999",
            b"\0",
            b"\xff",
            b"\xef\xbb\xbf",
            b"\r",
            b" ",
            b"\xed\xa0\x80",
        ),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=40), st.lists(FRAGMENTS, max_size=6).map(b"".join)), max_size=12))
def test_no_bytes_stop_the_parser(lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    expected = data.split(b"\n")
    events, letters = Parser(2).parse_jsonl(data, ORIGIN, 50)
    taken = sorted([*(position - 1 for position in events.position.tolist()), *(letter.offset for letter in letters)])
    assert taken == [50 + k for k, line in enumerate(expected) if line.strip()]
    for letter in letters:
        assert letter.raw == expected[letter.offset - 50]
        assert letter.error
        assert orjson.loads(letter.to_json())["offset"] == letter.offset
    assert events.rejected == len(letters)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) - 1, 2**64) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
FIELD = st.sampled_from(["op", "id", "src", "dst", "x", "weight", "type", "attr", "ts", "other"])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.dictionaries(FIELD, JSON | st.sampled_from(OP_NAMES), max_size=8), max_size=8))
def test_any_json_is_accepted_or_set_aside(rows: list[dict[str, Any]]) -> None:
    data = "\n".join(json.dumps(row) for row in rows).encode()
    events, letters = Parser(2).parse_jsonl(data, ORIGIN)
    assert len(events) + len(letters) == len(rows)
    assert np.isfinite(events.weight).all()
    assert np.isfinite(events.x).all()
    events.encode()


def test_the_three_formats_give_the_same_events(tmp_path: Path) -> None:
    rows = random_rows(random.Random(11), "int", 20_000)
    types = {"x": pa.list_(pa.float32()), "attr": pa.list_(pa.float64()), "weight": pa.float64()}
    batch = table(rows, **types)
    (tmp_path / "a.jsonl").write_bytes(jsonl(rows))
    pq.write_table(batch, tmp_path / "a.parquet", row_group_size=9000)
    with pa.ipc.new_file(tmp_path / "a.arrow", batch.schema) as writer:
        writer.write_table(batch, max_chunksize=5000)
    found = []
    for name in ("a.jsonl", "a.parquet", "a.arrow"):
        parser, reader = Parser(2), ChunkReader()
        parsed = [parser.parse_chunk(chunk, reader.read(chunk)) for chunk in plan_chunks([str(tmp_path / name)])]
        assert len(parsed) == 3
        letters = [(letter.error, letter.offset) for _, letters in parsed for letter in letters]
        found.append((as_rows(Events.concatenate([events for events, _ in parsed])), letters))
    assert len(found[0][0]) + len(found[0][1]) == 20_000
    assert found[0] == found[1] == found[2]


ODD_COLUMNS = {
    "struct": pa.array([{"a": 1}, None, {"a": 2}]),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "decimal": pa.array([1, None, 2], pa.decimal128(5, 2)),
    "date": pa.array([1, None, 2], pa.date32()),
    "duration": pa.array([1, None, 2], pa.duration("ns")),
    "binary": pa.array([b"a", None, b"\xff"]),
    "fixed binary": pa.array([b"ab", None, b"\xff\xff"], pa.binary(2)),
    "bool": pa.array([True, None, False]),
    "half": pa.array([np.float16(1), None, np.float16(2)]),
    "strings": pa.array([["a"], None, ["b", None]]),
    "lists of lists": pa.array([[[1]], None, [[None]]]),
    "lists of structs": pa.array([[{"a": 1}], None, []]),
    "list of halves": pa.array([[np.float16(1), np.float16(1)], None, []], pa.list_(pa.float16())),
    "list of nulls": pa.array([[None, None], None, []]),
    "integer dictionary": pa.array([1, None, 2]).dictionary_encode(),
    "dictionary with a null": pa.DictionaryArray.from_arrays([0, 1, 2], ["add_edge", None, "del_edge"]),
    "binary dictionary": pa.array([b"a", None, b"b"]).dictionary_encode(),
    "view": pa.array(["a", None, "b"]).cast(pa.large_string()),
    "nulls": pa.nulls(3),
    "fixed lists": pa.array([[1, 2], None, [None, 3]], pa.list_(pa.int64(), 2)),
    "unsigned": pa.array([1, None, 2**64 - 1], pa.uint64()),
    "float": pa.array([1.0, None, float("nan")]),
}


@pytest.mark.parametrize("name", ["op", "id", "src", "dst", "x", "weight", "type", "attr", "ts"])
@pytest.mark.parametrize("odd", ODD_COLUMNS)
def test_no_column_stops_the_parser(name: str, odd: str) -> None:
    for op in ("add_edge", "add_vertex", "set_features"):
        columns = {"op": pa.array([op] * 3), "id": pa.array([1, 2, 3]), "src": pa.array([1, 2, 3])}
        columns |= {"dst": pa.array([4, 5, 6]), "x": pa.array([[1.0, 2.0]] * 3), name: ODD_COLUMNS[odd]}
        for kind in (None, "int", "string"):
            for batch in (pa.table(columns), pa.table(columns).slice(1), pa.table(columns).slice(0, 0)):
                events, letters = Parser(2, kind).parse_table(batch, ORIGIN)
                assert len(events) + len(letters) == batch.num_rows
                assert all(letter.error and json.loads(letter.raw) for letter in letters)
                assert np.isfinite(events.x).all()
                assert np.isfinite(events.weight).all()
                Events.decode(events.encode())


@pytest.mark.parametrize(
    ("number", "kind", "reason"),
    [
        (2**63, "int", "id: expected an integer within int64, got 9223372036854775808"),
        (2**64, "int", "id: expected an integer within int64, got 1.8446744073709552e+19"),
        (-(2**63) - 1, "int", "id: expected an integer within int64, got -9.223372036854776e+18"),
        (2**64, None, "id: expected an integer within int64, got 1.8446744073709552e+19"),
        (2**63, "string", "id: expected a string like the job's other ids, got the integer 9223372036854775808"),
        (2**64, "string", "id: expected a string, got the number 1.8446744073709552e+19"),
    ],
)
def test_integers_that_are_too_large_for_an_id_are_told_so(number: int, kind: str | None, reason: str) -> None:
    _, letters = Parser(2, kind).parse_jsonl(b'{"op":"del_vertex","id":%d}' % number, ORIGIN)
    assert [letter.error for letter in letters] == [reason]


def test_dictionaries_that_differ_by_chunk() -> None:
    first = pa.table({"op": ["add_edge"], "src": [1], "dst": [2], "type": pa.array(["a"]).dictionary_encode()})
    second = pa.table({"op": ["add_edge"], "src": [1], "dst": [2], "type": pa.array(["b"]).dictionary_encode()})
    events, _ = Parser(2).parse_table(pa.concat_tables([first, second, first]), ORIGIN)
    assert [events.types[code] for code in events.etype] == ["a", "b", "a"]
