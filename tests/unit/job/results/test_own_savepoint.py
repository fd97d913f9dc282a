"""Exports of a job that runs on Flink: no checkpoint is read that Flink may remove meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freshet.files.json_file import write_json
from freshet.job.errors import UsageError
from freshet.job.flink.rest import FlinkRest, FlinkRestError
from freshet.job.folder import layout, run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.kafka.client import ClientProperties
from freshet.job.results import opened_job, taken_graph
from freshet.job.results.opened_job import Stopped, open_job
from freshet.job.results.own_savepoint import may_vanish, own_savepoint
from freshet.job.results.taken_graph import take_graph
from freshet.job.run.job_states import JobStates
from freshet.job.uris import local_path
from freshet.operators.epochs.cut import LostCutError
from freshet.operators.settings import Settings
from freshet.partitioner.config import PartitionerConfig

JOB = "0123456789abcdef"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Has Flink write savepoints, and returns where."""
    targets: list[str] = []

    def savepoint(_rest: FlinkRest, target: str, _timeout_s: float) -> str:
        targets.append(target)
        made = local_path(target) / "savepoint-1"
        made.mkdir()
        (made / "_metadata").write_bytes(b"x")
        return str(made)

    monkeypatch.setattr(FlinkRest, "savepoint", savepoint)
    return targets


@pytest.fixture
def stopped(tmp_path: Path) -> Stopped:
    """A job that runs, as far as its folder says."""
    settings = Settings(model="M", out=str(tmp_path), parts=1, partitioning=PartitionerConfig(), job_id=JOB)
    run = {"state": run_file.RUNNING, "checkpoints": f"file://{tmp_path}/checkpoints", "rest": "h:1", "job_id": "f"}
    write_json(tmp_path / "run.json", run)
    return Stopped(
        tmp_path, settings, SavedJob(settings, "", None, "flink", (), {}), run, ClientProperties(), is_live=True
    )


def taken_from(
    monkeypatch: pytest.MonkeyPatch, *failures: Exception, jobs: list[Stopped] | None = None
) -> list[str | None]:
    """The states that graphs are taken from, the first of which fail; `jobs` gets their jobs."""
    states: list[str | None] = []

    def from_state(stopped: Stopped, state: str | None, _work: Path, _use: object) -> dict[str, Any]:
        states.append(state)
        if jobs is not None:
            jobs.append(stopped)
        if len(states) <= len(failures):
            raise failures[len(states) - 1]
        assert state is None or (Path(state) / "_metadata").exists()
        return {}

    monkeypatch.setattr(taken_graph, "from_state", from_state)
    return states


def take(stopped: Stopped, state: str | None, work: Path) -> None:
    take_graph(stopped, state, work, lambda _taken: None)


