"""The state of a job, whatever has died: the process, the cluster, or nothing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from freshet.files.json_file import DamagedFileError
from freshet.job.errors import UsageError
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.rest import FlinkRest, FlinkRestError
from freshet.job.folder import layout, lock, run_file
from freshet.job.folder.leftovers import what_is_in
from freshet.job.lifecycle.job_state import ENDED, FAILED, LOST, RUNNING, STOPPED, state_of
from freshet.job.machine.processes import began_s
from freshet.operators.telemetry.profile import Profile
from tests.support.serving.hand_job import HandJob

HOST = socket.gethostname()
ALIVE = os.getppid()
RECORDED = {run_file.FINISHED: ENDED, run_file.STOPPED: STOPPED, run_file.FAILED: FAILED}


def tell(out: Path, state: str | None, pid: int = ALIVE, began: float | None = None, **fields: Any) -> None:
    began = began_s(pid) if began is None else began
    run_file.update_run(out, state=state, host=HOST, pids={"client": pid}, client_began_s=began, **fields)


@pytest.mark.parametrize("recorded", [run_file.STARTING, run_file.RUNNING])
def test_a_job_whose_process_lives_is_running(tmp_path: Path, recorded: str) -> None:
    tell(tmp_path, recorded)
    found = state_of(tmp_path)
    assert (found.state, found.process, found.is_over) == (RUNNING, ALIVE, False)
    assert ("starting" in found.detail) == (recorded == run_file.STARTING)


@pytest.mark.parametrize("recorded", [run_file.STARTING, run_file.RUNNING])
def test_a_killed_job_is_lost_also_when_its_number_is_another_process_now(tmp_path: Path, recorded: str) -> None:
    tell(tmp_path, recorded, began=began_s(ALIVE) - 100.0)
    found = state_of(tmp_path)
    assert (found.state, found.process, found.is_over) == (LOST, None, True)
    assert "--resume latest" in found.detail
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    tell(tmp_path, recorded, child.pid)
    assert state_of(tmp_path).state == RUNNING
    child.kill()
    child.wait()
    assert state_of(tmp_path).state == LOST


@pytest.mark.parametrize(("recorded", "state"), RECORDED.items())
def test_a_recorded_end_holds_until_a_process_goes_on(tmp_path: Path, recorded: str, state: str) -> None:
    tell(tmp_path, recorded, began=1.0, ended_ms=2000, error="the disk is full", savepoint="/s/savepoint-1")
    found = state_of(tmp_path)
    assert (found.state, found.is_over) == (state, True)
    assert {FAILED: "the disk is full", STOPPED: "/s/savepoint-1"}.get(state, "") in found.detail
    tell(tmp_path, recorded, ended_ms=int(began_s(ALIVE) * 1e3) + 5000)
    assert state_of(tmp_path).state == state, "the process has recorded its end, and is about to go"
    tell(tmp_path, recorded, ended_ms=int(began_s(ALIVE) * 1e3) - 5000)
    assert state_of(tmp_path).state == RUNNING, "it has just begun to go on"


def test_whoever_holds_the_lock_works_on_it(tmp_path: Path) -> None:
    """A process that has not written down anything yet, or that this machine can't see: that of a container, say."""
    with lock.taken(tmp_path, "freshet run"):
        assert state_of(tmp_path).state == RUNNING, "before anything is prepared"
    tell(tmp_path, run_file.RUNNING, began=1.0)
    run_file.update_run(tmp_path, host="elsewhere")
    assert state_of(tmp_path).state == LOST
    with lock.taken(tmp_path, "freshet run"):
        assert (state_of(tmp_path).state, "elsewhere" in state_of(tmp_path).detail) == (RUNNING, True)
        tell(tmp_path, run_file.STOPPED, began=1.0, ended_ms=2000)
        assert (state_of(tmp_path).state, "starting" in state_of(tmp_path).detail) == (RUNNING, True)
    assert state_of(tmp_path).state == STOPPED


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_process_that_comes_and_goes_while_we_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_killed: bool
) -> None:
    """It begins after `run.json` is read, and has ended when the lock is looked at."""
    if was_killed:
        tell(tmp_path, run_file.RUNNING, began=1.0)
    look = lock.is_held

    def ends(out: Path) -> bool:
        monkeypatch.setattr(lock, "is_held", look)
        tell(out, run_file.FINISHED, began=2.0, ended_ms=3000)
        return look(out)

    monkeypatch.setattr(lock, "is_held", ends)
    assert state_of(tmp_path).state == ENDED


