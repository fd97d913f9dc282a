"""The age of the newest durable state, wherever it lies, also while a running job removes older ones."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from freshet.files.listing import paths_in
from freshet.job.folder import job_file, layout, run_file
from freshet.job.lifecycle import checkpoint_age
from freshet.job.lifecycle.checkpoint_age import checkpoint_age_s
from freshet.job.lifecycle.job_state import RUNNING, STOPPED, JobState
from tests.support.stores.moto_server import BUCKET, SECRET, MotoServer, moto_server

FIRST = "1" * 32


def written(state: Path, age_s: float) -> Path:
    """A complete state of that age."""
    state.mkdir(parents=True)
    (state / "_metadata").write_bytes(b"x")
    os.utime(state / "_metadata", times=(time.time() - age_s,) * 2)
    return state


def running(**fields: Any) -> JobState:
    return JobState(RUNNING, "", {"state": run_file.RUNNING, **fields})


def stopped(**fields: Any) -> JobState:
    return JobState(STOPPED, "", {"state": run_file.STOPPED, **fields})


def test_the_newest_counts(tmp_path: Path) -> None:
    assert checkpoint_age_s(tmp_path, running()) is None
    folder = tmp_path / layout.CHECKPOINTS
    written(folder / FIRST / "chk-1", 500)
    written(folder / FIRST / "chk-2", 300)
    assert checkpoint_age_s(tmp_path, running()) == pytest.approx(300, abs=20)
    written(folder / "savepoint-1", 100)
    assert checkpoint_age_s(tmp_path, running(checkpoints=f"file://{folder}")) == pytest.approx(100, abs=20)


def test_a_stopped_job_has_its_savepoint_wherever_that_lies(tmp_path: Path) -> None:
    savepoint = written(tmp_path / "elsewhere" / "savepoint-1", 100)
    out = tmp_path / "out"
    assert checkpoint_age_s(out, stopped(savepoint=str(savepoint))) == pytest.approx(100, abs=20)
    written(out / layout.CHECKPOINTS / FIRST / "chk-1", 300)
    assert checkpoint_age_s(out, stopped(savepoint=str(savepoint))) == pytest.approx(100, abs=20)
    assert checkpoint_age_s(out, running(savepoint=str(savepoint))) == pytest.approx(300, abs=20), "it has gone on"
    shutil.rmtree(tmp_path)
    assert checkpoint_age_s(out, stopped(savepoint=str(savepoint))) is None


def test_so_it_is_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(server: MotoServer, name: str) -> None:
        server.client.put_object(Bucket=BUCKET, Key=name, Body=b"x")

    with moto_server() as server:
        store = {"s3.endpoint": server.endpoint, "s3.access-key": "id", "s3.secret-key": SECRET}
        monkeypatch.setattr(job_file, "store_options", lambda _out: store)
        where, savepoint = f"{server.uri}/jobs", f"{server.uri}/elsewhere/savepoint-1"
        assert checkpoint_age_s(tmp_path, running(checkpoints=where)) is None
        put(server, "elsewhere/savepoint-1/_metadata")
        assert checkpoint_age_s(tmp_path, running(checkpoints=where)) is None
        for checkpoints in (where, str(tmp_path)):
            assert checkpoint_age_s(tmp_path, stopped(checkpoints=checkpoints, savepoint=savepoint)) < 60
        here = str(written(tmp_path / "elsewhere" / "savepoint-2", 0))
        assert checkpoint_age_s(tmp_path, stopped(checkpoints=where, savepoint=here)) < 60
        put(server, f"jobs/{FIRST}/chk-1/_metadata")
        assert checkpoint_age_s(tmp_path, running(checkpoints=where)) < 60


@pytest.mark.parametrize("what", ["a checkpoint", "an attempt"])
def test_what_the_job_removes_while_we_look_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A checkpoint goes between the moment when it is found and that when its time is read."""
    folder = tmp_path / layout.CHECKPOINTS
    old, new = written(folder / FIRST / "chk-1", 300), written(folder / ("2" * 32) / "chk-1", 100)
    found = checkpoint_age.complete_states

    def found_and_gone(place: Path) -> list[Path]:
        states = found(place)
        shutil.rmtree(new if what == "a checkpoint" else new.parent)
        return states

    monkeypatch.setattr(checkpoint_age, "complete_states", found_and_gone)
    assert checkpoint_age_s(tmp_path, running()) == pytest.approx(300, abs=20)
    assert old.exists()


def test_commits_of_the_local_runtime_may_go_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = written(tmp_path / layout.STATE / "commit-1", 100)
    written(tmp_path / layout.STATE / "commit-0" / "deep", 300)
    assert checkpoint_age_s(tmp_path, running(runtime="local")) == pytest.approx(100, abs=20)

    def found_and_gone(folder: Path, pattern: str) -> list[Path]:
        paths = paths_in(folder, pattern)
        shutil.rmtree(commit)
        return paths

    monkeypatch.setattr(checkpoint_age, "paths_in", found_and_gone)
    assert checkpoint_age_s(tmp_path, running(runtime="local")) == pytest.approx(300, abs=20)


def test_a_folder_that_goes_while_it_is_listed_has_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in ("a", "b"):
        written(tmp_path / job / "chk-1", 0)
    scandir = os.scandir

    def scan(place: str | Path) -> Any:
        if str(place).endswith("/a"):
            shutil.rmtree(tmp_path / "a", ignore_errors=True)
        return scandir(place)

    monkeypatch.setattr(os, "scandir", scan)
    assert paths_in(tmp_path, "*/chk-*") == [tmp_path / "b" / "chk-1"]
    assert paths_in(tmp_path / "nowhere", "*/chk-*") == []
