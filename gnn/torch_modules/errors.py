"""Errors of calls of modules that were made of models."""

from __future__ import annotations

from typing import NoReturn

from freshet.errors import InputError


class ModuleInputError(InputError, ValueError):
    """Rows, edges or ids that a module cannot take; the message names the argument, what it got and what it expects."""


def refuse_input(message: str) -> NoReturn:
    """Refuse what a module was called with.

    Raises: ModuleInputError, always.
    """
    raise ModuleInputError(message)
