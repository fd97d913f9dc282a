"""`freshet export` of jobs of the local runtime: exact, the same again, and refused where it could not be right."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.gnn.model import save_model
from freshet.job.errors import UsageError
from freshet.job.folder import run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.kafka.client import ClientProperties
from freshet.job.local.runtime import LocalRuntime
from freshet.job.options.config_file import load_run_config
from freshet.job.results.export import export
from freshet.job.results.opened_job import Stopped
from freshet.job.results.taken_graph import found_state
from freshet.job.run import runner
from freshet.job.run.new_job import prepare
from freshet.job.run.resume import resume
from freshet.operators.epochs.cut import LostCutError
from freshet.operators.snapshot.writer import write_snapshot
from freshet.partitioner.config import GraphRules
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Features, kept_of
from tests.support.flink.metadata import metadata
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.streams import random_records, to_events

EVENTS = 600


class Given:
    """A stream and the job on it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.undirected = folder, options.pop("undirected", False)
        save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 4), conv("sage_conv", 4, 3)]), folder / "model")
        self.records = random_records(random.Random(5), EVENTS, IN_WIDTH, vertices=40, **options)
        lines = [orjson.dumps(record) for record in self.records]
        lines[100:100] = [b"no event"] * 3
        lines.append(b"nor this")
        (folder / "events.jsonl").write_bytes(b"\n".join(lines))

    def run(self, name: str, snapshot: str | None = None, stop_after: int | None = None, **options: Any) -> Path:
        """Run a job in OUT/name to its end, or stop it when about so many epochs have been committed."""
        out = self.folder / name
        given = {"model": self.folder / "model", "events": [str(self.folder / "events.jsonl")], "out": out}
        given |= {"runtime": "local", "epoch_ms": 0, "epoch_events": 20, "undirected": self.undirected, **options}
        config = load_run_config(given | ({"snapshot": self.folder / snapshot} if snapshot else {}))
        if config.resume:
            config, job = resume(config, out)
        else:
            job = prepare(config, out)
        runtime = LocalRuntime(job.settings, len(job.sources.chunks), out / "state")
        calls = [0]

        def on_progress() -> None:
            calls[0] += 1
            if stop_after is not None and calls[0] >= stop_after:
                runtime.stop()

        finished = runtime.run(on_progress)
        run_file.update_run(out, state=run_file.FINISHED if finished else run_file.STOPPED, pids={}, runtime="local")
        return out

    def truth(self, events: int) -> tuple[dict[Any, list[float]], dict[Any, float]]:
        graph = ReferenceGraph(Features(IN_WIDTH), GraphRules(self.undirected))
        graph.apply(to_events(self.records[:events], IN_WIDTH))
        arrays = graph.arrays()
        edges = {
            (src, dst, name or None): kept_of(values)[0]
            for name, kept in graph.edges.items()
            for src, ends in kept.out.items()
            for dst, values in ends.items()
        }
        return dict(zip(arrays.ids, arrays.x.tolist(), strict=True)), edges


def read(snapshot: Path) -> tuple[dict[Any, list[float]], dict[Any, float]]:
    vertices = pq.read_table(snapshot / "vertices.parquet").to_pylist()
    edges = pq.read_table(snapshot / "edges.parquet").to_pylist()
    by_ends = {(row["src"], row["dst"], row.get("type")): row["weight"] for row in edges}
    assert len(by_ends) == len(edges) > 20
    return {row["id"]: row["x"] for row in vertices}, by_ends


