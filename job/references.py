"""References to environment variables, `${NAME}`, in place of secrets: replaced as late as possible."""

from __future__ import annotations

import re
from collections.abc import Mapping

from freshet.job.errors import UsageError

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def with_variables(what: str, value: str, environ: Mapping[str, str]) -> str:
    """Return a value with each `${NAME}` replaced by what the environment has for it; `what` names it in errors.

    Raises: UsageError naming the variable that is not set.
    """

    def replace(found: re.Match[str]) -> str:
        name = found[1]
        if not _NAME.fullmatch(name):
            msg = f"{what}: expected ${{NAME}} of an environment variable"
            raise UsageError(msg)
        if name not in environ:
            msg = f"{what}: the environment variable {name} is not set"
            raise UsageError(msg)
        return environ[name]

    return _REFERENCE.sub(replace, value)


def is_reference(value: str) -> bool:
    """Return whether a value is nothing but one reference."""
    return _REFERENCE.fullmatch(value) is not None


def has_reference(value: str) -> bool:
    """Return whether a value has a reference in it."""
    return _REFERENCE.search(value) is not None


def references(value: str) -> list[str]:
    """Return the names of the variables that a value has references to."""
    return [str(name) for name in _REFERENCE.findall(value)]
