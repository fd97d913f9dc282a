"""The first row of a file of rows is its header; one that is none is refused with what to do."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from freshet.operators.parser.files import EventFileError, plan_chunks
from freshet.operators.parser.text_tables.header import read_header


@pytest.mark.parametrize(
    ("name", "data", "names"),
    [
        ("a.csv", b"op,id\n", ("op", "id")),
        ("a.tsv", b"\xef\xbb\xbf\r\n op \tid, of a vertex\r\nadd_vertex\t1", ("op", "id, of a vertex")),
        ("a.csv.gz", gzip.compress(b',"o""p","two\nlines"', mtime=0), ("", 'o"p', "two\nlines")),
        ("a.csv", b"0,1,op", ("0", "1", "op")),
    ],
)
def test_names_of_columns(tmp_path: Path, name: str, data: bytes, names: tuple[str, ...]) -> None:
    (tmp_path / name).write_bytes(data)
    assert read_header(str(tmp_path / name), name, name.split(".")[1]).names == names


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.csv", b"", "no header: it has no row; expected the names of the columns in the first row"),
        ("a.csv", b"\n\r\n", "no header: it has no row"),
        (
            "a.csv",
            b"7,9,0.5\n8,9,1\n",
            "no header: its first row is data (7, 9, 0.5); expected the names of",
        ),
        ("a.tsv", b"add_edge\t1\tu2\n", "its first row is data (add_edge, 1, u2); .* such as op\tsrc\tdst"),
        ("a.csv", b"op;src;dst\n", "one column, 'op;src;dst', with ';' in it; expected columns between ',' (.csv) or"),
        ("a.tsv", b"op,src,dst\n", "with ',' in it"),
        ("a.csv", b"a," * 70_000, "expected at most 65,536 columns, got 70,001"),
        ("a.csv", b"op,src,src\n", "two columns are named src"),
        ("a.csv", b"op,caf\xe9\n", "its first row is not UTF-8"),
        ("a.csv", b'"op,id\nadd_vertex,1\n', "its first row does not end within"),
        ("a.csv", b"x" * (2 << 20), "its first row does not end within 1,048,576 bytes"),
        ("a.csv", "op,id\n".encode("utf-16"), "as UTF-16 does, which is no csv file"),
    ],
)
def test_what_is_no_header_is_refused(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(EventFileError) as caught:
        plan_chunks([str(tmp_path / name)])
    places = [str(caught.value).find(part) for part in (name, *said.split(" .* "))]
    assert -1 not in places and places == sorted(places), str(caught.value)
