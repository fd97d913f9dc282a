"""The ways in which a command ends, and their exit codes."""

from __future__ import annotations

from freshet.errors import FreshetError, InputError

EXIT_DONE = 0
EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_FAILED = 3
EXIT_SIGINT = 130
EXIT_SIGTERM = 143


class UsageError(InputError):
    """Wrong use of a command; the message names the option, what was expected and what to do."""


class JobFailed(FreshetError):
    """The job failed (exit code 3); the message is the root cause, and becomes the last line of stderr."""


def exit_code(error: Exception) -> int:
    """The exit code of a command that ends with this error."""
    return EXIT_USAGE if isinstance(error, InputError) else EXIT_FAILED


def one_line(error: BaseException | str) -> str:
    """Return the message on one line, led by the exception's type unless it is one of a command."""
    text = " ".join(str(error).split())
    if isinstance(error, (str, UsageError, JobFailed)):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
