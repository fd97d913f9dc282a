"""What of the Flink runtime can be tested without Java: the spec, options, errors, checkpoints, run.json."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from freshet.job.flink.checkpoints import NoCheckpointError, find_latest, find_state, new_savepoint, savepoints_in
from freshet.job.flink.errors import LOST_JOB, root_cause, root_cause_of_text, strip_prefixes
from freshet.job.flink.job_spec import JobSpec, after_former, savepoint_target
from freshet.job.flink.options import flink_options
from freshet.job.folder.run_file import read_run, update_run
from freshet.job.machine.ports import free_port
from freshet.job.run.stop import NothingToStopError, stop_job
from freshet.job.uris import location


def test_a_spec_survives_its_file(tmp_path: Path) -> None:
    spec = JobSpec(out=str(tmp_path), layers=2, parts=4, parallelism=2, stage={"model": "m", "n": 3})
    spec.save(tmp_path / "job.json")
    assert JobSpec.load(tmp_path / "job.json") == spec


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"parts": 1, "parallelism": 2}, "parts 1 < parallelism 2"),
        ({"parts": 1, "parallelism": 4, "pipeline": 2}, "parts 1 < parallelism 2"),
        ({"colour": 1}, "colour"),
        ({"layers": 65}, "layers"),
    ],
)
def test_wrong_specs_are_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        JobSpec(**{"out": "o", "layers": 2, **fields})


def test_a_pipeline_holds_where_it_fits() -> None:
    """Whoever changes the parallelism of a spec by hand gets a job that runs."""
    spec = JobSpec(out="o", layers=2, parts=4, parallelism=4, pipeline=4)
    assert (spec.groups, spec.by_layer) == (4, (1, 1))
    assert [JobSpec(out="o", layers=2, parts=4, parallelism=n, pipeline=4).groups for n in (1, 2, 3)] == [1, 1, 1]


def test_state_that_nobody_claims_is_passed_over_only_where_a_job_has_stayed(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    begins, goes_on = (JobSpec(out="o", layers=1, resume=state) for state in (None, "file:/x"))
    assert after_former(goes_on, path).has_stayed, "nobody knows"
    assert not after_former(begins, path).has_stayed, "it has no former attempt"
    for stay, stayed, passes in ((False, False, "false"), (True, False, "false"), (False, True, "true")):
        spec = JobSpec(out="o", layers=1, stay=stay, has_stayed=stayed, resume="file:/x")
        assert flink_options(spec)["execution.state-recovery.ignore-unclaimed-state"] == passes
        spec.save(path)
        assert after_former(goes_on, path).has_stayed == (stay or stayed)
    after_former(begins, path).save(path)
    assert not after_former(goes_on, path).has_stayed, "neither has stayed"


def test_options_of_an_embedded_and_a_cluster_job(tmp_path: Path) -> None:
    embedded = flink_options(JobSpec(out=str(tmp_path), layers=1, options={"parallelism.default": "7"}))
    assert embedded["python.execution-mode"] == "thread"
    assert embedded["execution.checkpointing.unaligned.enabled"] == "false"
    assert embedded["parallelism.default"] == "7", "the user's options win"
    assert "execution.target" not in embedded
    cluster = flink_options(JobSpec(out=str(tmp_path), layers=1, cluster="example:8081", resume="file:/x"))
    assert cluster["execution.target"] == "remote"
    assert (cluster["rest.address"], cluster["rest.port"]) == ("example", "8081")
    assert cluster["execution.state-recovery.path"] == "file:/x"
    assert not any(key.startswith("taskmanager.") for key in cluster)


def test_checkpoints_may_lie_in_another_store(tmp_path: Path) -> None:
    remote = JobSpec(out=str(tmp_path), layers=1, checkpoint_dir="s3://bucket/job/")
    assert remote.checkpoint_uri == "s3://bucket/job"
    assert remote.checkpoints == tmp_path / "checkpoints", "what Freshet itself keeps beside them"
    local = JobSpec(out=str(tmp_path), layers=1, checkpoint_dir=f"file://{tmp_path}/c")
    assert local.checkpoint_uri == f"file://{tmp_path}/c"
    assert local.checkpoints == tmp_path / "c"
    assert savepoint_target("s3://bucket/s") == "s3://bucket/s"
    assert savepoint_target(tmp_path / "s") == f"file://{tmp_path}/s"
    assert (tmp_path / "s").is_dir()
    assert location(f"file:{tmp_path}/s") == location(f"file://{tmp_path}/s") == f"{tmp_path}/s"


def test_a_taken_port_gives_way_to_the_next() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) > port


def test_a_free_port_is_none_that_an_outgoing_connection_could_take_before_flink_binds_it() -> None:
    outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port() < outgoing for _ in range(20))


class FakeJava(Exception):
    """Looks like py4j's wrapper of a Java exception."""

    def __init__(self, *chain: tuple[str, str | None]) -> None:
        self.java_exception = FakeThrowable(list(chain))


