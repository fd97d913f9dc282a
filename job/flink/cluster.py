"""The Flink cluster of `--cluster` before a job is submitted: whether it answers, and has slots for the job."""

from __future__ import annotations

import time
from collections.abc import Callable

from freshet.job.errors import JobFailed, UsageError
from freshet.job.flink.rest import FlinkRest
from freshet.job.machine.ports import why_silent

_POLL_S = 0.5
_CONNECTOR = "flink-sql-connector-kafka"
_SILENT = "ConnectException", "UnknownHostException", "ConnectTimeoutException"


def await_answer(address: str | None, *, by_tokens: bool = False) -> None:
    """Wait a few seconds for the cluster at HOST:PORT to take connections, where there is to be one.

    `by_tokens`: the job logs in to Kafka by tokens.
    Raises: JobFailed when it does not; UsageError for a cluster whose own connector can't do that.
    """
    if address is not None and (cause := why_silent(address)) is not None:
        raise JobFailed(_no_answer(address, cause))
    if address is not None and by_tokens:
        _refuse_connector(address)


def _refuse_connector(address: str) -> None:
    """Refuse a cluster whose own Kafka connector would be taken instead of the one that logs in by tokens.

    Raises: UsageError.
    """
    rest = FlinkRest(address, "")
    try:
        found = [one for one in rest.class_path() if _CONNECTOR in one]
    finally:
        rest.close()
    if found:
        msg = (
            f"--cluster {address}: has {found[0]}, in which Kafka's client can't log in by tokens (kafka: "
            "sasl.mechanism); take it out of the cluster's folder lib, since the job brings its own connector"
        )
        raise UsageError(msg)


def await_slots(address: str, wanted: int, tell: Callable[[str], None], is_stopped: Callable[[], bool]) -> bool:
    """Wait for that many free slots, for any length of time; `tell` is called with what it waits for, again and again.

    A job without them would fail again and again, and use up its restarts in seconds. Returns False if `is_stopped`
    did first.
    Raises: FlinkRestError when the cluster ceases to answer.
    """
    rest = FlinkRest(address, "")
    try:
        while (free := rest.free_slots()) < wanted and not rest.starts_task_managers():
            if is_stopped():
                return False
            noun = "slot" if free == 1 else "slots"
            tell(f"cluster has {free} free {noun}, {wanted} wanted; waiting until there are more")
            time.sleep(_POLL_S)
    finally:
        rest.close()
    return not is_stopped()


def with_address(address: str, cause: str) -> str:
    """The cause of a failure before the job was submitted; with the address where it is that nothing answers."""
    return _no_answer(address, cause) if cause.startswith(_SILENT) else cause


def _no_answer(address: str, cause: str) -> str:
    return f"--cluster {address}: no Flink cluster answers there ({cause})"