def exported(given: Given, name: str, job: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert export(given.folder / name, job) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    line: dict[str, Any] = orjson.loads(printed)
    found = read_json(given.folder / name / "snapshot.json", dict[str, Any], "")
    assert found == line | {"undirected": given.undirected, "times": found["times"]}
    assert sorted(item.name for item in (given.folder / name).iterdir()) == [
        "edges.parquet",
        "snapshot.json",
        "vertices.parquet",
    ]
    return line


@pytest.mark.parametrize("options", [{}, {"strings": True, "types": ("a", "b")}, {"undirected": True}], ids=str)
def test_a_job_that_was_stopped_goes_on_in_another_number_of_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr("freshet.operators.parser.files.CHUNK_LINES", 50)
    given = Given(tmp_path, **options)
    job = given.run("O", stop_after=6, parts=2)
    line = exported(given, "S", job, capsys)
    (position,) = line["positions"]
    applied = 20 * line["epoch"]
    assert 0 < applied < EVENTS
    assert position["next_offset"] == applied + (3 if applied > 100 else 0)
    assert position["records"] == EVENTS + 4
    assert read(tmp_path / "S") == given.truth(applied)
    assert len(read(tmp_path / "S")[0]) == line["vertices"]

    second = given.run("O2", "S", parts=3)
    again = exported(given, "S2", second, capsys)
    assert again["positions"][0]["next_offset"] == EVENTS + 4, "it has taken in all, the rejected record at the end too"
    assert read(tmp_path / "S2") == given.truth(EVENTS)
    nothing = given.run("O3", "S2", parts=1)
    assert exported(given, "S3", nothing, capsys)["epoch"] == 0
    assert read(tmp_path / "S3") == given.truth(EVENTS)


def test_a_job_that_began_behind_a_snapshot_stops_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.operators.parser.files.CHUNK_LINES", 50)
    given = Given(tmp_path)
    first = exported(given, "S", given.run("O", stop_after=3), capsys)
    out = given.run("O2", "S", stop_after=4, parts=2)
    second = exported(given, "S2", out, capsys)
    assert 0 < first["positions"][0]["next_offset"] < second["positions"][0]["next_offset"] < EVENTS
    given.run("O2", resume="latest")
    exported(given, "S3", out, capsys)
    assert read(tmp_path / "S3") == given.truth(EVENTS)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Given:
    given = Given(tmp_path_factory.mktemp("done"))
    given.run("O")
    return given


def test_without_a_state_the_events_are_taken_in_again(
    done: Given, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a Flink job that came to its end."""
    job = tmp_path / "O"
    expected = exported(done, "S", done.folder / "O", capsys)
    shutil.copytree(done.folder / "O", job)
    shutil.rmtree(job / "state")
    saved = orjson.loads((job / "job" / "job.json").read_bytes())
    write_json(job / "job" / "job.json", {**saved, "runtime": "flink"})
    assert exported(done, "S2", job, capsys) == expected
    assert read(done.folder / "S2") == done.truth(EVENTS)
    run_file.update_run(job, epoch=expected["epoch"])
    next((job / "epochs").glob("*.parquet")).unlink()
    with pytest.raises(UsageError, match=f"epochs/ does not have all epochs up to {expected['epoch']}"):
        export(tmp_path / "S3", job)


def test_the_latest_state_is_the_one_that_a_resume_takes(done: Given, tmp_path: Path) -> None:
    """A savepoint that was written elsewhere counts, and in another store it is known where it is."""
    job = tmp_path / "O"
    shutil.copytree(done.folder / "O", job)
    elsewhere = tmp_path / "savepoint-1"
    for state, when in ((job / "checkpoints" / ("a" * 32) / "chk-3", 100), (elsewhere, 300)):
        state.mkdir(parents=True)
        (state / "_metadata").write_bytes(metadata())
        os.utime(state / "_metadata", (when, when))
    run_file.update_run(job, state="stopped", savepoint=str(elsewhere))
    saved = SavedJob.read(job)
    assert saved is not None
    stopped = Stopped(job, saved.settings, saved, run_file.read_run(job), ClientProperties())
    assert found_state(stopped, "latest") == found_state(stopped, None) == str(elsewhere)
    away = replace(stopped, saved=replace(saved, options={**saved.options, "checkpoint_dir": "s3://bucket"}))
    run_file.update_run(job, savepoint="s3://bucket/savepoint-2")
    assert found_state(away, "latest") == "s3://bucket/savepoint-2"


def test_what_is_no_stopped_job_is_refused(done: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tmp_path / "O"
    with pytest.raises(UsageError, match="no job in it"):
        export(tmp_path / "S", tmp_path)
    shutil.copytree(done.folder / "O", job)
    run_file.update_run(job, folder=None)  # it is no copy
    with pytest.raises(UsageError, match=r"the local runtime has its state in .*/O/state; leave --from out"):
        export(tmp_path / "S", job, state="latest")
    with monkeypatch.context() as patch:
        patch.setattr(run_file, "running_process", lambda out: os.getpid())
        with pytest.raises(UsageError, match="is still working on it; stop it first: freshet stop"):
            export(tmp_path / "S", job)
    run_file.update_run(job, state=run_file.RUNNING, host="elsewhere")
    with pytest.raises(UsageError, match=r"the machine elsewhere .* is still working on it"):
        export(tmp_path / "S", job)
    run_file.update_run(job, state=run_file.RUNNING, cluster="127.0.0.1:1", rest="127.0.0.1:1", job_id="0" * 32)
    monkeypatch.setattr("freshet.job.flink.rest.FlinkRest.state", lambda rest: "RESTARTING")
    with pytest.raises(UsageError, match=r"the cluster 127\.0\.0\.1:1 is still working on it"):
        export(tmp_path / "S", job)
    monkeypatch.setattr("freshet.job.flink.rest.FlinkRest.state", lambda rest: "FAILED")
    (done.folder / "model").rename(done.folder / "moved")
    try:
        with pytest.raises(UsageError, match="say where it is now: --model M"):
            export(tmp_path / "S", job)
        assert export(tmp_path / "S", job, model=done.folder / "moved") == 0
    finally:
        (done.folder / "moved").rename(done.folder / "model")
    (job / "base" / "complete").unlink()
    with pytest.raises(UsageError, match="was killed before it had begun"):
        export(tmp_path / "S2", job)
    assert not (tmp_path / "S2").exists(), "nothing is left of it"


def test_what_the_state_needs_and_is_not_there_is_named(done: Given, tmp_path: Path) -> None:
    job = tmp_path / "O"
    shutil.copytree(done.folder / "O", job)
    shutil.rmtree(job / "checkpoints" / "cuts")
    (done.folder / "O" / "checkpoints" / "cuts").rename(tmp_path / "cuts")
    try:
        with pytest.raises(LostCutError, match="has no epoch 1"):
            export(tmp_path / "S", job)
    finally:
        (tmp_path / "cuts").rename(done.folder / "O" / "checkpoints" / "cuts")
    assert not (tmp_path / "S").exists()


def test_a_lost_journal_is_named(done: Given, tmp_path: Path) -> None:
    job = tmp_path / "O"
    shutil.copytree(done.folder / "O", job)
    shutil.rmtree(job / "state" / "values")
    with pytest.raises(DamagedFileError, match=r"No such file or directory: .*00000000\.values"):
        export(tmp_path / "S", job)
    assert not (tmp_path / "S").exists()


def test_attr_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No job keeps attributes of edges yet: that stands on stderr at the start, at the end and at the export."""
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "M")
    write_snapshot(tmp_path / "S", [1, 2], np.zeros((2, IN_WIDTH), np.float32), [1], [2])
    edges = pq.read_table(tmp_path / "S" / "edges.parquet")
    attr = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0], pa.float32()), 2)
    pq.write_table(edges.append_column("attr", attr), tmp_path / "S" / "edges.parquet")
    lines = [{"op": "add_edge", "src": 2, "dst": k} | ({"attr": [k, k]} if k % 2 else {}) for k in range(8)]
    (tmp_path / "e.jsonl").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    given = {"model": tmp_path / "M", "events": [str(tmp_path / "e.jsonl")], "out": tmp_path / "O", "runtime": "local"}
    assert runner.run(load_run_config(given | {"snapshot": tmp_path / "S"})) == 0
    said = capsys.readouterr().err
    assert "edges.parquet has a column attr: it is checked and not kept" in said
    assert "attr of 4 edges of the events was checked and not kept" in said
    assert export(tmp_path / "S2", tmp_path / "O") == 0
    told = capsys.readouterr()
    assert f"attr is left out: 4 edge events and {tmp_path}/S/edges.parquet brought attr of 2 numbers" in told.err
    assert orjson.loads(told.out)["attr_left_out"] == 2
    assert orjson.loads((tmp_path / "S2" / "snapshot.json").read_bytes())["attr_left_out"] == 2
    (tmp_path / "e.jsonl").write_bytes(b'{"op":"add_edge","src":2,"dst":3}')
    assert runner.run(load_run_config(given | {"out": tmp_path / "O2"})) == 0
    assert export(tmp_path / "S3", tmp_path / "O2") == 0
    told = capsys.readouterr()
    assert "attr_left_out" not in told.out
    assert "attr is left out" not in told.err


def test_an_export_that_was_killed_does_not_keep_the_next_one_from_its_folder(done: Given, tmp_path: Path) -> None:
    folder = tmp_path / "S"
    (folder / ".export" / "snapshot").mkdir(parents=True)
    (folder / "vertices.parquet").touch()
    (folder / ".lock").touch()
    assert export(folder, done.folder / "O") == 0
    assert sorted(item.name for item in folder.iterdir()) == ["edges.parquet", "snapshot.json", "vertices.parquet"]
    for name in ("mine.txt", ".export"):
        (tmp_path / name / name).mkdir(parents=True)
        (tmp_path / name / "mine.txt").touch()
        with pytest.raises(UsageError, match="new or empty"):
            export(tmp_path / name, done.folder / "O")
        assert (tmp_path / name / "mine.txt").exists()
