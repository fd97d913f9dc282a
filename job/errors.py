"""The two ways in which a command ends badly on purpose, and their exit codes."""

from __future__ import annotations

EXIT_DONE = 0
EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_FAILED = 3
EXIT_SIGINT = 130
EXIT_SIGTERM = 143


class UsageError(Exception):
    """Wrong use or a bad input file (exit code 2); the message names it, what was expected and what to do."""


class JobFailed(Exception):
    """The job failed (exit code 3); the message is the root cause, and becomes the last line of stderr."""


def one_line(error: BaseException | str) -> str:
    """Return the message on one line, led by the exception's type where it is no error of ours."""
    text = " ".join(str(error).split())
    if isinstance(error, (str, UsageError, JobFailed)):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
