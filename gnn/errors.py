"""The root of the errors that are meant for whoever runs Freshet: the message is all that they need to see of them."""

from __future__ import annotations


class FreshetError(Exception):
    """What went wrong, in words for people: what was found, what was expected, what to do."""


class InputError(FreshetError):
    """What was given can't be used: an option, a file, a model, a state (exit code 2 of a command)."""
