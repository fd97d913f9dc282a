"""A run that ended before its first epoch leaves nothing that keeps the same command from beginning again."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from freshet.gnn.model import save_model
from freshet.job.errors import UsageError
from freshet.job.folder import layout, leftovers, run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.folder.leftovers import what_is_in
from freshet.job.options.config_file import load_run_config
from freshet.job.run import new_job as preparing
from freshet.job.run import runner
from freshet.job.run.outputs import note_topics
from freshet.job.run.preflight import check_out
from freshet.job.run.sources import Sources
from freshet.operators.snapshot.reader import SnapshotError
from freshet.operators.snapshot.writer import write_snapshot
from tests.support.graphs.models import IN_WIDTH, conv, make_model

VERTICES = 5


@pytest.fixture
def given(tmp_path: Path) -> dict[str, object]:
    """Options of a local run from a snapshot."""
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "M")
    (tmp_path / "e.jsonl").write_bytes(b'{"op":"add_edge","src":1,"dst":7}\n')
    snapshot(tmp_path, 1.0)
    options = {"model": tmp_path / "M", "events": [str(tmp_path / "e.jsonl")], "out": tmp_path / "O"}
    return options | {"runtime": "local", "snapshot": tmp_path / "S"}


def snapshot(folder: Path, value: float) -> None:
    """A snapshot in folder/S; NaN makes it a wrong one."""
    x = np.full((VERTICES, IN_WIDTH), value, np.float32)
    write_snapshot(folder / "S", np.arange(VERTICES), x, np.array([0]), np.array([1]))


def begin(given: dict[str, object]) -> int:
    """What `freshet run` does in a folder that it has taken."""
    config = load_run_config(given)
    config.out.mkdir(exist_ok=True)
    check_out(config.out, None)
    return runner.run(config)


def ids(out: Path) -> set[int]:
    """The ids in the change log."""
    return set(pq.read_table(out / "embeddings")["id"].to_pylist())


def test_a_run_that_failed_while_it_prepared(given: dict[str, object], tmp_path: Path) -> None:
    snapshot(tmp_path, np.nan)
    with pytest.raises(SnapshotError):
        begin(given)
    assert run_file.read_run(tmp_path / "O")["state"] == run_file.FAILED
    first = (tmp_path / "O" / layout.SAVED_JOB).read_bytes()
    snapshot(tmp_path, 1.0)
    assert begin(given) == 0
    assert ids(tmp_path / "O") == {0, 1, 2, 3, 4, 7}
    assert (tmp_path / "O" / layout.SAVED_JOB).read_bytes() != first
    with pytest.raises(UsageError, match=r"a run has begun in it.*--resume latest"):
        begin(given)


@pytest.mark.parametrize("at", ["sources.save", "write", "update_run", "make_image", "start", "local"])
def test_a_run_that_was_killed_at_any_step(
    given: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object, **__: object) -> None:
        raise Killed

    places = {
        "sources.save": (Sources, "save"),
        "write": (SavedJob, "write"),
        "update_run": (run_file, "update_run"),
        "make_image": (preparing, "make_image"),
        "start": (runner, "_run_local"),
        "local": (runner.run_file, "update_run"),
    }
    with monkeypatch.context() as patch:
        if at == "local":  # at the first word of the job itself, everything is made
            patch.setattr(runner, "_watch", kill)
        else:
            patch.setattr(*places[at], kill)
        with pytest.raises(Killed):
            begin(given)
    (tmp_path / "e.jsonl").write_bytes(b'{"op":"add_edge","src":1,"dst":8}\n')
    assert begin(given) == 0
    assert ids(tmp_path / "O") == {0, 1, 2, 3, 4, 8}


def test_what_is_not_freshets_is_never_removed(given: dict[str, object], tmp_path: Path) -> None:
    out = tmp_path / "O"
    snapshot(tmp_path, np.nan)
    with pytest.raises(SnapshotError):
        begin(given)
    assert what_is_in(out) is None
    note_topics(out, {"emb": {"topic_id": None, "ends": {0: 3}, "has_all": True}})
    assert what_is_in(out) is None, "Freshet's own"
    (out / "status").mkdir(exist_ok=True)
    for name in ("notes.txt", "embeddings/mine.csv", "job/thesis.tex", "status/a.txt", "data/x.parquet"):
        path = out / name
        made = not path.parent.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        with pytest.raises(UsageError, match=f"not empty: it has {name.partition('/')[0]}"):
            begin(given)
        assert path.read_text() == "mine"
        path.unlink()
        if made:
            path.parent.rmdir()
    (out / "tables").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="it has tables"):
        begin(given)


def test_a_job_on_a_cluster_goes_on_without_its_process(
    given: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot(tmp_path, np.nan)
    with pytest.raises(SnapshotError):
        begin(given)
    run_file.update_run(tmp_path / "O", state=run_file.RUNNING, cluster="h:1", rest="h:1", job_id="f", pids={})
    monkeypatch.setattr("freshet.job.flink.rest.FlinkRest.state", lambda rest: "RUNNING")
    with pytest.raises(UsageError, match="the cluster h:1 is still working on it"):
        begin(given)
    assert not leftovers.clear(tmp_path / "M")


def test_what_killed_processes_had_not_finished_goes_with_the_next_run(given: dict[str, object]) -> None:
    out = Path(str(given["out"]))
    (out / "job").mkdir(parents=True)
    left = [out / name for name in ("job/.start.json.0a.tmp", "base/.image.json.0a.tmp", "status/.Sink-0.json.0a.tmp")]
    left[0].touch()
    assert begin(given) == 0
    assert not left[0].exists()
    for path in left:
        path.touch()
    assert runner.run(load_run_config({**given, "resume": "latest"})) == 0
    assert not any(path.exists() for path in left)


def test_a_folder_that_only_looks_like_a_job_is_not_one(tmp_path: Path) -> None:
    (tmp_path / "embeddings").mkdir()
    (tmp_path / "embeddings" / "part-0-00000000.parquet").touch()
    assert what_is_in(tmp_path) == "it has embeddings"


def test_a_job_that_has_begun_stays_whatever_is_missing(
    given: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, gone = tmp_path / "O", tmp_path / "gone"
    assert begin(given) == 0
    run_file.update_run(out, state=run_file.RUNNING, epoch=None)  # killed
    assert what_is_in(out) == "a run has begun in it"  # by its cuts
    log = next((out / layout.CHECKPOINTS / layout.CUT_LOG).glob("attempt-*"))
    for segment in log.iterdir():
        segment.unlink()
    assert what_is_in(out) == "a run has begun in it"  # by its epochs
    for file in (out / layout.EPOCHS).iterdir():
        file.unlink()
    assert what_is_in(out) is None
    for fields in ({"savepoint": "/elsewhere/savepoint-1"}, {"state": run_file.FINISHED}, {"epoch": 3}):
        run_file.update_run(out, **fields)
        assert what_is_in(out) == "a run has begun in it"
        run_file.update_run(out, savepoint=None, state=run_file.RUNNING, epoch=None)
    state = out / layout.CHECKPOINTS / "0" / "chk-1" / "_metadata"
    state.parent.mkdir(parents=True)
    state.touch()
    assert what_is_in(out) == "a run has begun in it"
    state.unlink()
    with monkeypatch.context() as beside:
        scandir = os.scandir

        def scan(place: Path) -> object:
            if str(place).endswith("/chk-1"):
                state.parent.rmdir()
            return scandir(place)

        beside.setattr(os, "scandir", scan)
        assert what_is_in(out) is None, "Flink has removed the checkpoint as it was looked at"
    with monkeypatch.context() as beside:
        beside.setattr(leftovers, "segments_in", lambda _: gone.iterdir())
        assert what_is_in(out) == "a run has begun in it", "one that takes it over at this moment"
    (out / "mine.txt").touch()
    assert not leftovers.clear(out)
    (out / "mine.txt").unlink()
    assert leftovers.clear(out)
    assert not leftovers.clear(tmp_path / "nowhere")
    assert list(out.iterdir()) == []
