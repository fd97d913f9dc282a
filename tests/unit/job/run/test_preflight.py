import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from freshet.job.errors import UsageError
from freshet.job.run.preflight import check_model, check_out, check_snapshot, event_files
from freshet.operators.parser.event_files import list_files


def write(path: Path, content: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_folder_of_events_stands_for_its_files_in_order(tmp_path: Path) -> None:
    first = write(tmp_path / "z.jsonl")
    inside = [write(tmp_path / "in" / "1.jsonl"), write(tmp_path / "in" / "2.parquet", b"PAR1....PAR1")]
    write(tmp_path / "in" / "_tmp.parquet")
    write(tmp_path / "in" / ".hidden")
    assert event_files([str(first), str(tmp_path / "in")]) == [first, *inside]


def test_both_arrow_formats_pass(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.arrow", b"ARROW1\0\0..."), write(tmp_path / "b.arrow", b"\xff\xff\xff\xff\x10\0\0\0")]
    assert event_files(map(str, files)) == files


@pytest.mark.parametrize("name", ["a.JSONL", "b.Parquet", "c.ARROW"])
def test_a_suffix_may_be_in_capitals_wherever_files_are_looked_at(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "in" / name, {"b": b"PAR1", "c": b"ARROW1"}.get(name[0], b""))
    assert event_files([str(path.parent)]) == [path]
    assert [Path(file.path) for file in list_files([str(path.parent)])] == [path]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("e.txt", b"a,b", "got suffix '.txt', expected one of .jsonl, .parquet, .arrow, .csv, .tsv"),
        ("e.csv.gz", b"op,id", "begins with b'op,id', which is no gzip file"),
        ("e.csv", b"\x1f\x8b..", ".csv.gz or .tsv.gz if it holds rows"),
        ("e.parquet.gz", b"", "got suffix '.gz'"),
        (
            "e.json.gz",
            b"\x1f\x8b..",
            "it begins as gzip does: name it .jsonl.gz if it holds JSON Lines, .csv.gz or .tsv.gz if it holds",
        ),
        ("e.jsonl.bz2", b"BZh9", "it begins as bzip2 does: decompress it"),
        ("e.feather", b"ARROW1", "it begins as arrow does: name it .arrow"),
        ("e.jsonl.gz", b"", "an empty file, which is no gzip file; write it again, or leave it out"),
        ("e.jsonl.zst", b"\x1f\x8b..", "as gzip does, which is no zstd file"),
        ("e.jsonl", b"\x1f\x8b..", "name it .jsonl.gz if it holds JSON Lines"),
        ("e.jsonl", "{}".encode("utf-16"), "as UTF-16 does, which is no jsonl file; write it as UTF-8"),
        ("e.jsonl", b"PAR1", "as parquet does, which is no jsonl file; name it .parquet"),
        ("part-0", b'{"op":1}', "if it has one JSON object a line, name it .jsonl"),
        ("000000_0.old", b"PAR1", "it begins as parquet does: name it .parquet"),
        ("e.parquet", b'{"op":"add', "is no parquet file"),
        ("e.parquet", b"", "an empty file, which is no parquet file"),
        ("e.arrow", b"PAR1", "is no arrow file"),
        ("e.ARROW", b"PAR1", "is no arrow file"),
    ],
)
def test_files_of_other_formats_are_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    write(tmp_path / "in" / name, content)
    for given in (tmp_path / "in" / name, tmp_path / "in"):
        with pytest.raises(UsageError) as caught:
            event_files([str(given)])
        assert said in str(caught.value)


def test_topics_are_left_to_the_commands_that_read_them(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    events = ["kafka://localhost:9092/t", str(tmp_path / "a.jsonl")]
    assert event_files(events, topics=True) == [tmp_path / "a.jsonl"]
    with pytest.raises(UsageError, match="--events kafka://localhost:9092/t: this command reads files only"):
        event_files(events)


def test_what_can_be_read_once_alone_is_refused_without_opening_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "e.jsonl")
    for given in (
        "/dev/stdin",
        "/dev/fd/63",
        "/proc/self/fd/0",
        "/dev/null",
        "-",
        str(tmp_path / "e.jsonl"),
        str(tmp_path),
    ):
        with pytest.raises(UsageError, match=r"a pipe or a device, which can be read only once; .* write it to a file"):
            event_files([given])


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm")
def test_files_in_shared_memory_are_no_devices() -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder) / "a.jsonl"
        file.touch()
        assert event_files([str(file), folder]) == [file, file]


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("op=add_edge/a.parquet", "part-0.jsonl: a file beside folders of op=: its rows lack the column op"),
        ("dt=2024-01-01/op=add_edge/a.parquet", "part-0.jsonl: a file beside folders of dt="),
        ("_delta_log/0.json", "a table of Delta Lake (_delta_log)"),
        (".hoodie/a", "a table of Hudi"),
        ("metadata/v1.json", "a table of Iceberg"),
        ("more/a.jsonl", "more: a folder within a folder of events; name it on its own"),
    ],
)
def test_folders_of_tables_and_of_folders_are_refused_by_name(tmp_path: Path, inside: str, said: str) -> None:
    write(tmp_path / inside)
    write(tmp_path / "_SUCCESS")
    write(tmp_path / "part-0.jsonl")
    with pytest.raises(UsageError) as caught:
        event_files([str(tmp_path)])
    assert said in str(caught.value)


def test_missing_and_empty_events_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        event_files([str(tmp_path / "none.jsonl")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="an empty folder"):
        event_files([str(tmp_path / "empty")])


def test_model_and_snapshot_need_their_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such folder; freshet\.export_model"):
        check_model(tmp_path / "M")
    write(tmp_path / "M" / "model.json")
    with pytest.raises(UsageError, match=r"model\.safetensors missing"):
        check_model(tmp_path / "M")
    write(tmp_path / "M" / "model.safetensors")
    check_model(tmp_path / "M")
    (tmp_path / "S").mkdir()
    with pytest.raises(UsageError, match=r"vertices\.parquet and edges\.parquet missing"):
        check_snapshot(tmp_path / "S")


def test_a_table_of_spark_is_told_as_that(tmp_path: Path) -> None:
    for name in ("vertices.parquet", "edges.parquet"):
        write(tmp_path / name / "part-0.parquet")
    with pytest.raises(UsageError, match=r"vertices.parquet: a folder of parts, as Spark writes.*coalesce\(1\)"):
        check_snapshot(tmp_path)


def test_the_output_folder_is_empty_unless_resumed(tmp_path: Path) -> None:
    out = tmp_path / "O"
    out.mkdir()
    check_out(out, None)
    write(out / ".lock")
    with pytest.raises(UsageError, match="nothing in --out"):
        check_out(out, "latest")
    check_out(out, None)
    write(out / "notes.txt")
    with pytest.raises(UsageError, match=r"not empty: it has notes\.txt; give a new folder$"):
        check_out(out, None)
    (out / "notes.txt").unlink()
    write(out / "run.json")
    with pytest.raises(UsageError, match=r"not empty: it has run\.json.*--resume latest"):
        check_out(out, None)
    check_out(out, "latest")
    with pytest.raises(UsageError, match="no such checkpoint"):
        check_out(out, str(tmp_path / "chk-7"))
    with pytest.raises(UsageError, match="no such checkpoint"):
        check_out(out, f"file://{tmp_path}/chk-7")
    check_out(out, f"file://{out}")
    check_out(out, "s3://bucket/chk-7")
