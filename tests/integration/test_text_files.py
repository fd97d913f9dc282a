"""Jobs that read CSV, TSV and partitioned folders have the rows of one that reads the same events as JSON Lines."""

from __future__ import annotations

import csv
import gzip
import io
import random
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.gnn.model import save_model
from tests.support.graphs.models import IN_WIDTH, make_model
from tests.support.graphs.streams import Record, random_records
from tests.support.runs.jobs import SUMS, Input, Job, assert_same_rows, read_epochs, read_log

pytestmark = pytest.mark.slow

EVENTS = 2_000
EPOCHS = ("--runtime", "local", "--epoch-events", 100, "--epoch-ms", 0)
SLOW = {"slow": {"parser": 400}, "chunk": 100}
FIELDS = ("op", "id", "src", "dst", "weight")
VECTOR = tuple(f"x_{k}" for k in range(IN_WIDTH))


def as_text(records: list[Record], delimiter: str = ",", names: tuple[str, ...] = (*FIELDS, *VECTOR, "note")) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(names)
    for number, record in enumerate(records):
        values = record | dict(zip(VECTOR, record.get("x") or (), strict=False)) | {"note": f'"{number}",\nand more'}
        writer.writerow(["" if values.get(name) is None else values[name] for name in names])
    return text.getvalue().encode()


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Events whose numbers are the same in every format."""
    return random_records(random.Random(11), EVENTS, IN_WIDTH, vertices=200)


@pytest.fixture(scope="module")
def whole(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A run to the end on JSON Lines."""
    folder = tmp_path_factory.mktemp("stream")
    save_model(make_model(1, SUMS), folder / "model")
    (folder / "events.jsonl").write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    job = Job(Input(folder / "model", folder / "events.jsonl", EVENTS), folder / "O")
    assert job.done(*EPOCHS)["rejected"] == 0
    return job


def test_a_killed_job_goes_on_in_the_middle_of_compressed_files(
    records: list[Record], whole: Job, tmp_path: Path, jobs: list[Job]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv.gz").write_bytes(gzip.compress(as_text(records[: EVENTS // 2])))
    (tmp_path / "in" / "b.tsv.zst").write_bytes(zstd(as_text(records[EVENTS // 2 :], "\t")))
    job = Job(replace(whole.given, events=tmp_path / "in"), tmp_path / "O")
    jobs.append(job)
    for epoch, more in ((5, ("--checkpoint-interval", "500ms")), (15, ("--resume", "latest"))):
        job.start(*EPOCHS, *more, faults=SLOW)
        job.until_epoch(epoch)
        job.kill()
        last = read_epochs(job.out)[-1]
        assert epoch - 4 <= last[0] < EVENTS / 100, "what a killed job had made visible"
        assert Path(last[1]).name == ("a.csv.gz" if epoch < 10 else "b.tsv.zst")
    assert job.done(*EPOCHS, "--resume", "latest")["rejected"] == 0
    assert_same_rows(read_log(job.out), read_log(whole.out))
    job.check()


def test_a_partitioned_folder_of_several_formats(
    records: list[Record], whole: Job, tmp_path: Path, jobs: list[Job]
) -> None:
    parts = [records[k : k + EVENTS // 4] for k in range(0, EVENTS, EVENTS // 4)]
    names = ("part=2/a.csv", "part=3/a.tsv.gz", "part=10/000000_0", "part=11/a.arrow")
    for name in names:
        (tmp_path / "in" / name).parent.mkdir(parents=True)
    (tmp_path / "in" / "_SUCCESS").touch()
    (tmp_path / "in" / names[0]).write_bytes(as_text(parts[0]))
    (tmp_path / "in" / names[1]).write_bytes(gzip.compress(as_text(parts[1], "\t")))
    kinds = {"op": pa.string(), **dict.fromkeys(("id", "src", "dst"), pa.int64()), "x": pa.list_(pa.float32())}
    schema = pa.schema({**kinds, "weight": pa.float64()})
    pq.write_table(pa.Table.from_pylist(parts[2], schema), tmp_path / "in" / names[2])
    with pa.ipc.new_file(tmp_path / "in" / names[3], schema) as writer:
        writer.write_table(pa.Table.from_pylist(parts[3], schema))
    job = Job(replace(whole.given, events=tmp_path / "in"), tmp_path / "O")
    jobs.append(job)
    ended = job.run(*EPOCHS)
    assert ended.code == 0 and ended.result["rejected"] == 0, ended.errors
    assert "(x, " in ended.errors and "ignored: note, part: see --events-map" in ended.errors
    assert_same_rows(read_log(job.out), read_log(whole.out))
    job.check()
