"""Check that the Flink cluster of `--cluster` answers."""

from __future__ import annotations

from freshet.job.errors import JobFailed
from freshet.job.machine.ports import why_silent

_SILENT = "ConnectException", "UnknownHostException", "ConnectTimeoutException"


def await_answer(address: str | None) -> None:
    """Wait a few seconds for the cluster at HOST:PORT to take connections, where there is to be one.

    Raises: JobFailed when it does not.
    """
    if address is not None and (cause := why_silent(address)) is not None:
        raise JobFailed(_no_answer(address, cause))


def told(address: str, cause: str) -> str:
    """The cause of a failure before the job was submitted; with the address where it is that nothing answers."""
    return _no_answer(address, cause) if cause.startswith(_SILENT) else cause


def _no_answer(address: str, cause: str) -> str:
    return f"--cluster {address}: no Flink cluster answers there ({cause})"
