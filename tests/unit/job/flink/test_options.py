from pathlib import Path

import pytest

from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.options import flink_options

# What the names of Flink's options begin with; it passes over one that it does not know.
FIRST_WORDS = {
    *("cluster", "execution", "heartbeat", "io", "jobmanager", "metrics", "parallelism", "pekko", "pipeline", "python"),
    *("resourcemanager", "rest", "restart-strategy", "state", "taskmanager", "web"),
}


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_flink_keeps_state_where_the_job_says(backend: str, tmp_path: Path) -> None:
    spec = JobSpec.model_validate({"out": str(tmp_path), "layers": 1, "state_backend": backend})
    options = flink_options(spec)
    assert options["state.backend.type"] == backend
    assert options["state.backend.rocksdb.timer-service.factory"] == "HEAP"


@pytest.mark.parametrize("where", [{}, {"parallelism": 2, "parts": 2}, {"cluster": "example:8081"}])
def test_all_options_are_flinks(where: dict[str, object], tmp_path: Path) -> None:
    options = flink_options(JobSpec.model_validate({"out": str(tmp_path), "layers": 1, **where}))
    assert {name.partition(".")[0] for name in options} <= FIRST_WORDS
