"""`freshet check` of whole runs of the local runtime: a right one passes, one that was deaf or lost something fails."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.job.folder.run_file import read_run
from tests.support.runs.jobs import Input, Job, make_input

pytestmark = pytest.mark.slow

SHAPE = ("--runtime", "local", "--parts", 2, "--epoch-events", 100, "--epoch-ms", 0)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    """A snapshot, and a folder of two files, one of lines of which some are bad, one of rows."""
    made = make_input(tmp_path_factory.mktemp("given"), 4_000, snapshot=True, seed=5)
    lines = made.events.read_bytes().splitlines(keepends=True)
    folder = made.events.parent / "events"
    folder.mkdir()
    bad = [b"nonsense\n", b'{"op":"del_vertex","id":"x"}\n', b"\n", b'{"op":"set_features","id":2,"x":[1]}\n']
    mixed = [
        line for k, one in enumerate(lines[:2_500]) for line in ((one, bad[k // 10 % 4]) if k % 10 == 5 else (one,))
    ]
    (folder / "a.jsonl").write_bytes(b"".join(mixed))
    rows = [orjson.loads(line) for line in lines[2_500:]]
    fields = {"op": pa.string(), "id": pa.int64(), "src": pa.int64(), "dst": pa.int64()}
    schema = pa.schema({**fields, "x": pa.list_(pa.float64()), "weight": pa.float64()})
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "b.parquet")
    rejected = sum(1 for k in range(2_500) if k % 10 == 5 and k // 10 % 4 != 2)
    return Input(made.model, folder, 4_000 + rejected, made.snapshot)


@pytest.fixture(scope="module")
def done(given: Input, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The run, at its end."""
    job = Job(given, tmp_path_factory.mktemp("done") / "out")
    result = job.done(*SHAPE)
    assert (result["events"], result["rejected"], result["epochs"]) == (given.count, given.count - 4_000, 40)
    assert read_run(job.out)["summary"] == result
    return job


def test_a_right_run_passes_at_every_seventh_epoch(done: Job, given: Input) -> None:
    found = done.check("--every", 7)
    assert (found["epoch"], found["epochs_checked"], found["faults"]) == (40, 6, [])
    assert (found["events"], found["rejected"]) == (given.count, given.count - 4_000)
    assert found["max_rel_error"] < 1e-5


def damaged(job: Job, folder: Path) -> Job:
    """A copy to be damaged."""
    shutil.copytree(job.out, folder / "out")
    return Job(job.given, folder / "out")


def test_a_log_of_which_the_last_epochs_were_taken_fails(done: Job, tmp_path: Path) -> None:
    job = damaged(done, tmp_path)
    for path in (job.out / "epochs").glob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.filter(pa.compute.less_equal(table["epoch"], 16)), path)
    ended = job.checked()
    assert (ended.code, ended.result["epoch"]) == (1, 16)
    assert any("2,400 events of the input are in no epoch" in fault for fault in ended.result["faults"])


def test_a_log_of_which_a_file_was_lost_fails(done: Job, tmp_path: Path) -> None:
    job = damaged(done, tmp_path)
    sorted((job.out / "embeddings").glob("part-1-*.parquet"))[-1].unlink()
    ended = job.checked()
    assert ended.code == 1
    assert any("rows after epoch 0, by status/ it is" in fault for fault in ended.result["faults"])


def test_a_parser_that_drops_half_of_all_deletions_is_found(given: Input, tmp_path: Path) -> None:
    job = Job(given, tmp_path / "out")
    job.start(*SHAPE, faults={"broken": "deaf"})
    assert job.wait().code == 0
    ended = job.checked()
    assert ended.code == 1
    assert any("counts of events are wrong" in fault for fault in ended.result["faults"])
    assert any("the run tells of" in fault for fault in ended.result["faults"])
