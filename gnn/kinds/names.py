"""Names of kinds and of relations' types: kinds become folders (embeddings/KIND) and ends of topics (NAME.KIND)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from freshet.kinds import NO_NAME

KIND_LENGTH_MAX = 64
TYPE_LENGTH_MAX = 256
_KIND = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{KIND_LENGTH_MAX - 1}}}")


def check_kinds(names: Sequence[str]) -> None:
    """Refuse names of kinds that cannot be folders and ends of topics beside each other.

    Raises: ValueError
    """
    if list(names) == [NO_NAME]:
        return
    for name in names:
        if not _KIND.fullmatch(name):
            msg = (
                f"kinds: {name!r} cannot name a folder and a topic; a name has 1 to {KIND_LENGTH_MAX} of A-Z, a-z, "
                f"0-9, _, . and -, and begins with a letter or digit"
            )
            raise ValueError(msg)
    # Some file systems do not tell capitals, and Kafka refuses topics that differ in . and _ alone.
    alike: dict[str, str] = {}
    for name in names:
        other = alike.setdefault(name.lower().replace(".", "_"), name)
        if other != name:
            msg = f"kinds: {other!r} and {name!r} are too much alike; capitals, and . for _, make no other folder "
            raise ValueError(msg + "or topic")


def head_name(kind: str) -> str:
    """Return how the head of a kind is called in messages, and what the names of its weights begin with."""
    return f"heads.{kind}"


def check_type(name: str) -> None:
    """Refuse the name of a relation's type that no event can have or no line can show.

    Raises: ValueError
    """
    if not name.isprintable() or not 1 <= len(name) <= TYPE_LENGTH_MAX:
        msg = f"type {name[:TYPE_LENGTH_MAX]!r}, expected 1 to {TYPE_LENGTH_MAX} printable characters"
        raise ValueError(msg)
