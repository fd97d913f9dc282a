"""The interface's event section in Parquet and Arrow: what JSON Lines would give, and what only tables can hold."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.operators.parser.core import Parser
from freshet.operators.parser.files import ChunkReader, plan_chunks
from freshet.partitioner.events import Events
from freshet.schema import Features
from tests.support.stages.parsed import ORIGIN, REJECTED, as_rows, jsonl, random_rows, table, the_same_as_jsonl


@pytest.mark.parametrize(("record", "reason"), [one for one in REJECTED[1:] if one[0].get("id") != 7.0])
def test_tables_reject_the_same(record: dict[str, Any], reason: str) -> None:
    events, letters = Parser(Features(2), "int").parse_table(table([record]), ORIGIN, 40)
    assert len(events) == 0
    assert len(letters) == 1
    assert reason in letters[0].error
    assert letters[0][1:4] == ("stream.jsonl", 2, 40)
    assert json.loads(letters[0].raw) == {name: value for name, value in record.items() if value is not None}


def test_columns_of_two_id_kinds_in_a_table() -> None:
    rows = [
        {"op": "set_features", "id": 1, "x": [1.0]},
        {"op": "add_edge", "src": "a", "dst": "b"},
        {"op": "del_vertex", "id": 1},
    ]
    letters = the_same_as_jsonl(rows, table(rows))
    assert [letter.offset for letter in letters] == [100, 102]


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
    events, letters = Parser(Features(2)).parse_table(batch, ORIGIN)
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
    events, letters = Parser(Features(2)).parse_table(batch, ORIGIN)
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
    events, letters = Parser(Features(2)).parse_table(batch, ORIGIN)
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
    _, letters = Parser(Features(2)).parse_table(batch, ORIGIN)
    assert letters[0].error == "id: expected an integer or a string, got a value of type timestamp[ns]"
    _, letters = Parser(Features(2)).parse_table(pa.table({"id": [1, 2]}), ORIGIN)
    assert [letter.error for letter in letters] == ["op: missing", "op: missing"]


def test_a_block_may_have_any_number_of_edge_types() -> None:
    n = 40_000
    batch = pa.table(
        {"op": ["add_edge"] * n, "src": np.arange(n), "dst": np.arange(n), "type": [f"t{k}" for k in range(n)]}
    )
    events, letters = Parser(Features(1)).parse_table(batch, ORIGIN)
    assert (len(events), letters) == (n, [])
    back = Events.decode(events.encode())
    assert [back.types[code] for code in back.etype] == [f"t{k}" for k in range(n)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_texts_that_are_too_long_are_rejected_in_tables(kind: pa.DataType) -> None:
    texts = ["a", "x" * 1024, "x" * 1025, "é" * 512, "é" * 513, "x" * 300_000]
    rows = [{"op": "add_vertex", "id": text} for text in texts]
    rows += [{"op": "add_edge", "src": text, "dst": "a"} for text in texts]
    rows += [{"op": "del_edge", "src": "a", "dst": text, "type": "t"} for text in texts]
    rows += [{"op": "add_edge", "src": "a", "dst": "b", "type": text} for text in texts]
    letters = the_same_as_jsonl(rows, table(rows, id=kind, src=kind, dst=kind, type=kind))
    assert [letter.offset for letter in letters] == [100 + 6 * k + bad for k in range(4) for bad in (2, 4, 5)]


def test_an_empty_type_and_the_width_of_attr_in_tables() -> None:
    rows = [{"op": "add_edge", "src": 1, "dst": 2, "type": name} for name in ("a", "", "b")]
    rows += [{"op": "add_edge", "src": 1, "dst": 2, "attr": [1.0] * k} for k in range(3)]
    rows += [{"op": "del_edge", "src": 1, "dst": 2, "attr": [1.0]}]
    (letter,) = the_same_as_jsonl(rows, table(rows))
    assert letter.error == "type: expected a name, got an empty string"
    events, _ = Parser(Features(2)).parse_table(table(rows), ORIGIN)
    assert events.values.attr_sizes is not None and events.values.attr_sizes.tolist() == [-1, -1, 0, 1, 2, -1]


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
        parser, reader = Parser(Features(2)), ChunkReader()
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
                events, letters = Parser(Features(2), kind).parse_table(batch, ORIGIN)
                assert len(events) + len(letters) == batch.num_rows
                assert all(letter.error and json.loads(letter.raw) for letter in letters)
                assert np.isfinite(events.x.matrix).all()
                assert np.isfinite(events.values.weight).all()
                Events.decode(events.encode())


def test_dictionaries_that_differ_by_chunk() -> None:
    first = pa.table({"op": ["add_edge"], "src": [1], "dst": [2], "type": pa.array(["a"]).dictionary_encode()})
    second = pa.table({"op": ["add_edge"], "src": [1], "dst": [2], "type": pa.array(["b"]).dictionary_encode()})
    events, _ = Parser(Features(2)).parse_table(pa.concat_tables([first, second, first]), ORIGIN)
    assert [events.types[code] for code in events.etype] == ["a", "b", "a"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_long_id_leaves_the_others_of_a_slice_as_they_are(kind: pa.DataType) -> None:
    """Most batches of a file are slices."""
    ids = ["before", *(f"v{k}" for k in range(20)), "x" * 30, "last"]
    table = pa.table({"op": ["del_vertex"] * len(ids), "id": pa.array(ids, pa.string()).cast(kind)}).slice(1)
    events, letters = Parser(Features(1), "string", id_bytes_max=8).parse_table(
        table.combine_chunks().to_batches()[0], ORIGIN
    )
    assert events.a.to_list() == [*ids[1:-2], "last"]
    assert [one.error for one in letters] == ["id: expected at most 8 bytes, got 30"]
