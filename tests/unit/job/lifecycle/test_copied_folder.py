"""A copy of the folder of a running job is not that job: commands on it must not reach the original."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freshet.errors import InputError
from freshet.files.json_file import write_json
from freshet.job.errors import UsageError
from freshet.job.flink.rest import FlinkRest
from freshet.job.folder import layout, run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.lifecycle.job_state import LOST, RUNNING, STOPPED, state_of
from freshet.job.run.attach import former_state
from freshet.job.run.stop import NothingToStopError, stop, stop_process
from tests.support.serving.hand_job import HandJob

CLUSTER = {"cluster": "c:8081", "rest": "c:8081", "job_id": "f00d", "checkpoints": "file:///c", "started_ms": 1}
GONE = 1 << 22  # no process has this number


@pytest.fixture
def flink(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What Flink says of the job."""
    told = {"state": "RUNNING", "stopped": 0}
    monkeypatch.setattr(FlinkRest, "state", lambda _rest: told["state"])

    def refuse(_rest: FlinkRest, *_: object) -> str:
        told["stopped"] += 1
        return "/s/savepoint-1"

    monkeypatch.setattr(FlinkRest, "stop", refuse)
    return told


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    """A job that runs on a cluster; its client is gone."""
    hand = HandJob(tmp_path / "O")
    saved = SavedJob.read(hand.out)
    assert saved is not None
    replace(saved, runtime="flink").write(hand.out)
    run_file.update_run(hand.out, state="running", runtime="flink", pids={"client": GONE}, **CLUSTER)
    yield hand.out
    hand.close()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_copy_of_a_running_job_is_refused_by_name(job: Path, flink: dict[str, Any], damaged: bool) -> None:
    copy = job.parent / "O2"
    shutil.copytree(job, copy)
    if damaged:
        (copy / layout.RUN).write_text("{")
    named = (
        rf"{copy}: a copy of {job}, whose job runs \(RUNNING on the cluster c:8081, without a client\); give {job}, or"
    )
    for ask in (state_of, stop, lambda out: former_state("auto", None, out)):
        with pytest.raises(UsageError, match=named):
            ask(copy)
    assert flink["stopped"] == 0
    assert state_of(job).state == RUNNING, "the original is the job"
    flink["state"] = "FINISHED"
    assert state_of(copy).state == STOPPED, "the original has ended: the copy is a job to go on with"


def test_a_folder_that_was_moved_is_the_job(job: Path, flink: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    moved = job.parent / "moved"
    job.rename(moved)
    assert state_of(moved).runs_on_cluster
    link = job.parent / "link"
    link.symlink_to(moved)
    assert state_of(link).runs_on_cluster
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    assert state_of(moved).runs_on_cluster, "seen at another path from there"
    told = run_file.read_run(moved)["folder"]
    write_json(moved / layout.RUN, {**run_file.read_run(moved), "folder": {**told, "inode": told["inode"] + 1}})
    with pytest.raises(UsageError, match=r"a copy of .*/O, whose job runs"):
        state_of(moved)
    monkeypatch.undo()


def test_a_folder_that_was_moved_to_another_disk_is_the_job(job: Path, flink: dict[str, Any]) -> None:
    moved = job.parent / "moved"
    shutil.copytree(job, moved)
    shutil.rmtree(job)
    assert state_of(moved).runs_on_cluster


def test_a_copy_of_an_embedded_job_does_not_reach_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, copy = tmp_path / "O", tmp_path / "O2"
    out.mkdir()
    parent = os.getppid()
    monkeypatch.setattr(run_file, "began_s", lambda: None)
    run_file.update_run(
        out, state="running", runtime="local", **{**run_file.this_process(), "pids": {"client": parent}}
    )
    shutil.copytree(out, copy)
    assert state_of(out).process == parent
    with pytest.raises(
        UsageError, match=f"{copy}: a copy of {out}, whose job runs .process {parent} works on it.; give"
    ):
        stop_process(copy)


def test_a_stopped_job_is_usable_from_copies(job: Path, flink: dict[str, Any]) -> None:
    run_file.update_run(job, state="stopped", savepoint="/s/1", ended_ms=2)
    flink["state"] = "FINISHED"
    copy, moved = job.parent / "O2", job.parent / "moved"
    shutil.copytree(job, copy)
    job.rename(moved)
    for one in (copy, moved):
        assert state_of(one).state == STOPPED
        assert former_state("latest", None, one).worker is None
        with pytest.raises(NothingToStopError):
            stop(one)


def test_jobs_of_earlier_versions_do_not_say_where_they_are(job: Path, flink: dict[str, Any]) -> None:
    run = run_file.read_run(job)
    del run["folder"]
    copy = job.parent / "O2"
    shutil.copytree(job, copy)
    write_json(copy / layout.RUN, run)
    assert state_of(copy).runs_on_cluster


def test_stop_goes_by_the_place_of_the_job_where_run_json_is_damaged(job: Path, flink: dict[str, Any]) -> None:
    for text in ("{", "[]", ""):
        run_file.update_run(job, state="running", pids={"client": GONE}, **CLUSTER)
        (job / layout.RUN).write_text(text)
        flink["state"] = "RUNNING"
        assert stop(job) == 0
        run = run_file.run_of_file(job)
        assert (run["state"], run["savepoint"]) == ("stopped", "/s/savepoint-1")
        assert not (job / layout.PLACE).exists()
    assert flink["stopped"] == 3
    (job / layout.RUN).write_text("{")
    with pytest.raises(InputError, match=r"run.json: damaged"):
        stop(job)
    assert state_of(job).state == LOST
