"""The root of all errors that users see as one line."""

from __future__ import annotations


class FreshetError(Exception):
    """An error for users: the value found, the value expected, and what to do."""


class InputError(FreshetError):
    """Unusable input: an option, a file, a model or a state (exit code 2 of a command)."""
