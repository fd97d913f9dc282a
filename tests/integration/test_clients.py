"""The client of a job on a cluster may die, and be started again anywhere: the job is Flink's, and there is one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.folder.run_file import read_run, update_run
from freshet.job.lifecycle.job_state import ENDED, RUNNING, STOPPED, state_of
from tests.support.runs.jobs import ROOT, Input, Job, assert_as_uninterrupted, make_input

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SHAPE = ("--parts", 4, "--parallelism", 2, "--epoch-events", 80, "--epoch-ms", 0, "--hybrid-threshold", 20)

Make = Callable[[Input], Job]


def test_a_client_is_killed_and_the_job_goes_on(job: Make, tmp_path: Path) -> None:
    one, hurry = job(make_input(tmp_path / "in", 20_000)), tmp_path / "hurry"
    faults = {"slow": {"parser": 300}, "chunk": 50, "hurry": str(hurry)}
    environ = {"PYTHONPATH": str(ROOT), "FRESHET_FAULTS": json.dumps(faults)}
    with LocalCluster(tmp_path / "cluster", 2, environ) as cluster:

        def jobs() -> list[str]:
            return [one["status"] for one in cluster.get("/jobs")["jobs"]]

        def found() -> tuple[str, str | None]:
            state = state_of(one.out, 10.0)
            return state.state, state.flink

        one.start("--cluster", cluster.rest, *SHAPE, faults=faults)
        one.until_epoch(5)
        one.kill()
        assert (found(), jobs()) == ((RUNNING, "RUNNING"), ["RUNNING"])
        refused = one.exported(tmp_path / "S")
        assert (refused.code, "the cluster" in refused.last_line) == (2, True), refused.errors

        # Without --cluster, and with all slots taken by the job itself.
        process = one.start("--resume", "latest")
        one.until(lambda: "attaches to it" in one.log() and read_run(one.out)["pids"]["client"] == process.pid)
        first = read_run(one.out)["job_id"]
        one.kill()
        update_run(one.out, host="elsewhere")
        refused = one.run("--resume", "latest", "--cluster", cluster.rest, "--parallelism", 1)
        assert (refused.code, "--parallelism 1: " in refused.last_line) == (2, True), refused.errors
        detached = one.run("--resume", "latest", "--cluster", cluster.rest, "--detach", faults=faults)
        assert (detached.code, detached.result["job_id"]) == (0, first), detached.errors
        stopped = one.stop()
        assert (stopped.code, found()) == (0, (STOPPED, "FINISHED")), stopped.errors
        assert one.stop().code == 2

        detached = one.run("--resume", "latest", "--cluster", cluster.rest, "--detach", faults=faults)
        assert detached.code == 0, detached.errors
        assert detached.result["job_id"] == read_run(one.out)["job_id"] != first
        assert sorted(jobs()) == ["FINISHED", "RUNNING"]
        process = one.start("--resume", "latest", "--cluster", cluster.rest, faults=faults)
        one.until(lambda: "attaches to it" in one.log() and read_run(one.out)["pids"]["client"] == process.pid)
        os.killpg(process.pid, signal.SIGTERM)
        assert (one.wait().code, found()) == (143, (STOPPED, "FINISHED")), "stopped by a signal as a job of its own"

        assert one.run("--resume", "latest", "--cluster", cluster.rest, "--detach", faults=faults).code == 0
        hurry.touch()
        one.until(lambda: found()[1] == "FINISHED", alive=False)
        assert (found()[0], read_run(one.out)["state"]) == (ENDED, "running"), "nobody has seen the end"
        ended = one.run("--resume", "latest", "--cluster", cluster.rest)
        assert (ended.code, ended.result["events"]) == (0, one.given.count), ended.errors
        assert read_run(one.out)["state"] == "finished"
        assert len(jobs()) == 3
    assert_as_uninterrupted(one, "--parts", 4, "--hybrid-threshold", 20)
