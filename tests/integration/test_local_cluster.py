"""A Flink cluster of several processes: each can be killed and replaced, and nothing is left of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.machine.ports import is_free
from tests.support.runs.elsewhere import other_flink
from tests.support.runs.scripts import run_script

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_processes_of_a_cluster_are_killed_and_replaced(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", 2) as cluster:
        first, second = cluster.task_managers
        cluster.kill(first)
        assert (cluster.task_managers, first.is_alive()) == ([second], False)
        cluster.start_task_manager()
        cluster.await_ready()
        os.kill(second.pid, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(second.pid)], timeout=600)
        assert (cluster.replace_dead(), cluster.replace_dead()) == ([second], [])
        cluster.await_ready()
        assert cluster.get("/overview")["slots-total"] == cluster.slots == 2
        rest, old = cluster.rest, cluster.job_manager
        assert old is not None
        cluster.kill(old)
        cluster.start_job_manager()  # the TaskManagers find it
        assert cluster.rest == rest
        assert cluster.get("/overview")["slots-total"] == 2
        left = cluster.task_managers
    assert not any(process.is_alive() for process in left)


def test_the_script_starts_and_stops_a_cluster(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    other = other_flink(tmp_path / "other")
    try:
        started = run_script("cluster", "start", "--taskmanagers", 1, state=state, **other)
        assert started.returncode == 0, started.stderr
        host, port = started.stdout.splitlines()[-1].split(":")
    finally:
        run_script("cluster", "stop", state=state)
    assert host == "127.0.0.1"
    assert is_free(int(port))
    assert not any(path.is_file() for path in state.rglob("*")), "nothing is left"
