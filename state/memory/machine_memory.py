"""Available memory: that of the container, if it has less than the machine.

A limit holds for a control group and all below it, so the least of those up the tree counts. Both versions of control
groups are read; a machine may have the one for memory and the other for all else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_ROOT = Path("/")
_ESCAPED = re.compile(r"\\(\d{3})")


class _Names(NamedTuple):
    """The files of a version of control groups, and the words in its statistics."""

    kind: str
    option: str  # of the mount, which several hierarchies of version 1 have
    limits: tuple[str, ...]
    used: str
    cached: tuple[str, ...]
    limit_above: str  # also of groups that can't be seen from inside


_VERSIONS = (
    _Names("cgroup2", "", ("memory.max", "memory.high"), "memory.current", ("active_file", "inactive_file"), ""),
    _Names(
        "cgroup",
        "memory",
        ("memory.limit_in_bytes",),
        "memory.usage_in_bytes",
        ("total_active_file", "total_inactive_file"),
        "hierarchical_memory_limit",
    ),
)


def total_memory(root: Path = _ROOT) -> int:
    """Bytes that this process and those of its container may take in all; `root`: where /proc and /sys lie."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _limits(root))])


def available_memory(root: Path = _ROOT) -> int:
    """Bytes that can still be taken without swapping; what files are cached in counts, for it can be given up."""
    left = [max(limit - taken, 0) for limit, taken in _limits(root)]
    return min([psutil.virtual_memory().available, *left])


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """Each limit that holds for this process, and the bytes that its group can't give up."""
    for names in _VERSIONS:
        for group in _groups(root, names):
            stat = _stat_of(group)
            taken = (_number(group / names.used) or 0) - sum(stat.get(name, 0) for name in names.cached)
            limits = [_number(group / name) for name in names.limits] + [stat.get(names.limit_above)]
            yield from ((limit, max(taken, 0)) for limit in limits if limit is not None)


def _groups(root: Path, names: _Names) -> Iterator[Path]:
    """The folders of this process's group and of those above it, as far up as can be seen."""
    group = _own_group(root, names)
    if group is None:
        return
    for within, top in _mounts(root, names):
        inside = group.removeprefix(within.rstrip("/")) if f"{group}/".startswith(f"{within.rstrip('/')}/") else ""
        parts = [part for part in inside.split("/") if part]
        folder = root / top.lstrip("/")
        if ".." in parts:  # a group outside of what is mounted
            parts = []
        for depth in range(len(parts), -1, -1):
            yield folder.joinpath(*parts[:depth])


def _own_group(root: Path, names: _Names) -> str | None:
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if names.option in controllers.split(","):
            return path
    return None


def _mounts(root: Path, names: _Names) -> Iterator[tuple[str, str]]:
    """The group that each mount of this version begins at, and where it is mounted."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, options = before.split(), after.split()
        if len(fields) >= 5 and options and options[0] == names.kind:
            if not names.option or names.option in options[-1].split(","):
                within, top = (_ESCAPED.sub(lambda found: chr(int(found[1], 8)), text) for text in fields[3:5])
                yield within, top


def _stat_of(group: Path) -> dict[str, int]:
    pairs = (line.split() for line in _lines(group / "memory.stat"))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _number(file: Path) -> int | None:
    """The number in a file; None where it says `max`, or isn't there, as at the root of version 2."""
    lines = _lines(file)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
