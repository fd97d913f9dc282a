"""`freshet stop` of a job on a cluster goes by Flink, whatever `run.json` says and wherever the client was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshet.files.json_file import write_json
from freshet.job.errors import JobFailed
from freshet.job.flink.rest import FlinkRest, FlinkRestError, UnknownJobError
from freshet.job.folder import run_file
from freshet.job.run.stop import NothingToStopError, stop_job

GONE = 1 << 22  # no process has this number


@pytest.fixture
def flink(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What Flink says of the job: an error is raised."""
    told: dict[str, Any] = {"state": "RUNNING"}

    def state(_rest: FlinkRest) -> str:
        if isinstance(told["state"], Exception):
            raise told["state"]
        return str(told["state"])

    def stop(_rest: FlinkRest, target: str, _timeout_s: float) -> str:
        told["state"] = "FINISHED"
        return f"{target}/savepoint-1"

    monkeypatch.setattr(FlinkRest, "state", state)
    monkeypatch.setattr(FlinkRest, "stop", stop)
    monkeypatch.setattr(FlinkRest, "causes", lambda _rest: [(1, "the disk is full")])
    return told


def tell(out: Path, recorded: str, host: str) -> None:
    write_json(out / run_file.RUN, {"state": recorded, "host": host, "pids": {"client": GONE}, "started_ms": 1})
    place = {"cluster": "c:1", "rest": "c:1", "job_id": "f" * 32, "checkpoints": (out / "checkpoints").as_uri()}
    run_file.update_run(out, **place)


@pytest.mark.parametrize("recorded", [run_file.STARTING, run_file.RUNNING, run_file.FAILED])
@pytest.mark.parametrize("word", ["RUNNING", "RESTARTING"])
def test_a_job_without_a_client_is_stopped(tmp_path: Path, flink: dict[str, Any], recorded: str, word: str) -> None:
    tell(tmp_path, recorded, "elsewhere")
    flink["state"] = word
    savepoint = stop_job(tmp_path)
    run = run_file.read_run(tmp_path)
    assert savepoint is not None
    assert savepoint.endswith("/checkpoints/savepoints/savepoint-1")
    assert (run["state"], run["savepoint"]) == (run_file.STOPPED, savepoint)


@pytest.mark.parametrize(
    ("word", "becomes"), [("FINISHED", run_file.STOPPED), ("CANCELED", run_file.STOPPED), ("FAILED", run_file.FAILED)]
)
def test_an_end_that_nobody_has_seen_is_recorded(
    tmp_path: Path, flink: dict[str, Any], word: str, becomes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(tmp_path, run_file.RUNNING, "elsewhere")
    monkeypatch.setattr(FlinkRest, "last_savepoint", lambda _rest: "/elsewhere/savepoint-7")
    flink["state"] = word
    with pytest.raises(NothingToStopError, match=f"no running job .run.json says {becomes}."):
        stop_job(tmp_path)
    run = run_file.read_run(tmp_path)
    assert run["state"] == becomes
    assert run.get("error") == ("the disk is full" if word == "FAILED" else None)
    assert run.get("savepoint") == ("/elsewhere/savepoint-7" if word == "FINISHED" else None)


def test_nobody_guesses_while_the_cluster_is_silent(tmp_path: Path, flink: dict[str, Any]) -> None:
    tell(tmp_path, run_file.RUNNING, "elsewhere")
    flink["state"] = FlinkRestError("ConnectError")
    with pytest.raises(JobFailed, match=r"the cluster c:1 does not answer; the job may run there; try again"):
        stop_job(tmp_path)
    flink["state"] = UnknownJobError("500")
    with pytest.raises(NothingToStopError, match="the cluster c:1 does not know the job; go on with --resume latest"):
        stop_job(tmp_path)
    assert run_file.read_run(tmp_path)["state"] == run_file.RUNNING, "it is lost, which is no end"
