"""Rows of text are found as Python's csv finds them, however the bytes are cut; one that does not end is refused."""

from __future__ import annotations

import csv
import gzip
import io
import random
from pathlib import Path

import pytest

from freshet.operators.parser.core import Parser
from freshet.operators.parser.event_files import list_files
from freshet.operators.parser.files import ChunkReader, EventFileError, plan_chunks, plan_from
from freshet.operators.parser.text_tables import scan
from freshet.operators.parser.text_tables.scan import RowScanner
from freshet.schema import Features


def rows_of(data: bytes) -> list[list[str]]:
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8", newline="")
    return [row for row in csv.reader(text) if row]


def test_rows_end_where_python_ends_them() -> None:
    found = 0
    for seed in range(400):
        rng = random.Random(seed)
        data = bytes(rng.choice(b'a,"\n\rb') for _ in range(rng.randrange(40)))
        scanner, ends, fields, at = RowScanner(","), list[int](), list[int](), 0
        while at < len(data):
            size = rng.randrange(1, 9)
            some, counts = scanner.add(data[at : at + size])
            ends, fields, at = ends + some.tolist(), fields + counts.tolist(), at + size
        if scanner.is_open:
            ends, fields = [*ends, len(data)], [*fields, scanner.fields]
        expected = rows_of(data)
        assert fields == list(map(len, expected)), f"seed {seed}"
        pieces = [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
        assert [rows_of(piece) for piece in pieces] == [[row] for row in expected], f"seed {seed}"
        found += len(expected)
    assert found > 1000


@pytest.mark.parametrize("packed", [False, True])
def test_a_quote_that_is_never_closed_is_refused_by_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    data = b'op,id\nadd_vertex,1\nadd_vertex,"2\nadd_vertex,3\n' + b"add_vertex,4\n" * 50
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(EventFileError, match=r"row 1 \(of byte 19 on\) has a quoted field that does not end; expected"):
        plan_chunks([str(path)])
    monkeypatch.setattr(scan, "ROW_BYTES_MAX", 100)
    monkeypatch.setattr(scan, "WINDOW_BYTES", 50)
    with pytest.raises(EventFileError, match=r"row 1 .* does not end within 0 MiB"):
        plan_chunks([str(path)])
    path.write_bytes(gzip.compress(data)[:-9] if packed else b"op,id\n" + b"x" * 200)
    with pytest.raises(EventFileError, match=r"cannot be read as CSV" if packed else r"row 0 .* does not end within"):
        plan_chunks([str(path)])


def test_a_file_that_changed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"op,id\nadd_vertex,1\nadd_vertex,2\n")
    (chunk,) = plan_chunks([str(path)])
    for changed in (
        b"op,id\nadd_vertex,1\n",
        b"op,id\nadd\nvertex,1\nadd_vertex,2\n",
    ):
        path.write_bytes(changed)
        with pytest.raises(EventFileError, match="the file has changed"):
            ChunkReader().read(chunk)


def test_reading_goes_on_at_any_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.operators.parser.files.CHUNK_LINES", 5)
    data = b"op,id,note\r\n" + b"".join(b'add_vertex,%d,"%d\n\r\n"\r\n\r\n' % (k, k) for k in range(23))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(data))
    (file,) = list_files([str(tmp_path / "a.csv.gz")])
    for first in range(24):
        parser, reader, found = Parser(Features(1)), ChunkReader(), list[int]()
        for chunk in plan_from(file, first):
            events, letters = parser.parse_chunk(chunk, reader.read(chunk))
            assert not letters
            assert events.position.tolist() == list(range(chunk.first + 1, chunk.first + chunk.count + 1))
            found += events.a.to_list()
        assert found == list(range(first, 23))
    with pytest.raises(EventFileError, match="has 23 records, but 24 are recorded as read"):
        plan_from(file, 24)
