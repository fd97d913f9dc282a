"""Stopping a job through Flink's REST interface, with Flink's own answers."""

from __future__ import annotations

from typing import Any

import pytest

from freshet.job.flink.rest import FlinkRest, FlinkRestError

PLACE = "file:/states/savepoint-1"


@pytest.fixture
def rest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FlinkRest:
    """A client whose savepoints fail with one stack trace after the other, until one is there."""
    traces = list(request.param)

    def call(self: FlinkRest, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        if method == "POST":
            assert path == "/jobs/job/stop"
            return {"request-id": "trigger"}
        operation = {"failure-cause": {"stack-trace": traces.pop(0)}} if traces else {"location": PLACE}
        return {"status": {"id": "COMPLETED"}, "operation": operation}

    monkeypatch.setattr(FlinkRest, "_call", call)
    return FlinkRest("localhost:1", "job")


def trace(message: str) -> str:
    """A stack trace as the interface gives it."""
    cause = f"org.apache.flink.runtime.checkpoint.CheckpointException: {message}"
    return f"java.util.concurrent.CompletionException: {cause}\n\tat a.b(C.java:1)\nCaused by: {cause}"


@pytest.mark.parametrize(
    "rest",
    [
        [],
        [trace("Not all required tasks are currently running.")] * 2,
        # Of the task that begins a job, when it ends in the moment of the stop.
        # Flink fails the job for it: the next answers are those of a job that starts again.
        [
            trace("Task local checkpoint failure."),
            trace("Checkpoint Coordinator is suspending."),
            trace("FailoverRegion is restarting."),
            trace("Not all required tasks are currently running."),
        ],
        [trace("Checkpoint was declined (task is closing)")],
        [trace("Mailbox is in state QUIESCED, but is required to be in state OPEN for put operations.")],
        [trace("Checkpoint needs at least one vertex that commits the checkpoint")],
    ],
    indirect=True,
)
def test_a_job_whose_tasks_start_or_end_is_asked_again(rest: FlinkRest) -> None:
    assert rest.stop("file:/states", timeout_s=30.0) == "/states/savepoint-1"


def test_the_checkpoints_that_are_retained(monkeypatch: pytest.MonkeyPatch) -> None:
    history = [
        {"id": 12, "status": "IN_PROGRESS", "is_savepoint": False, "trigger_timestamp": 1200},
        {"id": 11, "status": "COMPLETED", "is_savepoint": True, "trigger_timestamp": 1100},
        {"id": 10, "status": "COMPLETED", "is_savepoint": False, "trigger_timestamp": 1000},
        {"id": 9, "status": "FAILED", "is_savepoint": False, "trigger_timestamp": 900},
        {"id": 8, "status": "COMPLETED", "is_savepoint": False, "trigger_timestamp": 800},
        {"id": 7, "status": "COMPLETED", "is_savepoint": False, "trigger_timestamp": 700},
    ]
    monkeypatch.setattr(FlinkRest, "_call", lambda *_: {"history": history})
    assert FlinkRest("localhost:1", "job").retained_since_ms(2) == 800
    history[:] = history[:2]
    assert FlinkRest("localhost:1", "job").retained_since_ms(2) is None


@pytest.mark.parametrize("rest", [[trace("Checkpoint expired before completing.")]], indirect=True)
def test_another_failure_is_told(rest: FlinkRest) -> None:
    with pytest.raises(FlinkRestError, match="no savepoint: Checkpoint expired before completing"):
        rest.stop("file:/states", timeout_s=30.0)


@pytest.mark.parametrize("rest", [[trace("Task local checkpoint failure.")] * 1000], indirect=True)
def test_asking_again_ends(rest: FlinkRest) -> None:
    with pytest.raises(FlinkRestError, match="Task local checkpoint failure"):
        rest.stop("file:/states", timeout_s=0.3)