def test_a_look_at_the_lock_refuses_nobody(tmp_path: Path) -> None:
    looks = (
        "import sys, pathlib; from freshet.job.folder.lock import is_held\nwhile 1: is_held(pathlib.Path(sys.argv[1]))"
    )
    (tmp_path / layout.LOCK).touch()
    child = subprocess.Popen([sys.executable, "-c", looks, str(tmp_path)])
    try:
        for _ in range(200):
            with lock.taken(tmp_path, "freshet run"):
                pass
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def flink(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets what Flink says of the job; an error where it begins with `!`."""
    said = ["!Connection refused"]

    def state(_rest: FlinkRest) -> str:
        if said[0].startswith("!"):
            raise FlinkRestError(said[0][1:])
        return said[0]

    monkeypatch.setattr(FlinkRest, "state", state)
    return lambda word: said.__setitem__(0, word)


CLUSTER = {"cluster": "c:8081", "rest": "c:8081", "job_id": "f00d"}


@pytest.mark.parametrize("recorded", [run_file.RUNNING, run_file.FAILED, run_file.STOPPED])
@pytest.mark.parametrize("word", ["RUNNING", "RESTARTING", "CREATED"])
def test_a_job_on_a_cluster_runs_while_flink_says_so(
    tmp_path: Path, flink: Callable[[str], None], recorded: str, word: str
) -> None:
    tell(tmp_path, recorded, began=1.0, ended_ms=2000, **CLUSTER)
    flink(word)
    found = state_of(tmp_path)
    assert (found.state, found.flink, found.process) == (RUNNING, word, None)
    assert "without a client" in found.detail


@pytest.mark.parametrize(
    ("word", "input_ended", "state"),
    [
        ("FINISHED", True, ENDED),
        ("FINISHED", False, STOPPED),
        ("CANCELED", True, STOPPED),
        ("FAILED", False, FAILED),
        ("!404: Job could not be found", True, LOST),
        ("!ConnectTimeout", True, LOST),
    ],
)
def test_the_end_of_a_job_on_a_cluster_that_its_client_did_not_see(
    tmp_path: Path, flink: Callable[[str], None], word: str, input_ended: bool, state: str
) -> None:
    tell(tmp_path, run_file.RUNNING, began=1.0, **CLUSTER)
    flink(word)
    JobSpec(out=str(tmp_path), layers=1, stay=True).save(tmp_path / layout.CHECKPOINTS / layout.SPEC)
    profile = Profile(tmp_path, "partitioner", 0)
    profile.acts, profile.input_ended = 5, input_ended
    profile.write()
    assert state_of(tmp_path).state == state
    tell(tmp_path, run_file.RUNNING, **CLUSTER)
    assert state_of(tmp_path).state == RUNNING, "the client is there to record the end"
    tell(tmp_path, run_file.STOPPED, began=1.0, ended_ms=2000, **CLUSTER)
    assert state_of(tmp_path).state == STOPPED, "somebody has recorded it"


@pytest.mark.parametrize("damage", ["", "{", None])
def test_a_cluster_is_asked_for_its_job_though_run_json_is_damaged(
    tmp_path: Path, flink: Callable[[str], None], damage: str | None
) -> None:
    """Else `--resume auto` would begin a second job beside the first."""
    hand = HandJob(tmp_path / "O")
    hand.close()
    tell(hand.out, run_file.RUNNING, began=1.0, runtime="flink", **CLUSTER)
    _damage(hand.out / layout.RUN, damage)
    flink("RUNNING")
    found = state_of(hand.out)
    assert (found.state, found.runs_on_cluster) == (RUNNING, True)
    shutil.rmtree(hand.out / "model")
    assert "place.json" not in str(what_is_in(hand.out)), "a file of the job's own"
    tell(hand.out, run_file.STOPPED, began=1.0, **CLUSTER)
    _damage(hand.out / layout.RUN, damage)
    flink("!Connection refused")
    assert not state_of(hand.out).is_guess, "a recorded end does not wait for a cluster that may be gone"


def _damage(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
    else:
        path.write_text(text)


def test_a_folder_that_is_no_jobs_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UsageError, match=r"no job in it .*; give the --out of a `freshet run`"):
            state_of(folder)
    (tmp_path / layout.RUN).write_text("{")
    with pytest.raises(DamagedFileError, match=r"run\.json: damaged"):
        state_of(tmp_path)
