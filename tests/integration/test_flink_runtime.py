"""The Flink part around counting stages (`tests/support/flink/counting_stages.py`), each job in its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from freshet.job.flink.checkpoints import complete_states, find_latest
from freshet.job.flink.job_spec import JobSpec
from freshet.job.folder.run_file import RUNNING, read_run
from freshet.job.run.stop import stop_job
from tests.support.flink.counting_stages import expected_total

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
STAGE = {"layers": 2, "chunk_events": 100, "epoch_events": 130}


class Job:
    """A spec, its process, and what the Sink wrote."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, chunks: int = 60, parts: int = 4, **fields: Any) -> subprocess.Popen[str]:
        stage = {**STAGE, "parts": parts, "results": str(self.out), **fields.pop("stage", {})}
        spec = JobSpec(
            out=str(self.out), layers=2, parts=parts, chunks=chunks, stage=stage,
            factory="tests.support.flink.counting_stages:make", **{"epoch_ms": 0, "heap_mb": 1024, **fields},
        )  # fmt: skip
        self.out.mkdir(exist_ok=True)
        path = self.out / "spec.json"
        spec.save(path)
        process = subprocess.Popen(
            [sys.executable, "-m", "freshet.job.main", "--spec", str(path)],
            cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def run(self, **fields: Any) -> tuple[int, str]:
        process = self.start(**fields)
        _, errors = process.communicate(timeout=600)
        return process.returncode, errors

    def stop(self) -> str | None:
        """Stop it with a savepoint once its process says that it runs, and wait for that process."""
        wait_for(lambda: read_run(self.out).get("state") == RUNNING)
        savepoint = stop_job(self.out)
        assert self.processes[-1].wait(300) == 0
        return savepoint

    def epochs(self) -> dict[int, dict[int, int]]:
        """Return {epoch: {part: value}}; what was written twice must have been the same."""
        epochs: dict[int, dict[int, int]] = {}
        for file in self.out.glob("sink-*.txt"):
            part = int(file.stem.removeprefix("sink-"))
            for line in file.read_text().rpartition("\n")[0].splitlines():  # the last one may be half written
                epoch, value = (int(word) for word in line.split()[:2])
                assert epochs.setdefault(epoch, {}).setdefault(part, value) == value, (epoch, part)
        return epochs

    def reached(self, epoch: int) -> bool:
        return max(self.epochs(), default=0) >= epoch

    def has_checkpoint(self) -> bool:
        return bool(complete_states(self.out / "checkpoints"))

    def assert_complete(self, chunks: int = 60, parts: int = 4, epochs: int | None = None) -> None:
        found = self.epochs()
        count = -(-chunks * 100 // 130) if epochs is None else epochs
        assert sorted(found) == list(range(1, count + 1))
        assert all(len(values) == parts for values in found.values())
        total = sum(sum(values.values()) for values in found.values())
        assert total == expected_total(STAGE, chunks)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path / "out")
    yield job
    for process in job.processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(condition: Callable[[], bool], timeout_s: float = 300.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_no_input_at_all(job: Job) -> None:
    code, errors = job.run(chunks=0, parts=1)
    assert code == 0, errors
    assert job.epochs() == {}


def test_a_failure_before_the_first_checkpoint_and_on_to_the_end(job: Job) -> None:
    stage = {"faults": [{"operator": "tail2", "part": 2, "epoch": 3}]}
    code, errors = job.run(checkpoint_interval_ms=60_000, restart_delay_ms=50, stage=stage)
    assert code == 0, errors
    job.assert_complete()
    run = read_run(job.out)
    assert run["state"] == "finished"
    assert run["job_id"] and run["pids"]["java"] and run["flink_ui"].startswith("http://127.0.0.1:")
    assert not psutil.pid_exists(run["pids"]["java"])


def test_a_failure_that_stays_is_told_by_its_root_cause(job: Job) -> None:
    stage = {"faults": [{"operator": "storage2", "epoch": 5, "times": 99, "message": "row 7 is not a number"}]}
    code, errors = job.run(parallelism=2, restarts=1, restart_delay_ms=50, stage=stage)
    assert code == 3
    assert errors.strip().splitlines()[-1] == "storage2: RuntimeError: row 7 is not a number"
    assert read_run(job.out)["state"] == "failed"
    assert "Traceback" in (job.out / "logs" / "python-errors.log").read_text()


def test_the_end_of_python_ends_java_and_the_newest_checkpoint_goes_on(job: Job) -> None:
    stage = {"act_ms": 10, "chunk_ms": 500, "slow_from": 100}  # it does not end before it is killed
    process = job.start(chunks=400, parallelism=2, checkpoint_interval_ms=200, stage=stage)
    wait_for(lambda: job.has_checkpoint() and job.reached(40))
    java = read_run(job.out)["pids"]["java"]
    process.kill()
    process.wait()
    wait_for(lambda: not psutil.pid_exists(java))
    state = find_latest(job.out / "checkpoints")
    code, errors = job.run(chunks=400, parallelism=1, resume=str(state))
    assert code == 0, errors
    job.assert_complete(chunks=400)


def test_the_end_of_java_is_noticed(job: Job) -> None:
    process = job.start(chunks=4000, stage={"act_ms": 20})
    wait_for(lambda: job.reached(5))
    os.kill(read_run(job.out)["pids"]["java"], signal.SIGKILL)
    assert process.wait(300) == 3
    assert process.stderr is not None
    said = process.stderr.read()
    assert "the Java process died" in said
    assert "Traceback" not in said


def test_time_seals_what_count_does_not(job: Job) -> None:
    """A job that stays: 5 chunks of 100 make three epochs of 130 and, by time, a fourth of 110."""
    # As below: no checkpoint, with which sources at their end finish, comes as it is stopped.
    job.start(chunks=5, stay=True, epoch_ms=50, checkpoint_interval_ms=300_000, stage={"chunk_ms": 1, "by_time": True})
    wait_for(lambda: sum(sum(values.values()) for values in job.epochs().values()) == expected_total(STAGE, 5))
    job.stop()


@pytest.mark.long
def test_the_end_of_input_seals_also_in_a_job_that_stays(job: Job) -> None:
    # Sources at their end finish with the next checkpoint; Flink restarts a job that is stopped as one of them does.
    stays = {"chunks": 5, "stay": True, "epoch_ms": 0, "checkpoint_interval_ms": 300_000}
    job.start(**stays)
    wait_for(lambda: job.reached(4))
    savepoint = job.stop()
    job.assert_complete(chunks=5)
    job.start(**stays, resume=savepoint)
    # Nothing will ever arrive, and the start source is done: the standing timer begins the attempt.
    wait_for(lambda: len((job.out / "begins.txt").read_text().split()) == 2)
    job.stop()
    assert (job.out / "begins.txt").read_text().split() == ["0", "4"]
    job.assert_complete(chunks=5)
    code, errors = job.run(chunks=5, epoch_ms=0, resume=savepoint)  # it need not stay for ever
    assert code == 0, errors
    assert read_run(job.out)["state"] == "finished"
    job.assert_complete(chunks=5)


def test_part_keys_agree_with_flink(tmp_path: Path) -> None:
    script = """
import json, sys
from pathlib import Path
from freshet.job.flink.gateway import start_gateway, stop_gateway
process = start_gateway(Path(sys.argv[1]), Path(sys.argv[1]), 256)
from pyflink.java_gateway import get_gateway
jvm = get_gateway().jvm
groups = {}
for key in [*range(-40, 400), 2**31 - 1, -2**31]:
    row = jvm.org.apache.flink.types.Row(1)
    row.setField(0, key)
    groups[key] = jvm.org.apache.flink.runtime.state.KeyGroupRangeAssignment.assignToKeyGroup(row, 128)
print(json.dumps(groups))
stop_gateway(process)
"""
    from freshet.job.flink.pipeline import key_group

    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    groups = {int(key): group for key, group in json.loads(done.stdout).items()}
    assert len(groups) == 442
    assert {key: key_group(key, 128) for key in groups} == groups
