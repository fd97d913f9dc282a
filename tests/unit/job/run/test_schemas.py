"""What a table's schema shows before a row is read, by column and type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.job.run.schemas import findings, tell_fields, tell_schemas
from freshet.kinds import Kinds, Relation
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.event_files import list_files
from freshet.operators.parser.keys import KeyRules
from freshet.operators.parser.rules import FIELDS
from freshet.schema import Features

SPARK_VECTOR = pa.struct(
    {"type": pa.int8(), "size": pa.int32(), "indices": pa.list_(pa.int32()), "values": pa.list_(pa.float64())}.items()
)
GOOD = {"op": pa.string(), "src": pa.int64(), "dst": pa.int64()}


def said(id_kind: str | None = None, **columns: pa.DataType) -> list[str]:
    return list(findings(pa.schema({**GOOD, **columns}), Features(2), id_kind))


def test_columns_as_events_have_them_show_nothing() -> None:
    texts = pa.dictionary(pa.int32(), pa.string())
    usual = {"x": pa.list_(pa.float32()), "weight": pa.float64(), "type": texts, "ts": pa.int64(), "other": pa.date32()}
    assert said(**usual, attr=pa.null(), id=pa.uint32()) == []
    assert said("int", op=pa.string_view(), x=pa.list_(pa.float16(), 2), weight=pa.float32()) == []
    assert said("string", id=pa.large_string(), src=texts, dst=pa.string()) == []


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "op"])
def test_each_field_of_events_is_judged(name: str) -> None:
    odd = pa.struct([("a", pa.int64())])
    assert said(**{name: odd})[0].startswith(f"column {name} is {odd}: ")


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"src": pa.float64()}, "column src is double: whole numbers are taken as ids, others rejected"),
        ({"dst": pa.decimal128(10, 0)}, "column dst is decimal128(10, 0): whole numbers are taken as ids"),
        ({"src": pa.bool_()}, "column src is bool: expected integers or strings"),
        ({"src": pa.string()}, "ids of two kinds (src: string, dst: int): one will be rejected; --id-type string"),
        ({"id": pa.uint64()}, "column id is uint64: those of 2^63 and more will be rejected; --id-type string"),
        ({"id": pa.binary(16)}, "UUIDs are written as text: CAST(... AS VARCHAR)"),
        ({"src": pa.binary()}, "bytes are written as text"),
        ({"x": SPARK_VECTOR}, "a vector of Spark ML is written as a list by pyspark.ml.functions.vector_to_array"),
        (
            {"x": pa.struct([(f"f{k}", pa.float32()) for k in range(4)])},
            "as a list of its fields: array(f0, f1, f2, ...)",
        ),
        ({"edge_type": pa.int64()}, "edge_type is not read: name it type"),
        ({"weight": pa.decimal256(40, 2)}, "column weight is decimal256(40, 2): taken as float32"),
        ({"weight": pa.string()}, "column weight is string: expected numbers: each event with it will be rejected"),
        ({"x": pa.list_(pa.decimal128(5, 1))}, "taken as float32"),
        ({"x": pa.list_(pa.string())}, "column x is list<item: string>: expected numbers"),
        ({"x": pa.list_(pa.float32(), 3)}, "expected the model's 2 numbers"),
        ({"attr": pa.float32()}, "column attr is float: expected lists of numbers"),
        ({"type": pa.int32()}, "column type is int32: expected strings"),
        ({"op": pa.binary()}, "column op is binary: expected strings"),
        ({"ts": pa.date32()}, "column ts is date32[day]: expected integers or timestamps: each event"),
        ({"ts": pa.float64()}, "column ts is double: whole numbers are taken, others rejected"),
        ({"ts": pa.string()}, "column ts is string: expected integers or timestamps"),
    ],
)
def test_a_column_of_another_type_is_named(columns: dict[str, Any], line: str) -> None:
    (found,) = said(**columns)
    assert line in found


@pytest.mark.parametrize(
    ("column", "kind", "words"),
    [
        (pa.int32(), None, ""),
        (pa.string(), None, ""),
        (pa.dictionary(pa.int32(), pa.string()), "string", ""),
        (pa.string(), "int", "expected integers, as the job's keys"),
        (pa.int64(), "string", "expected strings, as the job's keys"),
        (pa.uint64(), None, "those of 2^63 and more will be rejected"),
        (pa.float64(), "int", "whole numbers are taken as keys, others rejected"),
        (pa.decimal128(9, 2), None, "whole numbers are taken as keys, others rejected"),
        (pa.bool_(), None, "expected integers or strings: each edge with it will be rejected"),
        (pa.binary(16), None, "UUIDs are written as text"),
        (pa.timestamp("ms"), None, "expected integers or strings"),
        (pa.null(), None, ""),
        (pa.bool_(), "", ""),
    ],
)
def test_a_column_of_keys_is_judged(column: pa.DataType, kind: str | None, words: str) -> None:
    schema = pa.schema({**GOOD, "pay": column})
    found = list(findings(schema, Features(2), None, KeyRules("pay", kind)))
    assert len(found) == bool(words) and all(words in line for line in found)
    parser = Parser(Features(2), "int", keys=KeyRules("pay", kind))
    value: Any = {"bool": True, "double": 7.0, "int64": 7, "int32": 7, "string": "a"}.get(str(column))
    if value is not None and kind != "":
        table = pa.table({"op": ["add_edge"], "src": [1], "dst": [2], "pay": pa.array([value], column)})
        letters = parser.parse_table(table, Origin())[1]
        assert bool(letters) == any("will be rejected" in line for line in found), "what is said comes true"


def test_edges_without_the_field_of_their_keys_are_said(tmp_path: Path) -> None:
    keys, lines = KeyRules("pay", None), list[str]()
    assert list(findings(pa.schema(GOOD), Features(2), None, keys)) == [
        "no pay, which --edge-key names: edges without it have no key, and are one for each pair"
    ]
    assert "offset gives each edge" in next(
        findings(pa.schema({**GOOD, "key": pa.int64()}), Features(2), None, KeyRules("offset", "int"))
    )
    plain = b'{"op":"add_edge","src":1,"dst":2,"payment":7}'
    tell_fields("kafka://h:1/t", [plain], Features(2), lines.append, keys)
    (tmp_path / "a.jsonl").write_bytes(plain)
    (tmp_path / "b.jsonl").write_bytes(plain.replace(b"payment", b"pay").replace(b"7", b"99999999999999999999"))
    tell_schemas(list_files([str(tmp_path)]), Features(2), None, lines.append, keys=keys)
    assert [line.partition(": ")[2][:22] for line in lines] == [
        "no pay, which --edge-k",
        "no pay, which --edge-k",
        "pay 1e+20 is past 2^63",
    ]


def test_the_jobs_kind_of_ids_is_held_against_the_columns() -> None:
    assert "column src is int64: expected strings, as the job's ids" in said("string")[0]
    assert "column id is string: expected integers, as the job's ids" in said("int", id=pa.string())[0]


def test_integers_are_ids_where_they_are_taken_as_strings(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"op": ["del_vertex"], "id": pa.array([1], pa.uint64()), "src": ["a"]}), tmp_path / "a.parquet"
    )
    lines: list[str] = []
    tell_schemas(list_files([str(tmp_path)]), Features(2), "string", lines.append, cast_ids=True)
    assert not lines


def test_integers_are_types_where_the_models_types_are_numbers() -> None:
    schema = pa.schema({**GOOD, "type": pa.int64()})
    for types, count in (("0", "1"), 0), (("cites", "writes"), 1):
        kinds = Kinds(("",), (2,), tuple(Relation(0, name, 0) for name in types))
        assert len(list(findings(schema, Features.of_kinds(kinds), "int"))) == count


def test_odd_values_of_the_first_json_lines_are_said_by_name(tmp_path: Path) -> None:
    vector = '{"type":1,"size":2,"indices":[],"values":[0.5,1.0]}'
    (tmp_path / "a.jsonl").write_text(
        f'{{"op":"add_vertex","id":9223372036854775808,"x":{vector}}}\n{{"src":1,"dst":1,"edge_type":0}}\n'
    )
    lines: list[str] = []
    tell_schemas(list_files([str(tmp_path)]), Features(2), None, lines.append)
    assert [line.partition(": ")[2][:55] for line in lines] == [
        "edge_type is not read: name it type, as the types of edges are named here"[:55],
        "id 9223372036854775808 is past 2^63: such ids will be rejected"[:55],
        "x is an object: expected a list of numbers; a vector of Spark ML"[:55],
    ]


def test_foreign_columns_are_said_once_for_all_files(tmp_path: Path) -> None:
    foreign = pa.table({"source": [1], "target": [2]})
    for name in "abc":
        pq.write_table(foreign, tmp_path / f"{name}.parquet")
    with pa.ipc.new_file(tmp_path / "d.arrow", pa.schema({**GOOD, "src": pa.float32()})):
        pass
    (tmp_path / "e.jsonl").write_text("{}")
    lines: list[str] = []
    tell_schemas(list_files([str(tmp_path)]), Features(2), None, lines.append)
    assert [line.removeprefix(f"{tmp_path}/") for line in lines] == [
        "a.parquet and 2 more: no column op, only source, target: every row will be rejected; `events-map:` in "
        "--config reads foreign columns",
        "d.arrow: column src is float: whole numbers are taken as ids, others rejected",
    ]


def test_columns_of_kinds_are_judged_where_the_model_has_any() -> None:
    kinds = Kinds(("user", "item"), (2, 3), (Relation(0, "buys", 1, edge_width=4), Relation(0, "knows", 0)))
    schema = pa.schema(
        [
            ("op", pa.string()),
            ("kind", pa.int64()),
            ("x", pa.list_(pa.float32(), 5)),
            ("attr", pa.list_(pa.float32(), 3)),
        ]
    )
    rejected = "each event with them will be rejected"
    assert list(findings(schema, Features.of_kinds(kinds), "int")) == [
        "column kind is int64: expected strings: each event with it will be rejected",
        f"column x is {schema.field('x').type}: expected the model's 2 or 3 numbers: {rejected}",
        f"column attr is {schema.field('attr').type}: expected the model's 4 numbers: {rejected}",
    ]
    (line,) = findings(schema, Features(5, 3), "int")
    assert line.startswith("kind ignored: the model has no kinds of vertices")


def test_edges_without_a_column_of_types_are_said_to_be_of_the_first() -> None:
    schema = pa.schema([("op", pa.string()), ("src", pa.int64()), ("dst", pa.int64())])
    cites, writes = Relation(0, "cites", 0), Relation(0, "writes", 0)
    several, sole = (Features.of_kinds(Kinds(("",), (2,), relations)) for relations in ((cites, writes), (cites,)))
    assert list(findings(schema, several, "int")) == [
        "no column type: each edge is taken as 'cites', the first of the model's edge types"
    ]
    assert not list(findings(schema, sole, "int")), "there is no other"
    assert not list(findings(schema.append(pa.field("type", pa.string())), several, "int"))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_kinds_in_json_lines_are_said_to_be_ignored(tmp_path: Path, name: str) -> None:
    with pa.output_stream(tmp_path / name, compression="detect") as lines_out:
        lines_out.write(b'no json\n[]\n{"src_kind":"a"}\n{"kind":"user"}\n')
    (tmp_path / "b.jsonl").write_text('{"id":1}\n')
    kinds, lines = Kinds(("user",), (2,), (Relation(0, "knows", 0),)), list[str]()
    tell_schemas(list_files([str(tmp_path)]), Features.of_kinds(kinds), None, lines.append)
    assert not lines
    tell_schemas(list_files([str(tmp_path)]), Features(2), None, lines.append)
    assert [line.removeprefix(f"{tmp_path}/") for line in lines] == [
        f"{name}: kind, src_kind ignored: the model has no kinds of vertices, so two kinds' vertices with the same id "
        "are one"
    ]


def test_edges_of_a_topic_without_types_are_said() -> None:
    features = Features.of_kinds(Kinds(("",), (2,), tuple(Relation(0, name, 0) for name in ("cites", "writes"))))
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, pa.schema([("op", pa.string()), ("src", pa.int64()), ("dst", pa.int64())])):
        pass
    plain = b'{"op":"add_vertex","id":1}\n{"op":"add_edge","src":1,"dst":2}'
    for values, count in (
        ([None, b"\xff", plain], 1),
        ([stream.getvalue().to_pybytes()], 1),
        ([plain, b'{"op":"add_edge","src":1,"dst":2,"type":"cites"}'], 0),
        ([b"", b"[1]", b'{"op":"add_vertex","id":1}'], 0),
    ):
        lines: list[str] = []
        tell_fields("kafka://h:1/t", values, features, lines.append)
        assert len(lines) == count
        assert all("kafka://h:1/t: no column type: each edge is taken as 'cites'" in line for line in lines)
