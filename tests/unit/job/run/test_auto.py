"""`--resume auto`: one command line that begins a job, goes on with it, and ends once there is nothing left to do."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import typer

from freshet.gnn.model import save_model
from freshet.job.commands.run import run
from freshet.job.errors import UsageError
from freshet.job.folder import layout, lock, run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.lifecycle.summary import complete_epoch
from freshet.job.options.config_file import load_run_config
from freshet.job.run import runner
from freshet.job.run.attach import former_state
from freshet.job.run.new_job import prepare
from freshet.job.run.preflight import begins, check_out, check_run
from freshet.operators.snapshot.writer import write_snapshot
from tests.support.graphs.models import IN_WIDTH, conv, make_model

EVENTS = b"".join(orjson.dumps({"op": "add_edge", "src": n, "dst": n + 1}) + b"\n" for n in range(20))


@pytest.fixture
def line(tmp_path: Path) -> dict[str, Any]:
    """The options of a job that begins from a snapshot, always the same."""
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(EVENTS)
    x = np.ones((3, IN_WIDTH), np.float32)
    ends = np.array([0, 1]), np.array([1, 2])
    write_snapshot(tmp_path / "S", np.arange(3), x, *ends, np.ones(2, np.float32))
    given = {"model": tmp_path / "model", "events": [str(tmp_path / "events.jsonl")], "out": tmp_path / "out"}
    return {**given, "snapshot": tmp_path / "S", "parts": 2, "runtime": "local", "resume": "auto"}


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], int]:
    """`freshet run` with these options, in this process, which keeps its kernels; returns the exit code."""
    monkeypatch.setattr("freshet.job.run.processor.settle", lambda *_, **__: None)

    def call(options: dict[str, Any]) -> int:
        with pytest.raises(typer.Exit) as left:
            run(config=None, **options)
        return left.value.exit_code

    return call


def test_one_line_begins_goes_on_and_ends(
    line: dict[str, Any], command: Callable[[dict[str, Any]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(line) == 0
    first = orjson.loads(capsys.readouterr().out)
    out = line["out"]
    run_file.update_run(out, state=run_file.RUNNING, pids={})  # as if it had been killed
    (line["snapshot"] / "vertices.parquet").unlink()  # what only the begin needs may be gone
    left = [out / layout.STATUS / ".sink-0.json.1.tmp", out / layout.EMBEDDINGS / ".part-0-00000009.parquet.1.tmp"]
    base = out / layout.EMBEDDINGS / ".base-000000000002.parquet.1.tmp"  # of a compaction that is at work
    for path in (*left, base):
        path.touch()
    for said in ("prepared in", "nothing left to do"):
        assert command(line) == 0
        captured = capsys.readouterr()
        assert orjson.loads(captured.out)["events"] == first["events"] == 20
        assert said in captured.err
        assert [path.exists() for path in (*left, base)] == [False, False, True]
    with pytest.raises(UsageError, match="--parts 3: fixed at 2"):
        run(config=None, **line | {"parts": 3})
    with lock.taken(out, "freshet run"), pytest.raises(UsageError, match=r"\(freshet run, since .*\) works on it"):
        run(config=None, **line)


def test_a_signal_as_the_job_ends_leaves_no_lost_job(
    line: dict[str, Any], command: Callable[[dict[str, Any]], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the last epoch, and before the end is recorded."""
    out, sent = line["out"], list[int]()

    def complete(of: Path) -> int:
        if run_file.read_run(out).get("state") == run_file.RUNNING:
            sent.append(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        return complete_epoch(of)

    monkeypatch.setattr(runner, "complete_epoch", complete)
    assert command(line) == 0
    assert (len(sent), run_file.read_run(out)["state"]) == (1, run_file.FINISHED)


def test_a_job_that_has_finished_ends_well_whatever_it_rejected(
    line: dict[str, Any], command: Callable[[dict[str, Any]], int]
) -> None:
    (line["out"].parent / "events.jsonl").write_bytes(b"no event\n" * 3)
    assert command(line) == 1, "no record was accepted"
    assert command(line) == 0
    assert command(line | {"resume": "latest"}) == 1


def test_a_folder_begins_until_its_job_has_begun(line: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    out = line["out"]
    assert begins(out), "it is not there"
    config = load_run_config(line | {"resume": None, "runtime": "flink"})
    out.mkdir()
    prepare(config, out)
    run_file.update_run(out, pids={})
    assert begins(out), "a run has prepared it, and was killed"
    run_file.update_run(out, cluster="127.0.0.1:1", rest="127.0.0.1:1", job_id="f" * 32, savepoint=None)
    monkeypatch.setattr("freshet.job.run.attach._PATIENCE_S", 0.0)
    assert not begins(out), "a cluster that does not answer may have it"
    check_out(out, "auto")
    for named in ("auto", "latest"):
        with pytest.raises(
            UsageError, match=r"the cluster 127\.0\.0\.1:1 does not answer, and the job f+ of .* may run"
        ):
            former_state(named, None, out)
    (out / "alien").touch()
    (out / "job" / "job.json").unlink()
    assert begins(out)
    with pytest.raises(UsageError, match="not empty: it has"):
        check_out(out, None)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"snapshot": "other"}, r"--snapshot .*other: the job in .* began from .*/S; give that one, or leave"),
        ({"partitioner": "hash"}, "--partitioner hash: fixed at"),
        (
            {"ignore_positions": True},
            "ignore-positions.*: the job in .* goes on where it was; leave ignore-positions out",
        ),
    ],
)
def test_options_for_the_begin_are_taken_where_they_are_the_jobs_own(
    line: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    out = line["out"]
    assert runner.run(load_run_config(line | {"resume": None, "ignore_positions": False})) == 0
    run_file.update_run(out, state=run_file.STOPPED, pids={})
    saved = SavedJob.read(out)
    assert saved is not None
    assert saved.begun == {"start_from": "earliest", "ignore_positions": False}
    other = {"snapshot": out.parent / "other"} if "snapshot" in more else more
    with pytest.raises(UsageError, match=message):
        runner.run(load_run_config(line | {"ignore_positions": False} | other))
    check_run(load_run_config(line))
    assert runner.run(load_run_config(line | {"ignore_positions": False})) == 0
