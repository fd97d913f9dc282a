"""A job on a cluster whose number of TaskManagers changes while a stream goes on: 1, 2, 4 and 1 again.

On two of them layer 2 has both, and layer 1 has one. Three times it is `freshet run` that goes on, the last time
`flink run` with the packaged program.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.flink.job_spec import JobSpec
from freshet.job.lifecycle.summary import progress
from freshet.job.status.report import report
from tests.support.runs.jobs import ROOT, Job, assert_as_uninterrupted, make_input

pytestmark = [pytest.mark.slow, pytest.mark.long]

FAULTS = {"slow": {"parser": 300}, "chunk": 50, "lull": 140}  # a stream that outlasts all stops
FACTORY = "freshet.operators.factory:make_stage"  # that of a user's job
EPOCHS = 15  # that each number of TaskManagers sees at least


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(make_input(tmp_path / "in", 12_000, snapshot=True), tmp_path / "out")
    yield made
    made.end()


def test_the_number_of_task_managers_changes_during_a_stream(job: Job, tmp_path: Path) -> None:
    shape = ("--parts", 4, "--hybrid-threshold", 20, "--epoch-events", 80, "--epoch-ms", 0)
    with LocalCluster(tmp_path / "cluster", 1, job.environ_of_cluster(FAULTS)) as cluster:
        for number, *shared in ((1,), (2, "--layer-parallelism", "1,2"), (4, "--parallelism", 4, "--pipeline", 2)):
            while len(cluster.task_managers) < number:
                cluster.start_task_manager()
            cluster.await_ready()
            before = progress(job.out)["epoch"]
            how = ("--resume", "latest") if before else shape
            job.start("--cluster", cluster.rest, *shared, *how, faults=FAULTS)
            job.until_epoch(before + EPOCHS)
            if number == 2:
                layers = report(job.out)["layers"]
                assert [(one["layer"], one["processes"]) for one in layers] == [(1, 1), (2, 2)]
                assert all(0 <= one["busy"] <= 1 for one in layers)
            stopped = job.stop()
            assert stopped.code == 0, stopped.errors
            assert job.wait().code == 0
        for process in cluster.task_managers:
            cluster.kill(process)
        cluster.environ["FRESHET_FAULTS"] = "{}"  # what is left goes at full speed
        cluster.start_task_manager()
        cluster.await_ready()
        spec = JobSpec.load(job.out / "checkpoints" / "job.json")
        changes = {"resume": stopped.result["savepoint"], "parallelism": 1, "cluster": None}
        spec.model_copy(update={**changes, "factory": FACTORY}).save(tmp_path / "job.json")
        program = ("-py", ROOT / "job" / "main.py", "-pyexec", sys.executable, "-pyclientexec", sys.executable)
        done = cluster.flink_run(*program, "--spec", tmp_path / "job.json")
        assert done.returncode == 0, done.stdout + done.stderr
    assert_as_uninterrupted(job, "--parts", 4, "--hybrid-threshold", 20)
