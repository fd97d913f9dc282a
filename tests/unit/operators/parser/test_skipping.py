"""A file's reading plan from any record on reads exactly the rest."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import freshet.operators.parser.files
from freshet.operators.parser.core import Parser
from freshet.operators.parser.event_files import EventFileError, list_files
from freshet.operators.parser.files import ChunkReader, plan_from, records_of
from freshet.schema import Features

RECORDS = [{"op": "add_edge", "src": k, "dst": 100 + k} for k in range(23)]


@pytest.fixture(params=[".jsonl", ".jsonl without a last line end", ".parquet", ".arrow"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(freshet.operators.parser.files, "CHUNK_LINES", 5)
    monkeypatch.setattr(freshet.operators.parser.files, "CHUNK_ROWS_MIN", 5)
    file = tmp_path / f"events{request.param.split()[0]}"
    if file.suffix == ".jsonl":
        end = b"" if "without" in request.param else b"\n"
        file.write_bytes(b"\n".join(map(orjson.dumps, RECORDS)) + end)
    elif file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(RECORDS), file, row_group_size=4)
    else:
        table = pa.Table.from_pylist(RECORDS)
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=6)
    return str(file)


@pytest.mark.parametrize("first", [0, 1, 4, 5, 6, 22, 23])
def test_the_rest_is_read_and_nothing_else(path: str, first: int) -> None:
    (file,) = list_files([path])
    chunks = plan_from(file, first)
    parser, reader = Parser(Features(1), "int"), ChunkReader()
    found = [parser.parse_chunk(chunk, reader.read(chunk))[0] for chunk in chunks]
    sources = [source for events in found for source in events.a.to_list()]
    assert sources == list(range(first, len(RECORDS)))
    assert [at for events in found for at in events.position.tolist()] == list(range(first + 1, len(RECORDS) + 1))
    assert records_of(chunks) == (len(RECORDS) if chunks else 0)


def test_a_file_that_is_too_short_is_another_one(path: str) -> None:
    (file,) = list_files([path])
    with pytest.raises(EventFileError, match="has 23 records, but 24 are recorded as read: it is another file"):
        plan_from(file, 24)
