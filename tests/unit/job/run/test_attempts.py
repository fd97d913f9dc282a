"""An attempt to go on with a job that comes to nothing leaves the job as it was: its state, savepoint and options."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest

from freshet.gnn.model import save_model
from freshet.job.flink import runtime
from freshet.job.flink.job_spec import JobSpec
from freshet.job.folder import run_file
from freshet.job.options.config_file import load_run_config
from freshet.job.run import early_ends, runner
from freshet.job.run.new_job import prepare
from freshet.job.run.resume import resume
from tests.support.graphs.models import IN_WIDTH, conv, make_model

SAVED = {"state": "stopped", "savepoint": "/s/savepoint-1", "ended_ms": 7}


class Left(BaseException):
    """In place of the end of the process."""


def leave(code: int) -> None:
    raise Left(code)


@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize("killed_while_it_waited", [True, False])
@pytest.mark.parametrize("before", [SAVED, {**SAVED, "state": "running"}, {**SAVED, "state": "failed", "error": "E"}])
def test_a_signal_while_a_used_job_waits_for_slots_leaves_it_as_it_was(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    detached: bool,
    killed_while_it_waited: bool,
    before: dict[str, Any],
) -> None:
    def wait(_address: str, _wanted: int, _tell: object, is_stopped: Any) -> bool:
        run_file.update_run(tmp_path, **run_file.this_process())
        assert run_file.read_run(tmp_path)["state"] == "starting"
        signal.raise_signal(signal.SIGTERM)
        assert is_stopped()
        return False

    monkeypatch.setattr(runtime, "await_slots", wait)
    monkeypatch.setattr("os._exit", leave)
    run_file.update_run(tmp_path, **before)
    if killed_while_it_waited:
        run_file.record_start(tmp_path)
    spec = JobSpec(out=str(tmp_path), layers=1, cluster="c:1")
    with early_ends.ended_by_signals(tmp_path):
        if detached:
            with pytest.raises(Left):
                runtime.submit_job(spec)
            assert "stopped before the job started again; go on with --resume latest" in capfd.readouterr().err
        else:
            assert runtime.run_job(spec).signal == signal.SIGTERM
    run = run_file.read_run(tmp_path)
    assert {name: run[name] for name in before} == before


def test_a_new_job_that_is_stopped_while_it_waits_is_stopped(tmp_path: Path) -> None:
    run_file.record_start(tmp_path)
    run_file.record_start(tmp_path)
    assert not run_file.record_no_start(tmp_path)
    assert run_file.read_run(tmp_path)["state"] == run_file.STOPPED


@pytest.mark.parametrize(
    ("before", "after"), [("running", "starting"), ("starting", "starting"), ("stopped", "stopped")]
)
def test_a_job_that_was_killed_while_it_ran_is_starting_again(tmp_path: Path, before: str, after: str) -> None:
    """`freshet stop` and `freshet status` must not take the process that goes on for one whose job runs."""
    run_file.update_run(tmp_path, state=before)
    run_file.record_resume(tmp_path, model="M")
    run = run_file.read_run(tmp_path)
    assert (run["state"], run["model"], run["pids"]["client"]) == (after, "M", os.getpid())
    if before == "running":
        assert run_file.record_no_start(tmp_path)
        assert run_file.read_run(tmp_path)["state"] == before


def flags(folder: Path, **options: Any) -> dict[str, Any]:
    return {"model": folder / "model", "events": [str(folder / "events.jsonl")], "out": folder / "out", **options}


def test_only_options_that_a_job_has_run_with_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(orjson.dumps({"op": "add_edge", "src": 1, "dst": 2}) + b"\n")
    out, epoch = tmp_path / "out", [4]
    monkeypatch.setattr("freshet.job.run.resume.complete_epoch", lambda _out: epoch[0])
    prepare(load_run_config(flags(tmp_path, parts=8, parallelism=2, epoch_ms=0)), out)

    def attempt(tried: bool, state: str, **options: Any) -> tuple[int, int]:
        """Go on with the job, and have the attempt end so; return its parallelism and age of epochs."""
        config, job = resume(load_run_config(flags(tmp_path, resume="latest", **options)), out)
        run_file.update_run(out, attempt={"run": job.settings.run, "epoch": epoch[0]}, state=state, pids={})
        if tried:
            run_file.update_run(out, tried=job.settings.run)
        assert job.settings.sealing.epoch_ms == config.epoch_ms
        return config.parallelism, config.epoch_ms

    assert attempt(False, "stopped", parallelism=4, epoch_ms=9) == (4, 9)
    assert attempt(False, "starting") == (2, 0), "the attempt before never started"
    assert attempt(True, "failed", parallelism=3) == (3, 0)
    assert attempt(True, "failed") == (2, 0), "the attempt before failed before its first epoch"
    assert attempt(True, "failed", parallelism=5) == (5, 0)
    epoch[0] += 1
    assert attempt(True, "stopped") == (5, 0), "the attempt before failed later"
    assert attempt(True, "stopped", parallelism=6) == (6, 0)
    assert attempt(True, "stopped") == (6, 0), "it was stopped, with or without events"
    assert attempt(False, "failed", parallelism=7) == (7, 0)
    (out / "run.json").unlink()
    assert attempt(True, "stopped") == (7, 0), "nobody knows"


@pytest.mark.parametrize("runtime", ["flink", "local"])
def test_a_run_counts_as_tried_once_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str) -> None:
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(orjson.dumps({"op": "add_edge", "src": 1, "dst": 2}) + b"\n")
    if runtime == "flink":
        monkeypatch.setattr(runner, "run_on_flink", lambda *_: 0)
    runner.run(load_run_config(flags(tmp_path, runtime=runtime)))
    run = run_file.read_run(tmp_path / "out")
    assert run["attempt"] == {"run": 0, "epoch": 0}
    assert run.get("tried") == (0 if runtime == "local" else None)


def test_each_attempt_has_a_number_of_its_own(tmp_path: Path) -> None:
    """By which operators fence off an attempt before it that is thought dead and still writes."""
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(orjson.dumps({"op": "add_edge", "src": 1, "dst": 2}) + b"\n")
    numbers = [prepare(load_run_config(flags(tmp_path)), tmp_path / "out").settings.run]
    for _ in range(2):
        run_file.update_run(tmp_path / "out", state="stopped", pids={})
        numbers.append(resume(load_run_config(flags(tmp_path, resume="latest")), tmp_path / "out")[1].settings.run)
    assert numbers == [0, 1, 2]
    assert orjson.loads((tmp_path / "out" / "job" / "job.json").read_bytes())["settings"]["run"] == 2