@pytest.mark.parametrize("given", ["latest", "checkpoints", "checkpoints/f/chk-9", "."])
def test_a_checkpoint_of_a_job_that_runs_is_never_read(
    stopped: Stopped, asked: list[str], monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    states = taken_from(monkeypatch)
    take(stopped, given if given == "latest" else str(stopped.out / given), stopped.out)
    (target,) = asked
    assert states == [f"{local_path(target)}/savepoint-1"]
    assert "/checkpoints/exports/" in target
    assert not (stopped.out / "checkpoints" / "exports").exists(), "it is removed"


def test_a_savepoint_is_taken_as_it_is_named(
    stopped: Stopped, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    states = taken_from(monkeypatch)
    savepoint = stopped.out / "elsewhere" / "savepoint-7"
    savepoint.mkdir(parents=True)
    (savepoint / "_metadata").touch()
    take(stopped, str(savepoint), stopped.out)
    assert (states, asked) == ([str(savepoint)], [])


def test_what_may_vanish(tmp_path: Path) -> None:
    here = JobStates(tmp_path, JOB, None, "--from")
    for given in ("checkpoints/savepoints", "checkpoints/savepoints/savepoint-1", "checkpoints/savepoint-1/"):
        assert not may_vanish(str(tmp_path / given), here)
    assert not may_vanish(str(tmp_path.parent / "other" / "chk-1"), here)
    assert not may_vanish("s3://bucket/savepoint-1", here)
    assert may_vanish("s3://bucket/f/chk-1", here)
    assert may_vanish(f"file://{tmp_path}/checkpoints/f/chk-2", here)
    assert may_vanish(str(tmp_path / "checkpoints" / "f" / "chk-that-was-removed"), here)


def test_a_cut_log_that_went_on_meanwhile_costs_another_savepoint(
    stopped: Stopped, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    states = taken_from(monkeypatch, LostCutError(), LostCutError())
    take(stopped, "latest", stopped.out)
    assert len(states) == len(set(asked)) == 3
    taken_from(monkeypatch, *[LostCutError("for good")] * 3)
    with pytest.raises(LostCutError, match="for good"):
        take(stopped, "latest", stopped.out)
    assert not (stopped.out / "checkpoints" / "exports").exists()


def test_a_job_that_ends_meanwhile_is_exported_as_it_ended(stopped: Stopped, monkeypatch: pytest.MonkeyPatch) -> None:
    states = taken_from(monkeypatch)

    def savepoint(*_: object) -> str:
        run_file.update_run(stopped.out, state=run_file.STOPPED)
        msg = "stop-with-savepoint is under way"
        raise FlinkRestError(msg)

    monkeypatch.setattr(FlinkRest, "savepoint", savepoint)
    take(stopped, "latest", stopped.out)
    assert states == [None]
    monkeypatch.setattr(opened_job, "at_work", lambda *_: "process 7")
    monkeypatch.setattr(opened_job, "END_S", 0.0)
    with pytest.raises(FlinkRestError, match="under way"):
        take(stopped, "latest", stopped.out)


def test_a_job_that_starts_or_ends_has_no_state_of_its_own(stopped: Stopped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SavedJob, "read", lambda _out: stopped.saved)
    monkeypatch.setattr(SavedJob, "settings_at", lambda *_: stopped.settings)
    monkeypatch.setattr(opened_job, "at_work", lambda *_: "process 7")
    for name in ("base/complete", "M/model.json"):
        (stopped.out / name).parent.mkdir()
        (stopped.out / name).touch()
    given = {"model": stopped.out / "M", "running": True, "properties": stopped.properties}
    assert open_job(stopped.out, **given).is_live
    run_file.update_run(stopped.out, state=run_file.STARTING)
    with pytest.raises(UsageError, match="still starting; try again"):
        take(open_job(stopped.out, **given), "latest", stopped.out)
    run_file.update_run(stopped.out, state=run_file.STOPPED)
    workers = ["process 7"] * 3
    monkeypatch.setattr(opened_job, "at_work", lambda *_: workers.pop() if workers else None)
    assert not open_job(stopped.out, **given).is_live, "it is waited for"


def test_what_exports_left_that_were_killed_goes_with_the_next_one(stopped: Stopped, asked: list[str]) -> None:
    left = stopped.out / "checkpoints" / "exports" / "0123" / "savepoint-9"
    left.mkdir(parents=True)
    with own_savepoint(stopped.run) as first:
        assert not left.exists()
        with own_savepoint(stopped.run) as second:
            assert Path(first).exists()
        assert not Path(second).exists()
        assert Path(first).exists()
    assert not left.parent.parent.exists()


def test_a_savepoint_in_another_store_is_disposed_of_by_flink(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str, Any]] = []

    def call(_rest: FlinkRest, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        calls.append((method, path, body))
        if method == "POST":
            return {"request-id": "t"}
        done = {} if "disposal" in path else {"location": "s3://b/exports/1/savepoint-1"}
        return {"status": {"id": "COMPLETED"}, "operation": done}

    monkeypatch.setattr(FlinkRest, "_call", call)
    with own_savepoint({"checkpoints": "s3://b", "rest": "h:1", "job_id": "f"}) as savepoint:
        assert savepoint == "s3://b/exports/1/savepoint-1"
    assert [(method, path) for method, path, _ in calls] == [
        ("POST", "/jobs/f/savepoints"),
        ("GET", "/jobs/f/savepoints/t"),
        ("POST", "/savepoint-disposal"),
        ("GET", "/savepoint-disposal/t"),
    ]
    assert calls[0][2]["target-directory"].startswith("s3://b/exports/")
    assert calls[2][2] == {"savepoint-path": savepoint}


def test_a_job_that_comes_to_its_end_as_it_is_opened_is_one_that_has_finished(
    stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoints go then, and its graph comes from its events."""
    jobs = list[Stopped]()
    taken_from(monkeypatch, jobs=jobs)
    run_file.update_run(stopped.out, state=run_file.FINISHED)
    assert not stopped.has_finished
    take(replace(stopped, is_live=False), None, stopped.out)
    assert [job.has_finished for job in jobs] == [True]


def test_exports_at_once_may_remove_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one that ends removes it while another one begins."""
    exports, is_dir = tmp_path / "checkpoints" / layout.EXPORTS, Path.is_dir
    exports.mkdir(parents=True)

    def looked(path: Path) -> bool:
        found = is_dir(path)
        if path == exports and found:
            path.rmdir()
        return found

    monkeypatch.setattr(Path, "is_dir", looked)
    monkeypatch.setattr(FlinkRest, "savepoint", lambda _rest, target, _timeout_s: target)
    run = {"checkpoints": f"file://{tmp_path}/checkpoints", "rest": "h:1", "job_id": "f"}
    with own_savepoint(run) as savepoint:
        assert f"/{layout.EXPORTS}/" in savepoint
