"""Folders of Hive, Spark and DuckDB: their keys are columns, files have an order, and what is unfinished stays out."""

from __future__ import annotations

import gzip
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.job.results.plain_reader import file_records
from freshet.job.results.plain_rules import PlainRules
from freshet.operators.parser.core import Parser
from freshet.operators.parser.event_files import EventFileError, list_files
from freshet.operators.parser.files import ChunkReader, plan_chunks
from freshet.partitioner.events import OP_NAMES
from freshet.schema import Features


def write(path: Path, data: bytes = b"src,dst\n1,2\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def names_in(folder: Path) -> list[str]:
    return [str(Path(file.name).relative_to(folder)) for file in list_files([str(folder)])]


def events_of(folder: Path, **options: object) -> list[tuple[str, object, object]]:
    """The events of a folder, in which both readers agree."""
    parser = Parser(Features(1), **options)  # type: ignore[arg-type]
    reader, found, plain = ChunkReader(parser.is_mapped, parser.fields), [], []
    for chunk in plan_chunks([str(folder)]):
        events, letters = parser.parse_chunk(chunk, reader.read(chunk))
        assert not letters
        ops = [OP_NAMES[op] for op in events.op.tolist()]
        found += list(zip(ops, events.a.to_list(), events.b.to_list(), strict=True))
    rules = PlainRules(Features(1), **options)  # type: ignore[arg-type]
    for file in list_files([str(folder)]):
        plain += [(one.op, one.a, one.b) for _, one, _ in file_records(file, rules) if one is not None]
    assert found == plain
    return found


def test_files_come_by_the_values_of_their_folders_and_by_name(tmp_path: Path) -> None:
    wanted = ["d=2/part-00000-aa.c000.csv.gz", "d=2/part-00001.tsv", "d=10/000000_0", "d=a/x.parquet", "d=b/x.csv"]
    wanted += ["d=__HIVE_DEFAULT_PARTITION__/x.csv"]
    for name in wanted:
        write(tmp_path / name, b"PAR1" if name.endswith(("_0", "parquet")) else b"a\n")
    for name in (
        "_SUCCESS",
        "d=2/.part-00000-aa.c000.csv.gz.crc",
        "_temporary/0/x.csv",
        "d=2/_metadata",
        "d=2/x.csv.crc",
    ):
        write(tmp_path / name)
    for name in ("d=2/part-00009.csv._COPYING_", "d=2/x.csv.inprogress", "d=a/.x.parquet.swp", "._d=4/x.csv"):
        write(tmp_path / name)
    (tmp_path / "d=3").mkdir()
    (tmp_path / "d=2" / "part-00002.csv").touch()
    assert names_in(tmp_path) == wanted


def test_keys_and_values_are_columns(tmp_path: Path) -> None:
    write(tmp_path / "op=add_edge" / "day=1" / "a.csv")
    write(tmp_path / "op=del_edge" / "day=__HIVE_DEFAULT_PARTITION__" / "a.csv.gz", b"src,dst\n3,4\n")
    assert events_of(tmp_path) == [("add_edge", 1, 2), ("del_edge", 3, 4)]
    write(tmp_path / "mapped" / "to%20shop=caf%C3%A9%2F1" / "a.csv", b"src\n7\n")
    events_map = {"op": "`add_edge`", "src": "src", "dst": '"to shop"'}
    assert events_of(tmp_path / "mapped", id_kind="string", events_map=events_map) == [("add_edge", "7", "café/1")]


def test_tables_of_all_formats_have_the_columns_of_their_folders(tmp_path: Path) -> None:
    table = pa.table({"src": [1], "w": [1.0]})
    for name in ("dst=5/a.parquet", "dst=7/a.arrow", "dst=08/a.csv"):
        (tmp_path / name).parent.mkdir()
    pq.write_table(table, tmp_path / "dst=5" / "a.parquet")
    with pa.ipc.new_file(tmp_path / "dst=7" / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "dst=08").rename(tmp_path / "dst=8")
    write(tmp_path / "dst=8" / "a.csv", b"src,w\n1,1\n")
    events_map = {"op": "`add_edge`", "src": "src", "dst": "dst", "weight": "w"}
    assert events_of(tmp_path, events_map=events_map) == [("add_edge", 1, 5), ("add_edge", 1, 7), ("add_edge", 1, 8)]


def test_what_duckdb_writes_by_partitions_is_read(tmp_path: Path) -> None:
    rows = "SELECT * FROM (VALUES ('add_edge', 1, 2), ('del_edge', 3, 4), ('add_edge', 5, NULL)) t(op, src, dst)"
    for kind in ("parquet", "csv"):
        duckdb.sql(f"COPY ({rows}) TO '{tmp_path / kind}' (FORMAT {kind}, PARTITION_BY (op, dst))")
        found = [name for name in names_in(tmp_path / kind) if "NULL" not in name]
        assert [name.rpartition("/")[0] for name in found][:1] == ["op=add_edge/dst=2"]
        events_map = {"op": "op", "src": "src", "dst": "dst || `9`"}
        expected = [("add_edge", 1, 2), ("add_edge", 5, 9), ("del_edge", 3, 4)]
        assert events_of(tmp_path / kind, events_map=events_map) == expected


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a=1/x.csv", "x.csv"], "x.csv: a file beside folders of a=: its rows lack the column a; put it into one"),
        (["a=1/x.csv", "b=1/x.csv"], "b=1: a folder of b= beside one of a= (a=1): rows of each lack a column"),
        (["a=1/b=1/x.csv", "a=2/x.csv"], "files in folders of a=/b= ("),
        (["a=1/a=2/x.csv"], "the key a is in two folders of one path"),
        (["a=1/x.jsonl"], "x.jsonl: JSON Lines in a folder of a=1, which lack this column"),
        (["a=%ff/x.csv"], "a=%ff: its percent-escapes are no UTF-8"),
        (["a=1/_delta_log/x"], "a table of Delta Lake"),
        (["=1/x.csv"], "=1: a folder within a folder of events"),
        (["src=1/x.csv"], "x.csv: src is a column of the file and in its path; leave it out of one of them"),
    ],
)
def test_folders_whose_files_lack_a_column_are_refused(tmp_path: Path, names: list[str], said: str) -> None:
    for name in names:
        write(tmp_path / name)
    with pytest.raises(EventFileError) as caught:
        plan_chunks([str(tmp_path)])
    assert said in str(caught.value)