class FakeThrowable:
    def __init__(self, chain: list[tuple[str, str | None]]) -> None:
        self.chain = chain

    def getMessage(self) -> str | None:
        return self.chain[0][1]

    def getClass(self) -> FakeThrowable:
        return self

    def getSimpleName(self) -> str:
        return self.chain[0][0]

    def getCause(self) -> FakeThrowable | None:
        return FakeThrowable(self.chain[1:]) if len(self.chain) > 1 else None


def test_the_root_cause_is_the_innermost_that_says_something() -> None:
    worker = "<class 'freshet.operators.flink.worker.WorkerError'>: storage1: ValueError: row 7: NaN"
    error = FakeJava(("JobExecutionException", "Job failed."), ("PythonException", worker))
    assert root_cause(error) == "storage1: ValueError: row 7: NaN"
    error = FakeJava(("JobExecutionException", "Job failed."), ("IOException", "No space left"), ("Throwable", None))
    assert root_cause(error) == "IOException: No space left"


def test_a_job_that_went_with_its_job_manager_is_told_so() -> None:
    answer = "org.apache.flink.runtime.messages.FlinkJobNotFoundException: Could not find Flink job (0a1b)"
    error = FakeJava(("ExecutionException", None), ("RestClientException", f"[RestHandlerException: {answer}]"))
    assert root_cause(error) == LOST_JOB


def test_the_root_cause_of_a_stack_trace() -> None:
    trace = """org.apache.flink.runtime.JobException: Recovery is suppressed
\tat org.apache.flink.Some.method(Some.java:1)
Caused by: pemja.core.PythonException: <class 'freshet.operators.flink.worker.WorkerError'>: sink: OSError: disk full
\tat pemja.core.Native(Native.java)
"""
    assert root_cause_of_text(trace) == "sink: OSError: disk full"
    assert strip_prefixes("a plain text: it stays") == "a plain text: it stays"


def write(path: Path, when: int, name: str = "_metadata") -> Path:
    path.mkdir(parents=True)
    (path / name).write_bytes(b"x" * 10)
    os.utime(path / name, (when, when))
    return path


def test_the_newest_complete_checkpoint_is_found(tmp_path: Path) -> None:
    with pytest.raises(NoCheckpointError, match=str(tmp_path)):
        find_latest(tmp_path)
    write(tmp_path / "job1" / "chk-40", 100)
    newest = write(tmp_path / "job2" / "chk-3", 200)
    write(tmp_path / "job2" / "chk-4", 300, "_metadata.inprogress")
    savepoint = write(tmp_path / "savepoints" / "savepoint-ab-cd", 150)
    assert find_latest(tmp_path) == find_state(str(tmp_path)) == newest
    assert find_state(str(savepoint)) == savepoint
    assert find_state(f"file://{savepoint.parent}") == savepoint


def test_a_savepoint_that_was_not_there_before_is_found_whatever_the_clock_says(tmp_path: Path) -> None:
    target = f"file://{tmp_path}"
    write(tmp_path / "savepoint-old", 2**40)
    before = savepoints_in(target)
    assert new_savepoint(target, before) is None
    write(tmp_path / "savepoint-half", 300, "_metadata.inprogress")
    assert new_savepoint(target, before) is None
    new = write(tmp_path / "savepoint-new", 1)
    assert new_savepoint(target, before) == str(new)
    assert new_savepoint("s3://bucket/savepoints", savepoints_in("s3://bucket/savepoints")) is None


def test_run_json_keeps_what_others_wrote(tmp_path: Path) -> None:
    assert read_run(tmp_path) == {}
    update_run(tmp_path, state="running", port=1)
    update_run(tmp_path, state="finished")
    assert read_run(tmp_path) == {"state": "finished", "port": 1}
    with pytest.raises(NothingToStopError, match="finished"):
        stop_job(tmp_path)
