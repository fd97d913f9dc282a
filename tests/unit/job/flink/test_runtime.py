"""How a job is stopped that has just ended by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshet.job.errors import JobFailed
from freshet.job.flink import job_run
from freshet.job.flink.job_run import RunResult
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.runtime import FlinkRun
from freshet.job.folder.run_file import FINISHED, STOPPED, read_run
from freshet.operators.dataflow import PARTITIONER
from freshet.operators.telemetry.profile import Profile

ANSWERS = ["Could not find Flink job (1)", "Job 1 is not a streaming job.", "what no version has said yet"]


def run_of(out: Path, monkeypatch: pytest.MonkeyPatch, answer: str, ends_after: int) -> FlinkRun:
    run, polls = FlinkRun(JobSpec(out=str(out), parts=1, parallelism=1, layers=1)), iter(range(1, 1_000))

    def refuse(_: str) -> str:
        raise RuntimeError(answer)

    fakes: dict[str, Any] = {
        "stop_with_savepoint": refuse,
        "_is_done": lambda: next(polls) > ends_after,
        "_ended": lambda: RunResult(FINISHED, "1"),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(run, name, fake)
    return run


@pytest.mark.parametrize("answer", ANSWERS)
def test_one_whose_end_is_not_yet_known_has_finished(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_run, "END_S", 60.0)
    assert run_of(tmp_path, monkeypatch, answer, ends_after=3).stop().state == FINISHED


def test_a_savepoint_is_asked_for_again_where_a_process_has_just_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, monkeypatch, "", ends_after=1_000)
    said = [RuntimeError("Could not send message [RemoteRpcInvocation(TaskExecutorGateway.triggerCheckpoint(Execut")]

    def once(_: str) -> str:
        if said:
            raise said.pop()
        return (tmp_path / "S").as_uri()

    replaced: list[bool] = []
    monkeypatch.setattr(run, "stop_with_savepoint", once)
    monkeypatch.setattr(run, "_replace_dead", lambda: replaced.append(True))
    assert run.stop() == RunResult(STOPPED, "", str(tmp_path / "S"))
    assert replaced, "or the job waits for it, and no savepoint is ever written"


@pytest.mark.parametrize(("reads_again", "state"), [(False, FINISHED), (True, STOPPED)])
def test_one_at_the_end_of_its_topics_is_stopped_with_a_state_to_go_on_from(
    reads_again: bool, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, monkeypatch, "", ends_after=1_000)
    run.spec = run.spec.model_copy(update={"ends_with_state": True})
    profile = Profile(tmp_path, PARTITIONER, 0)

    def stop(_: str) -> str:
        profile.input_ended = not reads_again  # it fails at that moment, and goes on from an older checkpoint
        profile.end()
        return (tmp_path / "S").as_uri()

    looks: list[bool] = []

    def progress() -> None:
        profile.input_ended = bool(looks)
        profile.write()
        looks.append(True)

    monkeypatch.setattr(run, "stop_with_savepoint", stop)
    assert run.wait(progress) == RunResult(state, "", str(tmp_path / "S"))
    assert len(looks) == 2, "not before the Partitioner has seen the end"
    recorded = read_run(tmp_path)
    assert (recorded["state"], recorded["savepoint"]) == (state, str(tmp_path / "S"))


def test_one_that_goes_on_fails_by_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_run, "END_S", 0.2)
    with pytest.raises(JobFailed, match="No space left on device"):
        run_of(tmp_path, monkeypatch, "No space left on device", ends_after=1_000).stop()
