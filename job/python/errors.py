"""Errors of commands that were started from Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freshet.errors import FreshetError
from freshet.job.errors import JobFailed, UsageError


class UnknownOptionError(UsageError, TypeError):
    """A keyword that is no option of the command; the message has the nearest names."""


class JobFailedError(JobFailed):
    """A job that failed, or was killed; the message is the root cause, `exit_code` that of its process."""

    def __init__(self, cause: str, exit_code: int | None = None) -> None:
        super().__init__(cause)
        self.exit_code = exit_code


class CheckFailedError(FreshetError):
    """A check that failed, of embeddings or of rejected records; `result` has its figures."""

    exit_code = 1

    def __init__(self, text: str, result: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.result = result


class JobTimeoutError(FreshetError, TimeoutError):
    """A job that goes on after the time for which it was waited for."""
