"""Names of kinds and of relations' types that a model may have."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from freshet.kinds import NO_NAME

NAME_LENGTH_MAX = 1024
TYPE_LENGTH_MAX = 256
_ODD = "Cc", "Cs", "Zl", "Zp"  # control characters, halves of characters, and ends of lines


def check_kinds(names: Sequence[str]) -> None:
    """Refuse names of kinds that no event can have or no line can show.

    Raises: ValueError
    """
    for name in names if list(names) != [NO_NAME] else ():
        if not _is_line(name, NAME_LENGTH_MAX):
            msg = f"kinds: got {name[:TYPE_LENGTH_MAX]!r}, expected 1 to {NAME_LENGTH_MAX} characters in one line"
            raise ValueError(msg)


def head_name(kind: str) -> str:
    """Return how the head of a kind is called in messages, and what the names of its weights begin with."""
    return f"heads.{kind}"


def check_type(name: str) -> None:
    """Refuse the name of a relation's type that no event can have or no line can show.

    Raises: ValueError
    """
    if not _is_line(name, TYPE_LENGTH_MAX):
        msg = f"type {name[:TYPE_LENGTH_MAX]!r}, expected 1 to {TYPE_LENGTH_MAX} characters in one line"
        raise ValueError(msg)


def _is_line(name: str, most: int) -> bool:
    return 1 <= len(name) <= most and not any(unicodedata.category(one) in _ODD for one in name)
