"""`freshet stop` of a job on a cluster goes by Flink, whatever `run.json` says and wherever the client was."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from freshet.files.json_file import write_json
from freshet.job.errors import JobFailed
from freshet.job.flink.rest import FlinkRest, FlinkRestError, UnknownJobError
from freshet.job.flink.runtime import ClusterRun
from freshet.job.folder import layout, lock, run_file
from freshet.job.lifecycle.ending import settled, spec_of_cluster_job
from freshet.job.run import stop as stopping
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


@pytest.mark.parametrize(("word", "becomes"), [("FINISHED", run_file.STOPPED), ("FAILED", run_file.FAILED)])
def test_so_it_is_where_the_cluster_goes_meanwhile(
    tmp_path: Path, flink: dict[str, Any], word: str, becomes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its one answer is that the job has ended; what else it would say is not known."""
    tell(tmp_path, run_file.RUNNING, "elsewhere")

    def gone(_rest: FlinkRest) -> Any:
        msg = "ConnectError"
        raise FlinkRestError(msg)

    def state(_rest: FlinkRest) -> str:
        monkeypatch.setattr(FlinkRest, "state", unknown if lock.is_held(tmp_path) else state)
        return word

    def unknown(_rest: FlinkRest) -> str:
        msg = "404"
        raise UnknownJobError(msg)

    monkeypatch.setattr(FlinkRest, "state", state)
    for name in ("causes", "last_savepoint"):
        monkeypatch.setattr(FlinkRest, name, gone)
    with pytest.raises(NothingToStopError, match=f"no running job .run.json says {becomes}."):
        stop_job(tmp_path)
    run = run_file.read_run(tmp_path)
    assert run["state"] == becomes
    assert run.get("error") == ("Flink calls it failed, and does not say why" if word == "FAILED" else None)


def test_an_end_is_not_recorded_once_the_job_goes_on(
    tmp_path: Path, flink: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody resumes it, and leaves it to the cluster, before the lock is taken."""
    tell(tmp_path, run_file.RUNNING, "elsewhere")
    flink["state"], take = "FINISHED", lock.taken

    def taken(out: Path, command: str) -> AbstractContextManager[None]:
        flink["state"] = "RUNNING"
        run_file.update_run(out, job_id="e" * 32)
        return take(out, command)

    monkeypatch.setattr(lock, "taken", taken)
    monkeypatch.setattr(ClusterRun, "attach", None)
    assert settled(tmp_path).runs_on_cluster
    assert run_file.read_run(tmp_path)["state"] == run_file.RUNNING


@pytest.mark.parametrize("signalled", [False, True])
def test_two_stops_at_once_are_one(
    tmp_path: Path, flink: dict[str, Any], signalled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flink would start the job again at each further request, and both would ask again, until it fails."""
    tell(tmp_path, run_file.RUNNING, "elsewhere")
    flink_stops, asked, others = FlinkRest.stop, list[str](), list[object]()

    def second() -> None:
        if not signalled:
            others.append(stop_job(tmp_path))
            return
        with lock.taken(tmp_path, "freshet run"):
            run = ClusterRun(spec_of_cluster_job(tmp_path))
            run.attach()
            others.append(run.stop(by_signal=2).savepoint)

    thread, owner, refused = threading.Thread(target=second, daemon=True), lock.owner_of, threading.Event()

    def owner_of(held: int) -> str:
        refused.set()
        return owner(held)

    def stop(rest: FlinkRest, target: str, timeout_s: float) -> str:
        asked.append(target)
        if len(asked) == 1:
            thread.start()
            assert refused.wait(60)
        return flink_stops(rest, target, timeout_s)

    monkeypatch.setattr(lock, "owner_of", owner_of)
    monkeypatch.setattr(FlinkRest, "stop", stop)
    monkeypatch.setattr(FlinkRest, "last_savepoint", lambda _rest: None)
    found = stop_job(tmp_path)
    thread.join(60)
    assert (len(asked), others) == (1, [found])
    assert run_file.read_run(tmp_path)["savepoint"] == found
    assert not (tmp_path / layout.STOPPING).exists()


def test_a_stop_asks_once_another_one_has_failed(
    tmp_path: Path, flink: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(tmp_path, run_file.RUNNING, "elsewhere")
    with lock.locked(tmp_path / layout.STOPPING, "freshet stop", str):
        with pytest.raises(JobFailed, match=r"process \d+ .* is stopping its job, and not done after 0 s"):
            stop_job(tmp_path, timeout_s=0.1)
        assert flink["state"] == "RUNNING"
        monkeypatch.setattr(stopping, "_POLL_S", 0.01)
        found: list[str | None] = []
        waiting = threading.Thread(target=lambda: found.append(stop_job(tmp_path)), daemon=True)
        waiting.start()
        time.sleep(0.3)
        assert (flink["state"], found) == ("RUNNING", [])
    waiting.join(60)
    assert found == [run_file.read_run(tmp_path)["savepoint"]]


def test_nobody_guesses_while_the_cluster_is_silent(tmp_path: Path, flink: dict[str, Any]) -> None:
    tell(tmp_path, run_file.RUNNING, "elsewhere")
    flink["state"] = FlinkRestError("ConnectError")
    with pytest.raises(JobFailed, match=r"the cluster c:1 does not answer; the job may run there; try again"):
        stop_job(tmp_path)
    flink["state"] = UnknownJobError("500")
    with pytest.raises(NothingToStopError, match="the cluster c:1 does not know the job; go on with --resume latest"):
        stop_job(tmp_path)
    assert run_file.read_run(tmp_path)["state"] == run_file.RUNNING, "it is lost, which is no end"


@pytest.mark.parametrize("is_started", [False, True])
def test_a_job_that_somebody_resumes_at_once_is_not_called_stopped(
    tmp_path: Path, flink: dict[str, Any], is_started: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for the end of a run and starts it again is quicker than `freshet stop`."""
    tell(tmp_path, run_file.RUNNING, "elsewhere")
    goes_on = {"state": run_file.RUNNING, "job_id": "e" * 32} if is_started else {"state": run_file.STARTING}
    with ExitStack() as next_one:

        def resumed(out: Path, *_: float) -> bool:
            if not is_started:
                next_one.enter_context(lock.taken(out, "freshet run"))
            run_file.update_run(out, **goes_on)
            return True

        monkeypatch.setattr(stopping, "await_last", resumed)
        assert stop_job(tmp_path) is not None
    assert run_file.read_run(tmp_path).items() >= goes_on.items()


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        ({"state": run_file.FAILED, "error": "the disk is full"}, "the disk is full"),
        ({"state": run_file.STOPPED, "savepoint": "/there/savepoint-2"}, None),
        ({"state": run_file.STOPPED, "savepoint": None}, "404"),
    ],
)
def test_a_job_that_ends_otherwise_just_then(
    tmp_path: Path, flink: dict[str, Any], ended: dict[str, Any], says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails, or Ctrl-C stops it; Flink's answer says no more than that there is no such job."""
    tell(tmp_path, run_file.RUNNING, "elsewhere")

    def stop(*_: object) -> str:
        flink["state"] = UnknownJobError("404")
        run_file.update_run(tmp_path, **ended)
        msg = "404: no such job"
        raise FlinkRestError(msg)

    monkeypatch.setattr(FlinkRest, "stop", stop)
    if says is None:
        assert stop_job(tmp_path) == ended["savepoint"]
    else:
        with pytest.raises(JobFailed, match=says):
            stop_job(tmp_path)
    assert run_file.read_run(tmp_path).items() >= ended.items()
