"""The root of all errors that users see as one line, and warnings."""

from __future__ import annotations

import os


class FreshetError(Exception):
    """An error for users: the value found, the value expected, and what to do."""


class InputError(FreshetError):
    """Unusable input: an option, a file, a model or a state (exit code 2 of a command)."""


def warn(text: str) -> None:
    """Say something on standard error, from any thread.

    Not by sys.stderr, which leads through Java where Flink runs Python: a worker's thread must not go there.
    """
    os.write(2, f"freshet: {text}\n".encode())
