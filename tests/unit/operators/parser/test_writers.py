"""The same events by the writers that people have: pandas, polars, pyarrow, DuckDB and Spark, and by compressors."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.job.results.plain_reader import file_records
from freshet.job.results.plain_rules import PlainRules
from freshet.operators.parser.core import Parser
from freshet.operators.parser.event_files import EventFileError, list_files
from freshet.operators.parser.files import ChunkReader, plan_chunks, plan_from
from freshet.operators.parser.stages import Originals, write_plan
from freshet.operators.snapshot.reader import SnapshotError, open_snapshot
from freshet.schema import Features
from tests.support.stages.parsed import ORIGIN, as_rows, jsonl, the_same_as_jsonl

ROWS: list[dict[str, Any]] = [
    {"op": "add_vertex", "id": 1, "x": [0.5, 1.0]},
    {"op": "add_edge", "src": 1, "dst": 2, "weight": 0.5},
    {"op": "add_edge", "src": 2, "dst": 3},
    {"op": "add_vertex", "id": 4},
    {"op": "set_features", "id": 3, "x": [0.25, 0.75]},
]
POLARS = {"op": pl.String, "id": pl.Int64, "src": pl.Int64, "dst": pl.Int64, "x": pl.Array(pl.Float32, 2)}
ARROW = pa.schema([("op", pa.string()), *((name, pa.int64()) for name in ("id", "src", "dst"))])
FIXED = ARROW.append(pa.field("x", pa.list_(pa.float32(), 2))).append(pa.field("weight", pa.float32()))
# `copy (select ... x::FLOAT[2]) to ... (format parquet)`, whose lists pyarrow can't read
OF_DUCKDB = Path(__file__).parents[3] / "data" / "writers" / "duckdb-arrays.parquet"


def polars() -> pl.DataFrame:
    return pl.DataFrame(ROWS, schema={**POLARS, "weight": pl.Float32})


def rows_of(x: pa.DataType, **types: pa.DataType) -> pa.Table:
    fields = {"weight": pa.float32(), **{field.name: field.type for field in ARROW}, "x": x, **types}
    columns = {name: [row.get(name) for row in ROWS] for name in fields}
    decimal = {name for name, kind in types.items() if pa.types.is_decimal(kind)}
    for name in decimal:
        columns[name] = [None if one is None else Decimal(str(one)) for one in columns[name]]
    return pa.table({name: pa.array(columns[name], kind) for name, kind in fields.items()})


def decimals() -> pa.Table:
    """As JDBC and Spark write numbers."""
    kinds = dict.fromkeys(("id", "src", "dst"), pa.decimal128(38, 0))
    return rows_of(pa.list_(pa.float64()), **kinds, weight=pa.decimal128(10, 2))


def new_pyarrow(path: Path) -> None:
    """Lists of a fixed size with nulls, which pyarrow 16 does not write: as lists, with the schema that says so."""
    schema = {b"ARROW_schema": base64.b64encode(FIXED.serialize().to_pybytes())}
    table = rows_of(pa.list_(pa.float32())).select(FIXED.names).replace_schema_metadata(schema)
    pq.write_table(table, path)
    data = path.read_bytes().replace(b"ARROW:schema", b"other_schema")  # that of the lists
    path.write_bytes(data.replace(b"ARROW_schema", b"ARROW:schema"))
    assert pq.read_schema(path).field("x").type == FIXED.field("x").type


WRITERS: dict[str, Callable[[Path], Any]] = {
    "pandas.parquet": lambda path: pd.DataFrame(ROWS).to_parquet(path),
    "polars.parquet": lambda path: polars().write_parquet(path),
    "polars-file.arrow": lambda path: polars().write_ipc(path),
    "polars-zstd.arrow": lambda path: polars().write_ipc(path, compression="zstd"),
    "polars-stream.arrow": lambda path: polars().write_ipc_stream(path),
    "polars-frames.parquet": lambda path: pl.from_pandas(pd.DataFrame(ROWS)).write_parquet(path),
    "categorical.arrow": lambda path: polars().with_columns(pl.col("op").cast(pl.Categorical)).write_ipc(path),
    "pyarrow.parquet": lambda path: pq.write_table(rows_of(pa.large_list(pa.float64())), path),
    "new-pyarrow.parquet": new_pyarrow,
    "duckdb.parquet": lambda path: pq.write_table(decimals(), path, store_schema=False),
    "duckdb-arrays.parquet": lambda path: path.write_bytes(OF_DUCKDB.read_bytes()),
    "part-00000-1f.c000.snappy.parquet": lambda path: pq.write_table(decimals(), path, compression="snappy"),
    "bom.jsonl": lambda path: path.write_bytes(b"\xef\xbb\xbf" + jsonl(ROWS).replace(b"\n", b"\r\n")),
    "lines.jsonl.gz": lambda path: path.write_bytes(gzip.compress(jsonl(ROWS[:2])) + gzip.compress(jsonl(ROWS[2:]))),
    "padded.jsonl.gz": lambda path: path.write_bytes(
        gzip.compress(jsonl(ROWS[:2])) + bytes(5) + gzip.compress(jsonl(ROWS[2:])) + bytes(512)
    ),
    "lines.jsonl.zst": lambda path: path.write_bytes(pa.compress(jsonl(ROWS), "zstd", asbytes=True)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_each_writer_gives_the_same_events(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / f".{name}.crc").write_bytes(b"crc")
    (chunk,) = plan_chunks([str(tmp_path)])
    events, letters = Parser(Features(2)).parse_chunk(chunk, ChunkReader().read(chunk))
    expected, _ = Parser(Features(2)).parse_jsonl(jsonl(ROWS), ORIGIN)
    assert not letters
    assert as_rows(events) == as_rows(expected)
    (file,) = list_files([str(tmp_path)])
    judged = list(file_records(file, PlainRules(Features(2))))
    assert [one.event is not None and one.event.op for one in judged] == [row["op"] for row in ROWS]
    (left,) = plan_from(file, 3)
    events, _ = Parser(Features(2)).parse_chunk(left, ChunkReader().read(left))
    assert as_rows(events) == as_rows(expected)[3:]


def test_a_snapshot_of_polars_is_read_and_a_vertex_without_features_named(tmp_path: Path) -> None:
    kinds = {"id": pl.Int64, "x": pl.Array(pl.Float32, 2)}
    edges = {"src": [1, 1], "dst": [2, 1], "attr": [[0.5], None]}
    pl.DataFrame(edges, schema_overrides={"attr": pl.Array(pl.Float32, 1)}).write_parquet(tmp_path / "edges.parquet")
    for second in ([2.0, 3.0], None):
        vertices = pl.DataFrame({"id": [1, 2], "x": [[0.5, 1.0], second]}, schema=kinds)
        vertices.write_parquet(tmp_path / "vertices.parquet")
        blocks = open_snapshot(tmp_path, Features(2)).blocks()
        if second is None:
            with pytest.raises(SnapshotError, match="row 1: x: missing"):
                next(blocks)
        else:
            assert [(row[1], row[5]) for row in as_rows(next(blocks))] == [(1, [0.5, 1.0]), (2, second)]
            assert len(next(blocks)) == 2


def test_ids_of_a_column_of_floats_are_whole_or_none() -> None:
    frame = pa.table({"op": ["del_vertex"] * 5, "id": [7.0, 7.5, -0.0, 2.0**53, 2.0**53 + 2]})
    events, letters = Parser(Features(2), "int").parse_table(frame, ORIGIN)
    assert events.a.to_list() == [7, 0, 2**53]
    assert [letter.error for letter in letters] == [
        "id: expected an integer, got the number 7.5",
        "id: expected an integer, got the number 9007199254740994.0",
    ]
    assert json.loads(letters[0].raw) == {"op": "del_vertex", "id": 7.5}
    mapping = {"op": "`del_vertex`", "id": "user"}
    events, letters = Parser(Features(2), events_map=mapping).parse_table(pa.table({"user": [7.0, 7.5]}), ORIGIN)
    assert (events.a.to_list(), len(letters)) == ([7], 1)
    (refused,) = Parser(Features(2), events_map=mapping).parse_jsonl(b'{"user":7.0}', ORIGIN)[1]
    assert refused.error == "id: expected an integer or a string, got the number 7.0", "in JSON it is none"
    the_same_as_jsonl(ROWS, decimals())


def test_a_letter_holds_its_row_with_all_columns(tmp_path: Path) -> None:
    table = pa.table(
        {"op": ["del_vertex", "fly"], "id": [1.0, 2.0], "note": ["a", "b"], "at": pa.array([0, 1], "date32")}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table.drop_columns(["op", "id"]), tmp_path / "b.parquet")
    known, foreign = plan_chunks([str(tmp_path)])
    reader, parser = ChunkReader(), Parser(Features(2))
    (letter,) = parser.parse_chunk(known, reader.read(known), whole=lambda: reader.whole(known))[1]
    assert json.loads(letter.raw) == {"op": "fly", "id": 2.0, "note": "b", "at": "1970-01-02"}
    letters = parser.parse_chunk(foreign, reader.read(foreign), whole=lambda: reader.whole(foreign))[1]
    assert [json.loads(one.raw)["note"] for one in letters] == ["a", "b"]


def test_records_are_found_again_as_they_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.operators.parser.files.CHUNK_LINES", 2)
    lines = [json.dumps(row).encode() for row in ROWS]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines)))
    pq.write_table(pa.table({"src": [1.0, 2.0], "note": ["a", "b"]}), tmp_path / "b.parquet")
    write_plan(plan_chunks([str(tmp_path)]), tmp_path / "plan")
    original = Originals(tmp_path / "plan")
    assert [original(0, number) for number in (4, 0, 1, 3, 2)] == [lines[number] for number in (4, 0, 1, 3, 2)]
    assert original(1, 1) == b'{"src":2.0,"note":"b"}'
    assert [original(0, 5), original(2, 0), Originals(tmp_path / "none")(0, 0)] == [None] * 3


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_compressed_lines_are_cut_as_plain_ones_and_a_file_that_was_cut_off_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("freshet.operators.parser.files.CHUNK_LINES", 70)
    data = b"".join(b'{"op":"del_vertex","id":%d}\n' % (k * k) for k in range(1000))
    packed = gzip.compress(data) if kind == "gzip" else pa.compress(data, "zstd", asbytes=True)
    name = f"a.jsonl.{'gz' if kind == 'gzip' else 'zst'}"
    (tmp_path / name).write_bytes(packed)
    (tmp_path / "a.jsonl").write_bytes(data)
    chunks, plain = plan_chunks([str(tmp_path / name)]), plan_chunks([str(tmp_path / "a.jsonl")])
    assert [(one.first, one.count, one.begin, one.end) for one in chunks] == [
        (one.first, one.count, one.begin, one.end) for one in plain
    ]
    reader = ChunkReader()
    for order in (chunks, chunks[::-1], chunks[::3]):
        for chunk in order:
            assert reader.read(chunk) == data[chunk.begin : chunk.end]
    (tmp_path / name).write_bytes(packed[: len(packed) // 2])
    with pytest.raises(EventFileError, match="cannot be read as JSON Lines"):
        plan_chunks([str(tmp_path / name)])
