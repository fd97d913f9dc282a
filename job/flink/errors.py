"""Digs the reason out of Flink's chains of exceptions."""

from __future__ import annotations

import re
from typing import Any

_PREFIXES = re.compile(r"^(?:[\w$]+(?:\.[\w$]+)+(?:Exception|Error|Throwable)?: |<class '[\w.]+'>: )+")
# What only says that something else went wrong.
_EMPTY = {"", "None", "null"}


# Flink's answers to a savepoint while tasks start, end or start again (CheckpointFailureReason).
_TASKS_CHANGE = (
    "Not all required tasks are currently running",
    "Checkpoint was declined (tasks not ready)",
    # A task has just ended, as the one that begins a job does after its only block, and the JobManager still takes it
    # for a running one. Flink then fails the job (CheckpointFailureManager.handleTaskLevelCheckpointException) ...
    "Task local checkpoint failure",
    "Checkpoint was declined (task is closing)",
    "Checkpoint was declined because one input stream is finished",
    "Mailbox is in state",  # that of a task at its end: QUIESCED or CLOSED
    # ... and starts it again; these come until all tasks run.
    "Task has failed",
    "FailoverRegion is restarting",
    "Checkpoint Coordinator is suspending",
    "Task received cancellation from one of its inputs",
    # A TaskManager has died, and is not missed yet.
    "RemoteRpcInvocation(TaskExecutorGateway.triggerCheckpoint",
    # All tasks have ended, and the job is about to.
    "Checkpoint needs at least one vertex that commits the checkpoint",
)
# Its answer about a job of a JobManager that died.
_UNKNOWN_JOB = "Could not find Flink job"
_NO_SUCH_JOB = re.compile(rf"\bJob [0-9a-f]{{32}} not found|{_UNKNOWN_JOB}")
ENDS = frozenset({"FINISHED", "CANCELED", "FAILED"})  # the states of a job that is over, in Flink's words
LOST_JOB = (
    "the JobManager was started again and does not know the job, which ended with the old one; its checkpoints are "
    "there: go on with --resume latest"
)


def is_to_ask_again(message: str) -> bool:
    """Return whether Flink refused a savepoint only because tasks were just starting, ending or failing.

    The job then continues, or its own end gives the reason.
    """
    return any(answer in message for answer in _TASKS_CHANGE)


def is_unknown_job(answer: str) -> bool:
    """Return whether an answer of Flink's REST interface (of status 404 or 500) says that it has no such job."""
    return _NO_SUCH_JOB.search(answer) is not None


def strip_prefixes(message: str) -> str:
    """Return a message without the names of exception classes that Flink and pemja put before it, as one line."""
    line = " ".join(message.split())
    return _PREFIXES.sub("", line) or line


def root_cause(error: BaseException) -> str:
    """Return the innermost reason that an error has, be it Java's (through py4j) or Python's."""
    java: Any = getattr(error, "java_exception", None)
    if java is None:
        inner = error.__cause__
        return root_cause(inner) if inner is not None else f"{type(error).__name__}: {strip_prefixes(str(error))}"
    reason, name = "", ""
    for _ in range(32):  # bounded: a chain may be a ring
        message = java.getMessage()
        text = strip_prefixes(message or "")
        if text not in _EMPTY:
            reason, name = text, java.getClass().getSimpleName()
        elif not reason:
            name = java.getClass().getSimpleName()
        cause = java.getCause()
        if cause is None:
            break
        java = cause
    if _UNKNOWN_JOB in reason:
        return LOST_JOB
    # A Python error names its own type; of a Java one the class is half of what it says.
    return reason if name in {"PythonException", "SerializedThrowable"} else f"{name}: {reason}".removesuffix(": ")


def root_cause_of_text(stacktrace: str) -> str:
    """Return the innermost reason in a Java stack trace as the REST interface gives it."""
    lines = [line.strip() for line in stacktrace.splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return strip_prefixes(causes[-1] if causes else lines[0] if lines else "no reason given")
