"""The root of the errors that users see as one line: the message says all that they need to know."""

from __future__ import annotations


class FreshetError(Exception):
    """What went wrong, in words for people: what was found, what was expected, what to do."""


class InputError(FreshetError):
    """What was given can't be used: an option, a file, a model, a state (exit code 2 of a command)."""
