"""A cluster that does not answer is told by its address, before anything is made."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from freshet.job.errors import JobFailed, UsageError
from freshet.job.flink import rest as cluster
from freshet.job.flink.rest import FlinkRest
from freshet.job.machine.ports import free_port, why_silent
from freshet.job.options.run_config import RunConfig
from freshet.job.run.runner import run


def test_a_job_for_a_cluster_that_is_not_there_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "why_silent", partial(why_silent, timeout_s=0.1))
    address, out = f"127.0.0.1:{free_port()}", tmp_path / "O"
    config = RunConfig(model=tmp_path / "M", events=["e.jsonl"], out=out, cluster=address)
    with pytest.raises(JobFailed, match=rf"^--cluster {address}: no Flink cluster answers there \(Connection refused"):
        run(config)
    assert not out.exists()


def test_only_a_failure_to_reach_it_is_told_so() -> None:
    assert cluster.with_address("h:1", "ConnectException: Connection refused") == (
        "--cluster h:1: no Flink cluster answers there (ConnectException: Connection refused)"
    )
    assert cluster.with_address("h:1", "JobSubmissionException: no slots") == "JobSubmissionException: no slots"


def test_a_connector_of_the_cluster_that_knows_no_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"classpath": ["/lib/flink-dist-2.2.1.jar", "/lib/flink-sql-connector-kafka-5.0.0-2.2.jar"]}
    monkeypatch.setattr(FlinkRest, "_call", lambda _rest, _method, path: found if "environment" in path else None)
    monkeypatch.setattr(cluster, "why_silent", lambda _address: None)
    with pytest.raises(UsageError, match=r"^--cluster h:1: has /lib/flink-sql-connector-kafka-5.0.0-2.2.jar, in which"):
        cluster.await_answer("h:1", by_tokens=True)
    found["classpath"].pop()
    cluster.await_answer("h:1", by_tokens=True)
