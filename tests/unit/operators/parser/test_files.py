"""The reading plan covers every file exactly once, and chunks read back as they stand."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.job.cli import main
from freshet.operators.parser import files, streams
from freshet.operators.parser.core import Parser
from freshet.operators.parser.event_files import EventFileError, list_files
from freshet.operators.parser.files import Chunk, ChunkReader, plan_chunks
from freshet.schema import Features


def write_jsonl(path: Path, lines: list[bytes], end: bytes = b"\n") -> None:
    path.write_bytes(b"\n".join(lines) + (end if lines else b""))


def table(first: int, rows: int) -> pa.Table:
    ids = np.arange(first, first + rows)
    return pa.table({"op": pa.array(["del_vertex"] * rows, pa.string()), "id": ids, "note": ids * 2})


def test_files_of_folders_come_by_name_and_paths_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name in ("in/b.jsonl", "in/a.parquet", "in/_unfinished.parquet", "in/.hidden", "z.ARROW"):
        (tmp_path / name).write_bytes({"in/a.parquet": b"PAR1", "z.ARROW": b"ARROW1"}.get(name, b""))
    files = list_files(["z.ARROW", "in", "in/b.jsonl"])
    assert [(file.name, file.source, file.format) for file in files] == [
        ("z.ARROW", 0, "arrow"),
        ("in/a.parquet", 1, "parquet"),
        ("in/b.jsonl", 2, "jsonl"),
        ("in/b.jsonl", 3, "jsonl"),
    ]
    assert files[1].path == str(tmp_path / "in" / "a.parquet")


def test_wrong_paths_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "nested" / "inner").mkdir(parents=True)
    (tmp_path / "a.orc").write_text("")
    (tmp_path / "bare").write_text("")
    for name, error in [
        ("missing.jsonl", "no such file"),
        ("empty", "an empty folder"),
        ("nested", "folder within"),
        ("a.orc", r"got suffix '\.orc', expected one of \.jsonl, \.parquet, \.arrow, \.csv, \.tsv"),
        ("bare", "got suffix ''"),
    ]:
        with pytest.raises(EventFileError, match=error) as caught:
            plan_chunks([str(tmp_path / name)])
        assert name.split("/")[0] in str(caught.value)


@pytest.mark.parametrize(("name", "kind"), [("a.parquet", "Parquet"), ("a.arrow", "Arrow IPC")])
@pytest.mark.parametrize("content", [b"", b" and then nothing of the kind"])
def test_corrupt_tables_are_refused(tmp_path: Path, name: str, kind: str, content: bytes) -> None:
    (tmp_path / name).write_bytes((b"PAR1" if kind == "Parquet" else b"ARROW1") + content)
    with pytest.raises(EventFileError, match=f"{name}: cannot be read as {kind}"):
        plan_chunks([str(tmp_path / name)])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl.gz", gzip.compress(b"{}\n", mtime=0) + b"more", "stand bytes that are none: .*'mo'.*; cut them off"),
        ("b.jsonl.gz", gzip.compress(b"{}\n", mtime=0)[:-5], "ended before the end-of-stream"),
        # a frame with a window of 2^28 bytes, and one raw block
        (
            "c.jsonl.zst",
            b"\x28\xb5\x2f\xfd\x00\x90\x19\x00\x00{}\n",
            "window is longer than the 128 MiB .*--long=27 or less",
        ),
    ],
)
def test_compressed_lines_that_cannot_be_read_say_what_to_do(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(EventFileError, match=rf"{name}: .*{said}"):
        plan_chunks([str(tmp_path)])


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = os.fsdecode(bytes(tmp_path) + b"/caf\xe9.jsonl")
    Path(path).write_bytes(b"{}\n")
    for given in (path, str(tmp_path)):
        with pytest.raises(EventFileError, match=r"caf\\xe9.jsonl: its name is not UTF-8; rename it"):
            list_files([given])
    with pytest.raises(SystemExit) as ended:
        main(["produce", "--events", path, "--to", "kafka://127.0.0.1:1/t"])
    assert ended.value.code == 2


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_jsonl(tmp_path / "a.jsonl", [b"{}"])

    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(streams, "open", fail, raising=False)
    with pytest.raises(EventFileError, match=r"a\.jsonl: cannot be read as JSON Lines: .*Permission denied"):
        plan_chunks([str(tmp_path / "a.jsonl")])
    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(EventFileError, match=r"a\.jsonl: cannot be read: Permission denied"):
        list_files([str(tmp_path / "a.jsonl")])


def test_empty_files_have_no_chunks(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    pq.write_table(table(0, 0), tmp_path / "b.parquet")
    for name, opener in [("c.arrow", pa.ipc.new_file), ("d.arrow", pa.ipc.new_stream)]:
        with opener(tmp_path / name, table(0, 0).schema):
            pass
    assert plan_chunks([str(tmp_path)]) == []


@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("seed", range(8))
def test_chunks_of_lines_cover_the_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, end: bytes
) -> None:
    rng = random.Random(seed)
    lines = [b"x" * rng.choice([0, 1, 5, 30, 200]) for _ in range(rng.randrange(1, 400))]
    lines[-1] = b"last"
    write_jsonl(tmp_path / "a.jsonl", lines, end)
    monkeypatch.setattr(files, "CHUNK_LINES", rng.choice([1, 7, 50]))
    monkeypatch.setattr(files, "CHUNK_BYTES", rng.choice([1, 64, 500]))
    monkeypatch.setattr(streams, "WINDOW_BYTES", 10**6)
    chunks = plan_chunks([str(tmp_path / "a.jsonl")])
    for window in (1, 13, 100):
        monkeypatch.setattr(streams, "WINDOW_BYTES", window)
        assert plan_chunks([str(tmp_path / "a.jsonl")]) == chunks
    reader = ChunkReader()
    assert b"".join(reader.read(chunk) for chunk in chunks) == (tmp_path / "a.jsonl").read_bytes()
    row = 0
    for chunk in chunks:
        found = reader.read(chunk).split(b"\n")
        found = found[:-1] if not found[-1] else found
        assert (chunk.first, found) == (row, lines[row : row + chunk.count])
        assert chunk.count <= files.CHUNK_LINES
        assert chunk.count == 1 or chunk.end - chunk.begin <= files.CHUNK_BYTES
        row += chunk.count
    assert row == len(lines)


def test_chunks_are_as_large_as_they_may_be(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [b'{"op":"del_vertex","id":1}'] * 20_000)
    write_jsonl(tmp_path / "b.jsonl", [b"x" * (3 << 20), b"y", b"z" * 600_000, b"z" * 600_000])
    chunks = plan_chunks([str(tmp_path)])
    assert [(chunk.source, chunk.first, chunk.count) for chunk in chunks] == [
        *((0, 0, 8000), (0, 8000, 8000), (0, 16_000, 4000)),
        *((1, 0, 1), (1, 1, 2), (1, 3, 1)),
    ]


@pytest.mark.parametrize("kind", ["parquet", "arrow file", "arrow stream"])
@pytest.mark.parametrize("sizes", [[25_000], [3, 1, 9000, 0, 8191, 2]])
def test_chunks_of_tables_cover_the_file_once(tmp_path: Path, kind: str, sizes: list[int]) -> None:
    tables = [table(sum(sizes[:k]), size) for k, size in enumerate(sizes)]
    path = tmp_path / f"a.{kind.split()[0]}"
    if kind == "parquet":
        with pq.ParquetWriter(path, tables[0].schema) as writer:
            for piece in tables:
                writer.write_table(piece)
    else:
        opener = pa.ipc.new_file if kind == "arrow file" else pa.ipc.new_stream
        with opener(path, tables[0].schema) as writer:
            for piece in tables:
                writer.write_table(piece)
    chunks = plan_chunks([str(path)])
    total = sum(sizes)
    assert [chunk.first for chunk in chunks] == list(range(0, total, 8000))
    assert sum(chunk.count for chunk in chunks) == total
    reader = ChunkReader()
    # in order, backwards, and with gaps
    for order in (chunks, chunks[::-1], chunks[::2], chunks[1:] + chunks[:1]):
        for chunk in order:
            batch = reader.read(chunk)
            assert isinstance(batch, pa.RecordBatch)
            assert batch.column(batch.schema.get_field_index("id")).to_pylist() == list(
                range(chunk.first, chunk.first + chunk.count)
            )
    assert "note" in ChunkReader(every_column=True).read(chunks[-1]).schema.names


def test_wide_rows_make_smaller_chunks(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(1000, 2000)).astype(np.float32)
    columns = {"op": ["add_vertex"] * 1000, "id": np.arange(1000), "x": pa.array(list(x), pa.list_(pa.float32()))}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    chunks = plan_chunks([str(tmp_path)])
    assert 3 <= len(chunks) <= 8
    reader, parser = ChunkReader(), Parser(Features(2000))
    blocks = [parser.parse_chunk(chunk, reader.read(chunk))[0] for chunk in chunks]
    assert np.array_equal(np.concatenate([block.x.matrix for block in blocks]), x)


def test_a_table_without_event_columns_still_has_its_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "a.parquet")
    (chunk,) = plan_chunks([str(tmp_path)])
    events, letters = Parser(Features(1)).parse_chunk(chunk, ChunkReader().read(chunk))
    assert (len(events), [letter.error for letter in letters]) == (0, ["op: missing"] * 3)


def test_a_file_that_shrank_is_noticed(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [b"{}"] * 9)
    pq.write_table(table(0, 9), tmp_path / "b.parquet")
    lines, rows = plan_chunks([str(tmp_path)])
    write_jsonl(tmp_path / "a.jsonl", [b"{}"] * 8)
    pq.write_table(table(0, 8), tmp_path / "b.parquet")
    for chunk in (lines, rows):
        with pytest.raises(EventFileError, match="the file has changed"):
            ChunkReader().read(chunk)


def test_chunks_travel_as_bytes() -> None:
    chunk = Chunk("/data/ä.jsonl", "ä.jsonl", 3, "jsonl", 10, 20, 2**40, 2**40 + 5)
    assert Chunk.decode(chunk.encode()) == chunk


def test_offsets_of_dead_letters_are_lines_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK_LINES", 4)
    lines = [b'{"op":"del_vertex","id":1}', b"", b"bad", b'{"op":"del_vertex","id":2}'] * 5
    write_jsonl(tmp_path / "a.jsonl", lines, b"")
    reader, parser = ChunkReader(), Parser(Features(1))
    parsed = [parser.parse_chunk(chunk, reader.read(chunk)) for chunk in plan_chunks([str(tmp_path)])]
    assert [letter.offset for _, letters in parsed for letter in letters] == list(range(2, 20, 4))
    assert [int(k) for events, _ in parsed for k in events.position] == [k + d for k in range(0, 20, 4) for d in (1, 4)]
    assert parsed[-1][0].end_position == 20
